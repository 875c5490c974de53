"""ELMo: deep contextualized word representations (Peters et al., NAACL 2018), in PyTorch.

This module has the public names. They are imported when first used, so that `import elmo` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder, load
    from elmo.errors import ConfigError, DataError, ElmoError, WeightsError
    from elmo.model.bilm import BiLM, BiLMConfig
    from elmo.model.elmo import Elmo
    from elmo.model.scalar_mix import ScalarMix
    from elmo.tasks.predict import load_task

_HOMES = {
    "load": "elmo.embed.embedder",
    "load_task": "elmo.tasks.predict",
    "Embedder": "elmo.embed.embedder",
    "Elmo": "elmo.model.elmo",
    "BiLM": "elmo.model.bilm",
    "BiLMConfig": "elmo.model.bilm",
    "ScalarMix": "elmo.model.scalar_mix",
    "ElmoError": "elmo.errors",
    "ConfigError": "elmo.errors",
    "DataError": "elmo.errors",
    "WeightsError": "elmo.errors",
}

__all__ = [
    "BiLM",
    "BiLMConfig",
    "ConfigError",
    "DataError",
    "Elmo",
    "ElmoError",
    "Embedder",
    "ScalarMix",
    "WeightsError",
    "__version__",
    "load",
    "load_task",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'elmo' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
