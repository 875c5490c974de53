"""TOML + `--set a.b=v` ◀─▶ a config: a frozen dataclass whose field types say what is allowed.

Later sources win: defaults ◀ preset ◀ file ◀ command line. All errors are reported at once; an unknown field is
reported with the nearest name. TOML has no null: write "none".

    class BatchConfig(CheckedConfig):
        size: PositiveInt = 128
        restart: Probability = 0.0
"""

import dataclasses
import difflib
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmo.errors import ConfigError

Config = TypeVar("Config")

MOST_ERRORS = 50  # reported at once: a file of another kind may have any number of unknown fields
_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The allowed range of a number: greater than, at least, less than, at most."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def __str__(self) -> str:
        low = f"({_shown(self.gt)}" if self.gt is not None else f"[{_shown(self.ge)}" if self.ge is not None else ""
        high = f"{_shown(self.lt)})" if self.lt is not None else f"{_shown(self.le)}]" if self.le is not None else ""
        if low and high:
            return f"a number in {low}, {high}"
        if low:
            return f"more than {_shown(self.gt)}" if self.gt is not None else f"{_shown(self.ge)} or more"
        return f"less than {_shown(self.lt)}" if self.lt is not None else f"{_shown(self.le)} or less"


def _shown(bound: float | None) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


PositiveInt = Annotated[int, Bounds(ge=1)]
PositiveFloat = Annotated[float, Bounds(gt=0)]
NonNegativeInt = Annotated[int, Bounds(ge=0)]
Seed = Annotated[int, Bounds(ge=0, lt=1 << 64)]  # what PyTorch accepts
NonNegativeFloat = Annotated[float, Bounds(ge=0)]
Probability = Annotated[float, Bounds(ge=0, lt=1)]  # of dropout and the like, where 1 would leave nothing


class CheckedConfig:
    """A frozen dataclass that refuses numbers outside the bounds of their fields, however it is constructed."""

    def __post_init__(self) -> None:
        errors: list[str] = []
        for name, kind in _types(type(self)).items():
            _check_bounds(kind, getattr(self, name), name, errors)
        _raise(errors)


def read_toml(path: Path) -> dict[str, Any]:
    """Read the values of a config file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a TOML file") from None
    except ValueError as error:  # also of bytes that are not UTF-8, and of an integer with thousands of digits
        raise ConfigError(f"{path}: not TOML ({error})") from None


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Parse `a.b=v` assignments into nested values; v is read as TOML, or else as a string."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not all(name.split(".")):
            raise ConfigError(f"--set {assignment}: expected name=value, such as optimizer.learning_rate=0.1")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except ValueError:
            value = text
        for key in reversed(name.split(".")):
            value = {key: value}
        values = merged(values, value)
    return values


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested tables; where both have a value, `over` wins."""
    both = dict(values)
    for name, value in over.items():
        below = both.get(name)
        if isinstance(value, Mapping) and (below is None or isinstance(below, Mapping)):
            value = merged(below or {}, value)
        both[name] = value
    return both


def build(config: type[Config], values: Mapping[str, Any]) -> Config:
    """Build a config from nested values; a field that is not given keeps its default."""
    errors: list[str] = []
    built: Config = _build(config, values, "", errors)
    _raise(errors)
    return built


def _build(config: type[Any], values: Mapping[str, Any], prefix: str, errors: list[str]) -> Any:
    """Build a config, or add what is wrong to `errors`."""
    types = _types(config)
    fields: dict[str, Any] = {}
    before = len(errors)
    for name, value in values.items():
        if len(errors) >= MOST_ERRORS:
            break
        if name in types:
            fields[name] = _value(types[name], value, prefix + name, errors)
        else:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"did you mean {prefix + near[0]!r}?" if near else f"expected one of {', '.join(types)}"
            errors.append(f"unknown field {prefix + name!r}; {hint}")
    for field in dataclasses.fields(config):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            errors.append(f"{prefix}{field.name} is missing")
    if len(errors) > before:
        return None
    try:
        return config(**fields)
    except ConfigError as error:  # a rule about several fields
        errors.append(str(error))
        return None


def _value(kind: Any, value: Any, name: str, errors: list[str]) -> Any:
    """Convert a value to the type of its field, or add what is wrong to `errors`."""
    choices = get_args(kind)
    if get_origin(kind) is Annotated:
        before = len(errors)
        value = _value(choices[0], value, name, errors)
        if len(errors) == before:
            _check_bounds(kind, value, name, errors)
        return value
    if get_origin(kind) in (Union, UnionType):
        if NoneType in choices and (value is None or value == "none"):
            return None
        return _value(next(choice for choice in choices if choice is not NoneType), value, name, errors)
    if get_origin(kind) is Literal:
        if value in choices:
            return value
        expected = f"one of {', '.join(map(str, choices))}"
    elif get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            each = [choices[0]] * len(value) if choices[-1] is Ellipsis else list(choices)
            if len(each) == len(value):
                pairs = enumerate(zip(each, value, strict=True))
                return tuple(_value(kind, item, f"{name}[{k}]", errors) for k, (kind, item) in pairs)
            expected = f"{len(each)} values"
        else:
            expected = "a list"
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, Mapping):
            return _build(kind, value, f"{name}.", errors)
        expected = "a table of its fields"
    else:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind is float and number and abs(value) <= sys.float_info.max:  # JSON has integers beyond it, NaN, infinity
            return float(value)
        if kind is int and type(value) is float and value.is_integer():  # 1e4
            return int(value)
        if kind in (int, bool, str) and type(value) is kind:
            return value
        expected = _KINDS[kind]
    errors.append(f"{name} is {value!r}; expected {expected}")
    return None


def _types(config: type[Any]) -> dict[str, Any]:
    return get_type_hints(config, include_extras=True)


def _check_bounds(kind: Any, value: Any, name: str, errors: list[str]) -> None:
    """Add an error if a number is outside the bounds of its field; None is always allowed."""
    for some in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        bounds = [one for one in getattr(some, "__metadata__", ()) if isinstance(one, Bounds)]
        errors += [f"{name} is {value}; expected {one}" for one in bounds if value is not None and value not in one]


def _raise(errors: list[str]) -> None:
    if len(errors) > 1:
        raise ConfigError("\n  ".join([f"{len(errors)} errors in the config:", *errors]))
    if errors:
        raise ConfigError(errors[0])


def to_toml(values: Mapping[str, Any], prefix: str = "") -> str:
    """Write a nested table of values as TOML that `read_toml` and `build` read back; None is written as "none"."""
    lines, tables = [], []
    for name, value in values.items():
        if isinstance(value, Mapping):
            tables.append(f"\n[{prefix}{name}]\n{to_toml(value, f'{prefix}{name}.')}")
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            tables += [f"\n[[{prefix}{name}]]\n{to_toml(item, f'{prefix}{name}.')}" for item in value]
        else:
            lines.append(f"{name} = {_toml(value)}\n")
    return "".join(lines) + "".join(tables)


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's
    return json.dumps(value)


def differences(asked: dict[str, Any], found: dict[str, Any], prefix: str = "") -> str:
    """Describe where two nested tables of values differ, for a message."""
    parts = []
    for name in asked:
        if isinstance(asked[name], dict) and isinstance(found.get(name), dict):
            inner = differences(asked[name], found[name], f"{prefix}{name}.")
            parts += [inner] if inner else []
        elif asked[name] != found.get(name):
            parts.append(f"{prefix}{name} {found.get(name)}, not {asked[name]}")
    return ", ".join(parts)
