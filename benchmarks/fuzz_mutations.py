"""Spoils what a reader is given: bytes by chance, numbers and nesting on purpose, trees by
replacing what is in them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

_NUMBERS = (
    "9" * 5000,
    "0",
    "-1",
    "1e999",
    "NaN",
    "2147483647",
    "2147483648",
    "4294967295",
    "999999999",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "0-10000000",
    "0-999999999",
    "00000000000000000001",
    "\u00b2",
    "\u0663",
    "0x",
)
_WORDS = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\n",
    b"\r\n",
    b" ",
    b"(",
    b")",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"'",
    b":",
    b",",
    b"-",
    b"--",
    b" -- GPU ",
    b" managed by process 1 on node ",
    b"..",
    b"/",
    b"\\",
    b"\x1b[2J",
    b"n[0-999999999]",
    b"[0-9]",
)
_INTEGERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 62,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
_HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    1 << 31,
    999_999_999,
    (1 << 63) - 1,
    (1 << 64) - 1,
    1.5,
    -0.0,
    1e308,
    "",
    "0",
    "9" * 5000,
    "0-10000000",
    "[0, 999999999]",
    "n[0-999999999]",
    "\u00b2",
    "\ud7ff\x1b[2J",
    " (" * 2000,
    ":" * 2000,
    "/" * 4000,
    "a.py",
    [],
    {},
    [[]],
    [0, 999_999_999],
    {"": 0},
    [-1],
    "x" * 20_000,
)


MAX_CASE = 32 << 20  # bytes: a larger case measures the fuzzer, not the reader


def spoil(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """`data` with one to six changes; `other` lends a piece."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        data = chance.choice(_CHANGES)(data, chance, other)[:MAX_CASE]
    return data[: 4 << 20]


def _place(data: bytes, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + chance.choice((1, 2, 4, 8, 64, 1024)))


def _flip(data: bytes, chance: random.Random, _: bytes) -> bytes:
    if not data:
        return b"\xff"
    changed = bytearray(data)
    for _i in range(chance.choice((1, 1, 4, 32))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, chance: random.Random, _: bytes) -> bytes:
    begin, end = _place(data, chance)
    return data[:begin] if chance.random() < 0.3 else data[:begin] + data[end:]


def _repeat(data: bytes, chance: random.Random, _: bytes) -> bytes:
    begin, end = _place(data, chance)
    piece = data[begin:end]
    times = (
        chance.choice((2, 10, 1000)) if len(piece) > 16 else chance.choice((2, 100, 20_000, 90_000))
    )
    return data[:begin] + piece * min(times, (2 << 20) // max(1, len(piece))) + data[end:]


def _insert(data: bytes, chance: random.Random, _: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_WORDS) * chance.choice((1, 1, 1, 300, 45_000)) + data[at:]


def _lend(data: bytes, chance: random.Random, other: bytes) -> bytes:
    at, (begin, end) = chance.randrange(len(data) + 1), _place(other, chance)
    return data[:at] + other[begin:end] + data[at:]


def _integer(data: bytes, chance: random.Random, _: bytes) -> bytes:
    width = chance.choice((1, 2, 4, 8))
    if len(data) < width:
        return data
    # Headers are where counts and offsets stand.
    at = chance.randrange(min(len(data) - width + 1, chance.choice((256, 4096, len(data)))))
    value = chance.choice(_INTEGERS) & ((1 << 8 * width) - 1)
    return data[:at] + value.to_bytes(width, chance.choice(("little", "big"))) + data[at + width :]


def _number(data: bytes, chance: random.Random, _: bytes) -> bytes:
    found = [m.span() for m in re.finditer(rb"\d{1,40}", data[: 1 << 17])]
    if not found:
        return data
    begin, end = chance.choice(found)
    return data[:begin] + chance.choice(_NUMBERS).encode() + data[end:]


_CHANGES: tuple[Callable[[bytes, random.Random, bytes], bytes], ...] = (
    _flip,
    _cut,
    _repeat,
    _insert,
    _lend,
    _integer,
    _number,
    _number,
)


def spoil_tree(tree: Any, chance: random.Random) -> Any:
    """A plain tree of dicts, lists, texts and numbers with one to four of its places replaced;
    `tree` itself may change.
    """
    whole = [tree]
    for _ in range(chance.choice((1, 1, 2, 4))):
        holder: Any = whole
        key: Any = 0
        while (
            isinstance(holder[key], dict | list | tuple) and holder[key] and chance.random() < 0.85
        ):
            if isinstance(holder[key], tuple):
                holder[key] = list(holder[key])
            holder, key = holder[key], _key_of(holder[key], chance)
        _change(holder, key, chance)
    return whole[0]


def _key_of(holder: Any, chance: random.Random) -> Any:
    return (
        chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    )


def _change(holder: Any, key: Any, chance: random.Random) -> None:
    how = chance.random()
    if how < 0.6:
        holder[key] = chance.choice(_HOSTILE)
    elif how < 0.7:
        small = not isinstance(holder[key], dict | list | tuple)
        holder[key] = [holder[key]] * chance.choice((1, 2, 200, 50_000 if small else 20))
    elif how < 0.8 and isinstance(holder[key], str):
        holder[key] = spoil(holder[key].encode("utf-8", "replace"), chance).decode(
            "utf-8", "replace"
        )[:200_000]
    elif how < 0.9 and isinstance(holder, dict):
        del holder[key]
        if not holder or chance.random() < 0.5:
            holder[chance.choice(("", "version", "ranks", "x" * 5000))] = chance.choice(_HOSTILE)
    else:
        holder[key] = _nested(chance.choice((5, 200, 3000)))


def _nested(depth: int) -> Any:
    inner: Any = []
    for _ in range(depth):
        inner = [inner]
    return inner


def spoil_json(data: bytes, chance: random.Random) -> bytes:
    """JSON with places of its tree replaced; what is none, or cannot be written again, is spoilt as
    bytes.
    """
    try:
        return json.dumps(spoil_tree(json.loads(data), chance)).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return spoil(data, chance)
