"""One bounded command per node, all at once, each in a process group of its own with SIGKILL behind
it.

A single step over all nodes dies with its worst node and takes the healthy reports along, so every
launcher starts one command a node. Nothing that is started here outlives `run_all`, whatever ends
it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ..errors import LauncherError
from ..text.plural import count
from ..text.ranges import format_hosts
from ..transport.stdout_frame import END, HERE
from . import whole_trees
from .base import Progress
from .lost_nodes import Standing, Watch

MAX_OPEN = 256  # commands at one time: two pipes each, under the usual limit of 1,024 open files
MAX_YOUNG = (
    64  # of them, started within the last seconds: what a scheduler's controller is asked at once
)
_YOUNG_S = 3.0  # a silent node does not keep the others waiting for their turn
_LINGER_S = 1.0  # for a command to end by itself once its report is whole
_MAX_OUTPUT = 128 << 20  # bytes of one node, compressed and in base64: more is not a report
_MAX_ERRORS = 64 << 10
_SLOW_S = 3.0  # after that long the user is shown which nodes have not answered yet

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Command(Struct, frozen=True):
    """What to run for one node; `node` is the name that the launcher knows it by."""

    node: str
    argv: list[str]


class Outcome(Struct):
    """What came back from one node. `code` is None where the command was killed at the deadline."""

    node: str
    output: str = ""
    errors: str = ""
    code: int | None = None
    took_s: float = 0.0
    whole: float = 0.0  # time.monotonic() when its end marker came
    started_s: float | None = None  # when its agent said that it runs
    lost: str = ""  # why it was not waited for until the deadline

    @property
    def reported(self) -> bool:
        """True where the end marker of a report came; exit codes prove nothing."""
        return END in self.output


class _Running:
    """One command under way."""

    def __init__(self, command: Command, process: subprocess.Popen[bytes]) -> None:
        self.node = command.node
        self.process = process
        self.begin = time.monotonic()
        self.output = bytearray()
        self.errors = bytearray()
        self.open_pipes = 2
        self.whole_at = 0.0  # when the end marker came
        self.here_at = 0.0  # when the agent said that it runs

    def add(self, data: bytes, is_output: bool) -> None:
        if not is_output:
            self.errors += data[: _MAX_ERRORS - len(self.errors)]
            return
        before = max(0, len(self.output) - max(len(END), len(HERE)))
        self.output += data
        if not self.whole_at and self.output.find(END.encode(), before) >= 0:
            self.whole_at = time.monotonic()
        if not self.here_at and (self.whole_at or self.output.find(HERE.encode(), before) >= 0):
            self.here_at = time.monotonic()

    def standing(self, now: float) -> Standing:
        """How far it is, for who decides which node is lost."""
        started = self.here_at - self.begin if self.here_at else None
        reported = self.whole_at - self.begin if self.whole_at else None
        return Standing(self.node, now - self.begin, started, reported)

    def kill(self) -> None:
        """SIGKILL to all of it: a srun that waits for a dead node takes seconds to obey
        SIGTERM.
        """
        whole_trees.kill(self.process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(
                timeout=1.0
            )  # longer only in uninterruptible I/O, and then no one can help

    def outcome(self, code: int | None, lost: str = "") -> Outcome:
        return Outcome(
            self.node,
            self.output.decode(errors="replace"),
            self.errors.decode(errors="replace"),
            code,
            took_s=round(time.monotonic() - self.begin, 3),
            whole=self.whole_at,
            started_s=self.here_at - self.begin if self.here_at else None,
            lost=lost,
        )


def run_all(
    commands: Sequence[Command],
    deadline: float,
    env: Mapping[str, str],
    progress: Progress = lambda text: None,
    *,
    watch: Watch | None = None,
) -> list[Outcome]:
    """Run every command until it ends or `deadline` (of time.monotonic) has come; outcomes in the
    order of `commands`.

    With a `watch`, nodes that it gives up are not waited for: `Outcome.lost` says why.

    Raises:
        LauncherError: the program cannot be started on this host.
    """
    fleet = _Fleet(list(commands), deadline, env, progress)
    fleet.watch = watch
    try:
        fleet.run()
    finally:
        fleet.close()
    return [
        fleet.done.get(c.node)
        or Outcome(c.node, errors="not asked: the time was over before its turn")
        for c in commands
    ]


class _Fleet:
    def __init__(
        self, waiting: list[Command], deadline: float, env: Mapping[str, str], progress: Progress
    ) -> None:
        self.waiting = waiting[::-1]
        self.deadline = deadline
        self.env = env
        self.progress = progress
        self.total = len(waiting)
        self.running: list[_Running] = []
        self.done: dict[str, Outcome] = {}
        self.selector = selectors.DefaultSelector()
        self.begin = time.monotonic()
        self.told = False
        self.watch: Watch | None = None

    def run(self) -> None:
        while (self.waiting or self.running) and time.monotonic() < self.deadline:
            self._start_some()
            self._read(min(0.2, max(0.0, self.deadline - time.monotonic())))
            self._reap()
            self._give_up()
            self._tell()

    def _start_some(self) -> None:
        now = time.monotonic()
        young = sum(now - r.begin < _YOUNG_S for r in self.running)
        while self.waiting and young < MAX_YOUNG and len(self.running) < MAX_OPEN:
            self._start(self.waiting.pop())
            young += 1

    def _start(self, command: Command) -> None:
        # A signal between the start and the entry in our books would leave the command behind.
        with _signals_held() as mask:
            try:
                process = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=dict(self.env),
                    start_new_session=True,
                    preexec_fn=lambda: _prepare(mask),
                )
            except OSError as error:
                raise LauncherError(
                    f"{command.argv[0]} cannot be started: {error.strerror}"
                ) from error
            one = _Running(command, process)
            self.running.append(one)
        for pipe, is_output in ((process.stdout, True), (process.stderr, False)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, (one, is_output))

    def _read(self, patience: float) -> None:
        for key, _ in self.selector.select(patience):
            one, is_output = key.data
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            one.add(data, is_output)
            if not data:
                self.selector.unregister(key.fileobj)
                one.open_pipes -= 1
            elif len(one.output) > _MAX_OUTPUT:
                self._finish(one, None)

    def _reap(self) -> None:
        now = time.monotonic()
        for one in list(self.running):
            if one.open_pipes == 0:
                # Both pipes at their end: the command is over, or as good as.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._finish(one, one.process.wait(timeout=0.05))
            elif one.whole_at and now - one.whole_at > _LINGER_S:
                self._finish(one, None)
            elif one.process.poll() is not None and now - one.begin > _YOUNG_S:
                self._finish(one, one.process.returncode)  # a grandchild holds the pipes open

    def _give_up(self) -> None:
        """End the commands of nodes that are lost."""
        if self.watch is None or self.waiting or not self.running:
            return
        now = time.monotonic()
        over = [Standing(o.node, o.took_s, o.started_s, o.took_s) for o in self.done.values()]
        lost = self.watch.lost([*over, *(r.standing(now) for r in self.running)])
        for one in [r for r in self.running if r.node in lost]:
            self._finish(one, None, lost[one.node])

    def _finish(self, one: _Running, code: int | None, lost: str = "") -> None:
        if one not in self.running:
            return
        self.running.remove(one)
        for pipe in (one.process.stdout, one.process.stderr):
            if pipe is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self.selector.unregister(pipe)
                pipe.close()
        one.kill()
        self.done[one.node] = one.outcome(code, lost)

    def _tell(self) -> None:
        if self.told or time.monotonic() - self.begin < _SLOW_S or not self.running:
            return
        self.told = True
        left = self.deadline - time.monotonic()
        late = [r.node for r in self.running if not r.whole_at] + [c.node for c in self.waiting]
        if late:
            answered = f"{self.total - len(late)} of {count(self.total, 'node')} have answered"
            self.progress(f"{answered}; waiting up to {left:.0f} s for {format_hosts(late)}")

    def close(self) -> None:
        """End what is left; a second Ctrl-C does not cut it short."""
        with _signals_held():
            for one in self.running:
                whole_trees.kill(one.process)
            for one in list(self.running):
                self._finish(one, None)
            self.selector.close()


@contextlib.contextmanager
def _signals_held() -> Iterator[set[int]]:
    """Hold SIGINT and SIGTERM back; yields the mask to give to children, which must not inherit
    ours.
    """
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield {int(s) for s in old}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _prepare(mask: set[int]) -> None:
    """Runs in the child: should hangdoctor itself be killed, the command goes too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def query(argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Outcome:
    """One short command on this host, such as squeue; `code` is None where it did not end in time.

    Raises:
        LauncherError: the program is not there.
    """
    return run_all([Command(argv[0], list(argv))], time.monotonic() + timeout_s, env)[0]
