"""Damaged and hostile variants of small valid files: of bytes, of lines, and of JSON. All chance comes from `rng`."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

NUMBERS = (0, 1, 2, 3, 7, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**63 - 1, 2**63, 2**64 - 1)
DEEP = 100_000  # levels of nesting; Python's parser gives up at a thousand
LONG = 20_000  # bytes of a long line or word
ODD_JSON: tuple[Any, ...] = (
    *(None, True, False, "", "0", "none", "x" * 3000, "\ud800", "../x", "/dev/zero", [], {}, [[]], [None], {"": None}),
    *(0, -1, 1, 0.5, -0.0, 1e308, float("nan"), float("inf"), *NUMBERS[3:], -(2**63), 10**30),
)
ODD_TEXT = (
    *(b"", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\xa0", b"\xe2\x80\xa8", b"\r", b"\t", b" "),
    *(b"(", b")", b"()", b"((", b"*", b"*)", b"(*", b"(*)", b"(ARG0*", b"(V*)", b"(0", b"0)", b"(0)", b"|", b"-", b"_"),
    *(b"O", b"B-", b"I-", b"I-PER", b"L-LOC", b"-DOCSTART-", b"#begin document", b"#begin document (x); part 0"),
    *(b"#end document", b"#", b"[", b"]", b"{", b"}", b'"', b"\\", b"\\ud800", b"null", b"NaN", b"1e999", b"-1", b"9"),
    *(b"9" * 5000, b"x" * 300, b"<S>", b"</S>", b"<UNK>", b"<pad>", "日本語🙂".encode(), b"-LRB-", b"4", b"5", b"2"),
)


def changed_bytes(rng: Random, data: bytes) -> bytes:
    """Change a few bytes anywhere: flip bits, cut, repeat, swap, or write a number that may be a size."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(result) + 1)
        some = rng.choice((1, 2, 4, 8, 64, 1024))
        kind = rng.randrange(8)
        if kind <= 1 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(NUMBERS) % (1 << 8 * width)
            result[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif kind == 3:
            del result[at : at + some]
        elif kind == 4:
            result[at:at] = result[at : at + some]
        elif kind == 5:
            result[at:at] = rng.randbytes(some)
        elif kind == 6:
            to = rng.randrange(len(result) + 1)
            result[to : to + some] = result[at : at + some]
        elif rng.random() < 0.3:
            del result[at:]
        else:
            result[at : at + some] = bytes(len(result[at : at + some]))
    return bytes(result)


def changed_lines(rng: Random, data: bytes) -> bytes:
    """Change lines, or the fields of a line."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, kind = rng.randrange(len(lines)), rng.randrange(10)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice((*ODD_TEXT, *lines)))
        elif kind == 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3:
            lines[at] = changed_bytes(rng, lines[at])
        elif kind == 4:
            lines[at] = lines[at].replace(b"\t", b" ") if b"\t" in lines[at] else lines[at].replace(b" ", b"\t")
        elif kind == 5 and rng.random() < 0.1:
            some = rng.choice((lines[at], *ODD_TEXT))
            lines[at] = some * (LONG // (len(some) + 1) + 1)
        else:
            lines[at] = _changed_fields(rng, lines[at])
    return b"\n".join(lines)


def _changed_fields(rng: Random, line: bytes) -> bytes:
    separator = b"\t" if b"\t" in line else b" "
    fields = line.split(separator)
    at = rng.randrange(len(fields))
    kind = rng.randrange(5)
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields.insert(at, rng.choice(ODD_TEXT))
    elif kind == 2:
        fields[at] += rng.choice(ODD_TEXT)
    elif kind == 3:
        fields[at] = rng.choice(ODD_TEXT) + fields[at]
    else:
        fields[at] = rng.choice((*ODD_TEXT, *fields))
    return separator.join(fields)


def changed_json(rng: Random, data: bytes) -> bytes:
    """Change values, types, names and nesting of a JSON document; sometimes its bytes."""
    if rng.random() < 0.15:
        return rng.choice((changed_bytes, changed_lines))(rng, data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # damaged before
        return changed_bytes(rng, data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _changed_value(rng, value)
    text = json.dumps(value)
    if rng.random() < 0.02:
        text = text.replace(rng.choice(("1", '""', "null", "0")), "[" * DEEP + "]" * rng.choice((0, DEEP)), 1)
    if rng.random() < 0.05 and text.startswith("{") and len(text) > 2:
        text = "{" + text[1:-1] + "," + text[1:]  # every name twice
    return text.encode()


def _changed_value(rng: Random, value: Any) -> Any:
    """Replace one value inside of a document, its root now and then."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return _another(rng, value)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
    kind = rng.randrange(12)
    if kind == 0:
        del copy[key]
    elif kind == 1 and isinstance(copy, dict):
        copy[rng.choice(("", key + "s", key[:-1], "lstm", "n_layers", "\ud800"))] = copy.pop(key)
    elif kind == 2:
        other = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
        copy[key] = copy[other]
    elif kind == 3 and isinstance(copy, list):
        copy *= rng.choice((2, 3, 100))
    elif kind == 4:
        copy[key] = [copy[key]] if rng.random() < 0.5 else {"value": copy[key]}
    else:
        copy[key] = _changed_value(rng, copy[key])
    return copy


def _another(rng: Random, value: Any) -> Any:
    """Return a value instead of this one: an odd one, or one near it."""
    if isinstance(value, int | float) and rng.random() < 0.4:
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 1000, value / 2, str(value)))
    if isinstance(value, str) and rng.random() < 0.4:
        odd = rng.choice(ODD_TEXT).decode("utf-8", "replace")
        return rng.choice((value + odd, odd + value, value[: len(value) // 2], value * 2, value.upper(), [value]))
    return rng.choice(ODD_JSON)


def changed_one(
    rng: Random, files: dict[str, Any], change: Callable[[Random, str, bytes], Any], names: Sequence[str] = ()
) -> dict[str, Any]:
    """Change one of the files (of these names), now and then several."""
    result = dict(files)
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(names or list(files))
        if isinstance(result[name], bytes):
            result[name] = change(rng, name, result[name])
    return result
