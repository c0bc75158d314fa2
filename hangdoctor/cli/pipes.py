"""Standard output and standard error, in one place for all verbs: nothing on them steers the
reader's terminal, and the reader may go away (`| head`).

Only a broken pipe of ours counts, not every other one (of a node, of a socket); click and rich do
not make this difference: they end the program at any of them, with exit code 1.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import click

from ..errors import OutputClosed
from ..text.plain import tame, visible

_STDOUT = 1


class _Output(io.FileIO):
    """Standard output: the reader of the verb has gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise OutputClosed from None


class _Progress(io.FileIO):
    """Standard error: if it has no reader, the text is dropped and the work goes on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


class _Tame(io.TextIOWrapper):
    """Text that cannot steer a terminal, whoever wrote it: also what click, rich and a traceback
    print.
    """

    def write(self, text: str) -> int:
        super().write(tame(text))
        return len(text)


def say(text: str, err: bool = False) -> None:
    """Print one line; `text` may hold anything that a job calls itself, line ends included."""
    click.echo(visible(text), err=err)


def hand_back(frame: str) -> None:
    """Print the framed answer of this node for the host that asked: base64, which no person reads
    (`transport.stdout_frame`).
    """
    sys.stdout.write(frame)
    sys.stdout.flush()


def watch() -> None:
    """From now on output is tame, and a write to standard output without a reader raises
    `OutputClosed`.
    """
    sys.stdout, sys.stderr = _again(sys.stdout, _Output), _again(sys.stderr, _Progress)


def _again(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    """The same stream over a file of this kind; a stream that is none of the interpreter's own is
    left alone.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    file = kind(stream.fileno(), "wb", closefd=False)
    buffer: Any = (
        file if isinstance(stream.buffer, io.FileIO) else io.BufferedWriter(file)
    )  # none under python -u
    return _Tame(
        buffer,
        stream.encoding,
        stream.errors,
        "\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def drop() -> None:
    """Let what is buffered, and whatever else would be written, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """For output with more work after it: a file to write, a verdict as exit code. A missing reader
    does not stop that.
    """
    try:
        yield
        sys.stdout.flush()
    except OutputClosed:
        drop()


def pause(seconds: float) -> None:
    """Sleep, but stop when the reader of standard output has gone: a program that writes
    nothing would not notice.

    Raises:
        OutputClosed: it has gone.
    """
    poll = select.poll()
    poll.register(_STDOUT, 0)  # errors and hang-ups are always reported
    told = sum(event for _, event in poll.poll(seconds * 1000))
    if told & (select.POLLERR | select.POLLHUP):
        raise OutputClosed
    if told:  # no standard output at all
        time.sleep(seconds)
