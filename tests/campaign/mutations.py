"""Small changes to input, of the kinds that break parsers, drawn by a seed."""

from __future__ import annotations

import json
import random
from typing import Any

# What JSON has no good answer to, or Python, or whoever prints it.
_TOKENS = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"null", b"true", b"{}", b"[]", b'""'),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"\xed\xa0\x80", b"\r", b"\n"),
    *(b"\x1b[2J", b"\\u001b]0;x\\u0007", b"\\u202e", b"\\n", b"%s", b"{0}", b"../../x", b"9" * 400),
    *(b"[" * 1500, b'{"a":' * 1500, b" " * 3000, b'"' + b"x" * 5000, b"-1", b"1.5", b"99999999999"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**40, "", " ", "\ud800", "\x00", "\x1b[31m", "x" * 3000, [], {}),
    *([[]], {"": ""}, [None], {"id": "a", "examples": []}, "\u202eabc", "\n", float("nan")),
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return the data with one to four changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_CHANGES)(data, chance)
    return data


def mutated_json_lines(data: bytes, chance: random.Random) -> bytes:
    """Return JSON Lines with changed bytes, or with a value of one line changed for another."""
    lines = data.splitlines(keepends=True)
    if not lines or chance.random() < 0.5:
        return mutated(data, chance)
    number = chance.randrange(len(lines))
    value = json.loads(lines[number])
    changed = _with_other_value(value, chance)
    lines[number] = json.dumps(changed).encode() + b"\n"
    return b"".join(lines)


def mutated_json(data: bytes, chance: random.Random) -> bytes:
    """Return a JSON document with changed bytes or with another value somewhere."""
    if chance.random() < 0.5:
        return mutated(data, chance)
    return json.dumps(_with_other_value(json.loads(data), chance)).encode()


def _with_other_value(value: Any, chance: random.Random) -> Any:
    """Return the value with another in one place; sometimes a name is lost or added."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        kind = chance.random()
        if kind < 0.1:
            return {key: each for key, each in value.items() if key != name}
        if kind < 0.2:
            return value | {chance.choice(("extra", "", name.upper(), "\x00")): value[name]}
        return value | {name: _with_other_value(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], _with_other_value(value[place], chance), *value[place + 1 :]]
    return chance.choice(_VALUES)


def _flip(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return data
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    start, end = _range(data, chance)
    return data[:start] + data[end:]


def _double(data: bytes, chance: random.Random) -> bytes:
    start, end = _range(data, chance)
    return data[:end] + data[start:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice(_TOKENS) + data[place:]


def _overwrite(data: bytes, chance: random.Random) -> bytes:
    start, end = _range(data, chance)
    return data[:start] + chance.choice(_TOKENS) + data[end:]


def _end(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _exchange(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def _noise(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[:start] + chance.randbytes(chance.randrange(1, 40)) + data[start:]


def _range(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randrange(1, 200))


_CHANGES = (_flip, _flip, _cut, _double, _insert, _insert, _overwrite, _end, _exchange, _noise)
