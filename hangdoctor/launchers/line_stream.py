"""One command on one node whose lines are wanted as they come, until it ends or no one wants more."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator, Mapping

from msgspec import Struct

from ..errors import LauncherError
from .remote import Command, _prepare, _signals_held

_SILENT_S = (
    0.2  # after that long without a line, None: whoever listens may have something to look after
)
_END_S = 4.0  # for srun to end its step: the command on the node ends with it
_MAX_LINE = 64 << 10


class Line(Struct, frozen=True):
    """One line of the command, without its line end."""

    text: str
    is_output: bool  # else of standard error


class Stream:
    """A context manager; iterate it for the lines, `None` in between where nothing comes.

    Leaving it ends the command. Its standard input stays open until then, and nothing is written to
    it: what runs on the node may end with it.
    """

    def __init__(self, command: Command, env: Mapping[str, str]) -> None:
        """Start the command.

        Raises:
            LauncherError: it cannot be started on this host.
        """
        with _signals_held() as mask:  # no signal between the start and the block that ends it
            try:
                self._process = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=dict(env),
                    start_new_session=True,
                    preexec_fn=lambda: _prepare(mask),
                )
            except OSError as error:
                raise LauncherError(
                    f"{command.argv[0]} cannot be started: {error.strerror}"
                ) from error
        self.code: int | None = None  # once it has ended by itself

    def __enter__(self) -> Stream:
        return self

    def __iter__(self) -> Iterator[Line | None]:
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        rest = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
        with selectors.DefaultSelector() as selector:
            for fd in rest:
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(_SILENT_S)
                if not ready:
                    yield None
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    *lines, rest[key.fd] = (rest[key.fd] + data).split(b"\n")
                    if not data:
                        selector.unregister(key.fd)
                    if rest[key.fd] and (not data or len(rest[key.fd]) > _MAX_LINE):
                        lines, rest[key.fd] = [*lines, rest[key.fd]], b""
                    for line in lines:
                        yield Line(line.decode(errors="replace"), key.fd == process.stdout.fileno())
        self.code = process.wait()

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for number, patience in ((signal.SIGTERM, _END_S), (signal.SIGKILL, 1.0)):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(patience)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
