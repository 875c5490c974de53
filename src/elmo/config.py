"""TOML + `--set a.b=v` ◀─▶ a config: a frozen dataclass, checked field by field.

Later sources win: defaults ◀ preset ◀ file ◀ command line. A field that does not exist is refused with the nearest
name. TOML has no null: "none" stands for it.
"""

import dataclasses
import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmo.errors import ConfigError

Config = TypeVar("Config")

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


def read_toml(path: Path) -> dict[str, Any]:
    """Read the values of a config file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML ({error})") from None


def settings(assignments: Iterable[str]) -> dict[str, Any]:
    """The values of `a.b=v` assignments; v is read as TOML, and is a string if it is not TOML."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not all(name.split(".")):
            raise ConfigError(f"--set {assignment}: expected name=value, such as optimizer.learning_rate=0.1")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        for key in reversed(name.split(".")):
            value = {key: value}
        values = merged(values, value)
    return values


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested tables; where both have a value, `over`'s is taken."""
    both = dict(values)
    for name, value in over.items():
        below = both.get(name)
        if isinstance(value, Mapping) and (below is None or isinstance(below, Mapping)):
            value = merged(below or {}, value)
        both[name] = value
    return both


def build(config: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """Build a config from these values; the other fields have their defaults."""
    types = get_type_hints(config)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"did you mean {prefix + near[0]!r}?" if near else f"known are {', '.join(types)}"
            raise ConfigError(f"unknown field {prefix + name!r}; {hint}")
        fields[name] = _value(types[name], value, prefix + name)
    required = [
        field.name
        for field in dataclasses.fields(config)  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    for name in required:
        if name not in fields:
            raise ConfigError(f"{prefix}{name} is missing")
    return config(**fields)


def _value(kind: Any, value: Any, name: str) -> Any:
    """Convert a value to its field's type, or refuse it."""
    choices = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        if NoneType in choices and (value is None or value == "none"):
            return None
        return _value(next(choice for choice in choices if choice is not NoneType), value, name)
    if get_origin(kind) is Literal:
        if value not in choices:
            raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(map(str, choices))}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} is {value!r}; expected a list")
        each = [choices[0]] * len(value) if choices[-1] is Ellipsis else list(choices)
        if len(each) != len(value):
            raise ConfigError(f"{name} is {value!r}; expected {len(each)} values")
        return tuple(_value(kind, item, f"{name}[{k}]") for k, (kind, item) in enumerate(zip(each, value, strict=True)))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} is {value!r}; expected a table of its fields")
        return build(kind, value, f"{name}.")
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is float and value.is_integer():  # 1e4
        return int(value)
    if kind in (int, bool, str) and type(value) is kind:
        return value
    raise ConfigError(f"{name} is {value!r}; expected {_KINDS[kind]}")


def to_toml(values: Mapping[str, Any], prefix: str = "") -> str:
    """Write a nested table of values as TOML that `read_toml` and `build` read back; None is written as "none"."""
    lines = [f"{name} = {_toml(value)}\n" for name, value in values.items() if not isinstance(value, Mapping)]
    tables = [(f"{prefix}{name}", value) for name, value in values.items() if isinstance(value, Mapping)]
    return "".join(lines) + "".join(f"\n[{name}]\n{to_toml(table, f'{name}.')}" for name, table in tables)


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's
    return json.dumps(value)


def check_positive(values: Mapping[str, float | None]) -> None:
    """Refuse a field that is not more than 0; None is accepted."""
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ConfigError(f"{name} is {value}; expected more than 0")


def check_at_least(least: int, values: Mapping[str, float | None]) -> None:
    """Refuse a field below `least`; None is accepted."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ConfigError(f"{name} is {value}; expected {least} or more")


def check_shares(values: Mapping[str, float]) -> None:
    """Refuse a share, such as a dropout probability, outside [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ConfigError(f"{name} is {value}; expected a value in [0, 1)")


def differences(asked: dict[str, Any], found: dict[str, Any], prefix: str = "") -> str:
    """Where two nested tables of values differ, for a message."""
    parts = []
    for name in asked:
        if isinstance(asked[name], dict) and isinstance(found.get(name), dict):
            inner = differences(asked[name], found[name], f"{prefix}{name}.")
            parts.append(inner) if inner else None
        elif asked[name] != found.get(name):
            parts.append(f"{prefix}{name} {found.get(name)}, not {asked[name]}")
    return ", ".join(parts)
