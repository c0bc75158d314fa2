"""Standard input as a file, where it is no longer than a paste: stacks, dumps and tables are read from their beginning
and more than once, and only a job's log is read as it comes.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..errors import BadInput
from ..readers.job_logs import STDIN, STDIN_NAME

_PASTE = 8 << 20  # bytes
_PIECE = 1 << 16


@contextmanager
def as_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The paths, with a file in the place of standard input where that is alone and ends soon; it is removed
    afterwards. What is longer is left to be read as it comes, from its beginning.
    """
    if [*paths] != [STDIN]:
        yield [*paths]
        return
    head = _head(sys.stdin.buffer)
    if len(head) > _PASTE:
        whole = io.BufferedReader(_Joined(head, sys.stdin.buffer))
        before, sys.stdin = sys.stdin, io.TextIOWrapper(whole)
        try:
            yield [STDIN]
        finally:
            sys.stdin = before
        return
    with tempfile.TemporaryDirectory(prefix="hangdoctor-") as folder:
        file = Path(folder, STDIN_NAME)
        file.write_bytes(head)
        try:
            yield [file]
        except BadInput as error:
            says, help = (text.replace(f"{folder}/", "") for text in (str(error), error.help))
            raise BadInput(says, help) from error


def _head(stream: IO[bytes]) -> bytes:
    """Up to its end, or a piece more than a paste."""
    pieces: list[bytes] = []
    size = 0
    while size <= _PASTE and (piece := stream.read(_PIECE)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


class _Joined(io.RawIOBase):
    """What was read already, and then the rest of the stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece: bytes | memoryview = self._head[: len(buffer)]
        self._head = self._head[len(piece) :]
        piece = piece or self._rest.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)
