"""Bytes of a log in blocks of whole lines: plain, packed, or from standard input."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from ...errors import BadInput
from ...files import open_regular

STDIN = Path("-")
STDIN_NAME = "standard input"  # how it is called, also where its text lies in a file
BLOCK = 1 << 18  # fits the processor's cache, which searches for a dozen texts go through
_EDGE = 1 << 18  # bytes at both ends of a file that are read line by line
_LONGEST = 32 * BLOCK  # a line that is longer is cut
_HEAD = 1 << 16
_Unpack = Callable[[IO[bytes]], IO[bytes]]
_PACKED: dict[bytes, _Unpack] = {
    b"\x1f\x8b": lambda raw: cast(IO[bytes], gzip.GzipFile(fileobj=raw)),
    b"BZh": lambda raw: cast(IO[bytes], bz2.BZ2File(raw)),
    b"\xfd7zXZ": lambda raw: cast(IO[bytes], lzma.LZMAFile(raw)),  # noqa: SIM115
}
_TORN = (EOFError, zlib.error, lzma.LZMAError)


class Block(Struct):
    """Whole lines; `edge`: at the file's beginning or end, where every line is looked at."""

    data: bytes
    edge: bool = False


def opened(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked.

    Raises:
        BadInput: no regular file, or it cannot be read.
    """
    try:
        fd = open_regular(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    raw = os.fdopen(fd, "rb")
    head = raw.read(6)
    raw.seek(0)
    for magic, unpack in _PACKED.items():
        if head.startswith(magic):
            return unpack(raw)
    return raw


def head(path: Path) -> bytes:
    """The first bytes, unpacked; b"" where they cannot be read."""
    try:
        with opened(path) as stream:
            return stream.read(_HEAD)
    except (OSError, BadInput, *_TORN):
        return b""


def is_text(data: bytes) -> bool:
    """Whether bytes may be a log: most are printable, or it is UTF-16."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    odd = sum(data.count(bytes([c])) for c in (*range(7), 14, 15))
    return bool(data) and odd * 50 <= len(data)


def blocks(stream: IO[bytes]) -> Iterator[Block]:
    """The stream as blocks that end with a line; the first and the last are edges.

    A block is held back until the next one is there: only then is it known not to be the last.
    """
    read = _decoding(stream)
    held: bytes | None = None
    done = 0
    for data in _whole_lines(read):
        if held is not None:
            yield from _cut(held, done)
            done += len(held)
        held = data
    if held is not None:
        yield from _tail(held, done)


def _cut(data: bytes, done: int) -> Iterator[Block]:
    """A block that is not the last: of the first one, its beginning is an edge."""
    if done >= _EDGE:
        yield Block(data)
        return
    at = data.find(b"\n", _EDGE - done) + 1 or len(data)
    yield Block(data[:at], edge=True)
    if data[at:]:
        yield Block(data[at:])


def _tail(data: bytes, done: int) -> Iterator[Block]:
    if len(data) <= 2 * _EDGE:
        yield Block(data, edge=True)
        return
    at = data.rfind(b"\n", 0, len(data) - _EDGE) + 1
    if at:
        yield from _cut(data[:at], done)
    yield Block(data[at:], edge=True)


def _decoding(stream: IO[bytes]) -> Iterator[bytes]:
    """Raw pieces; UTF-16 becomes UTF-8. A packed file that is cut gives what it has."""
    import codecs

    decoder: codecs.IncrementalDecoder | None = None
    first = True
    while True:
        try:
            piece = stream.read(BLOCK)
        except _TORN:
            return
        if not piece:
            return
        if first and piece.startswith((b"\xff\xfe", b"\xfe\xff")):
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
        first = False
        yield decoder.decode(piece).encode() if decoder is not None else piece


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        data = rest + piece
        at = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if not at and len(data) < _LONGEST:
            rest = data
            continue
        at = at or len(data)
        yield data[:at]
        rest = data[at:]
    if rest:
        yield rest
