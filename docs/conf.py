"""Sphinx configuration. `make docs` builds the site into docs/_build.

The source folder is the root of the repository, so that pages may link to README.md, CONTRIBUTING.md and RESULTS.md,
which become pages too. Links to other files of the repository are resolved by `repository_files.py`.
"""

import sys
from pathlib import Path

import elmo

sys.path.insert(0, str(Path(__file__).parent))

project = "elmo"
author = "The elmo-torch maintainers"
release = elmo.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "command_help", "repository_files"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benchmarks/*.md",
    "experiments/RESULTS.md",
    "src/elmo/packaged/english/README.md",
    "models/english-large/elmo_english_large/README.md",
]
exclude_patterns = ["docs/_build", "docs/**/.ipynb_checkpoints"]

myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto", "repository"]
nb_execution_mode = "off"  # the notebooks contain their output; a test executes them

default_role = "code"  # `name` in a docstring is code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"elmo {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["redirect"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
highlight_language = "none"  # for blocks without a language
