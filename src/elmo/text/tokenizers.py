"""NAME OF A TOKENIZER ─▶ A FUNCTION: `moses`, `whitespace`, or `PATH:FUNC`, a function of the user.

A name can be written to a file and sent to another process; a function cannot.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from elmo.errors import ConfigError

Tokenizer = Callable[[str], Sequence[str]]

NAMES = ("moses", "whitespace")


def tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of that name, a function from a sentence to its tokens."""
    if name == "moses":
        from elmo.text.tokens import words

        return words
    if name == "whitespace":
        return str.split
    path = source(name)
    if path is None:
        raise ConfigError(f"tokenizer is {name!r}; expected {', '.join(NAMES)}, or PATH:FUNC, a function in a .py file")
    return _function(path, name.rpartition(":")[2])


def source(name: str) -> Path | None:
    """Return the file of a user's tokenizer, PATH of `PATH:FUNC`; None for other names."""
    path = name.rpartition(":")[0]
    return Path(path) if path.endswith(".py") else None


def _function(path: Path, name: str) -> Tokenizer:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # a name that ends in .py has one
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path}: cannot be imported ({type(error).__name__}: {error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        found = ", ".join(key for key, value in vars(module).items() if callable(value) and key[0] != "_") or "none"
        raise ConfigError(f"{path}: no function {name!r} in it; found {found}")
    result: Tokenizer = function
    return result
