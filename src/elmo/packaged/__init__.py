"""The models that come with the package, a folder each (src/elmo/packaged/NAME)."""

from pathlib import Path

FOLDER = Path(__file__).parent
DEFAULT = "english"  # the model that `elmo.load()` loads
