"""The command of `hangdoctor run` as a child: started as the shell would have started it in our place."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

_SET_PDEATHSIG, _SET_SUBREAPER, _GET_SUBREAPER = 1, 36, 37  # of prctl(2)
# Those that stop and continue; and SIGPIPE and SIGXFSZ, which look the same whether the kernel or a
# process sends them. A fault of our own ends us although its signal is blocked.
_STOP_AND_GO = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
_NOT_SENT = {signal.SIGKILL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ}
_LEFT_ALONE = _STOP_AND_GO | _NOT_SENT
PASSED_ON = set(signal.valid_signals()) - _LEFT_ALONE
LIBC = ctypes.CDLL(None)  # before any fork
_STARTED_WITH = signal.pthread_sigmask(signal.SIG_BLOCK, set())


class NoRoom(OSError):
    """No process or no descriptor is left for us beside CMD, which starts in our place then."""


def fork() -> tuple[int, int, int]:
    """As os.fork, with a pipe from the child: (pid, its read end, its write end).

    Raises:
        NoRoom: there are as many processes or files as may be.
    """
    read, write = _pipe()
    try:
        with warnings.catch_warnings():  # about threads: what is forked only calls the system
            warnings.simplefilter("ignore")
            return os.fork(), read, write
    except OSError as error:
        os.close(read)
        os.close(write)
        raise NoRoom(error.errno, error.strerror) from error


def _pipe() -> tuple[int, int]:
    try:
        return os.pipe()
    except OSError as error:
        raise NoRoom(error.errno, error.strerror) from error


def die_with(parent: int) -> None:
    """SIGKILL for us when the parent is gone: whoever kills `hangdoctor run` means the job."""
    with contextlib.suppress(AttributeError):
        LIBC.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


class Place(NamedTuple):
    """What CMD would have in our place, and a child does not have by itself."""

    at_end_of_child: Any
    alarm: tuple[float, float]  # `perl -e 'alarm 60; exec ...'`: seconds left, interval
    adopts: bool  # orphans below it become its children

    @classmethod
    def take(cls) -> Place:
        """Ours, which is put aside."""
        # Where the caller ignores it, the kernel would keep no end of a child for us.
        at_end_of_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        adopts = ctypes.c_int(0)
        with contextlib.suppress(AttributeError):
            LIBC.prctl(_GET_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
        alarm = signal.setitimer(signal.ITIMER_REAL, 0)
        return cls(at_end_of_child, alarm, bool(adopts.value))

    def fill(self) -> None:
        """For this process, which becomes CMD; a signal that waits does what it would do to CMD."""
        for number in PASSED_ON:
            if callable(signal.getsignal(number)):  # Python's own, of SIGINT
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, self.at_end_of_child)
        if self.adopts:
            LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        signal.setitimer(signal.ITIMER_REAL, *self.alarm)
        signal.pthread_sigmask(signal.SIG_SETMASK, _STARTED_WITH)


class Child:
    """A process that waits, with all signals blocked, until `go` lets it `start`, which does not
    return.

    Raises:
        NoRoom: there is no process or descriptor for it.
    """

    def __init__(self, start: Callable[[], None]) -> None:
        me = os.getpid()
        held, self._gate = _pipe()
        try:
            self.pid, self._answer, answer = fork()
        except NoRoom:
            os.close(held)
            os.close(self._gate)
            raise
        if self.pid == 0:
            os.close(self._gate)
            _start(start, held, answer, parent=me)
        os.close(held)
        os.close(answer)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._gate >= 0:  # it never started
            os.close(self._gate)
            os.close(self._answer)
            os.waitpid(self.pid, 0)

    def go(self) -> None:
        """Let it start.

        Raises:
            OSError: it cannot.
        """
        os.write(self._gate, b"g")
        os.close(self._gate)
        self._gate = -1
        with os.fdopen(self._answer, "rb") as answers:
            said = answers.read()
        if said:
            os.waitpid(self.pid, 0)
            raise OSError(int(said), os.strerror(int(said)))

    def send(self, number: int) -> None:
        """A signal for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def group_of_its_own(self) -> int:
        """The process group that it made for itself where it would have kept ours in our place, as
        `timeout` does: what is sent to our group would be for it; 0 where there is none.
        """
        with contextlib.suppress(ProcessLookupError):
            ours = os.getpgrp()
            leads = ours == os.getpid() and os.getsid(self.pid) == os.getsid(0)
            group = os.getpgid(self.pid)
            if leads and group != ours:
                return group
        return 0


def _start(start: Callable[[], None], held: int, answer: int, parent: int) -> NoReturn:
    try:
        die_with(parent)
        if os.read(held, 1):
            start()
    except OSError as error:
        os.write(answer, str(error.errno or errno.ENOEXEC).encode())
    finally:
        os._exit(127)


def become(program: str, words: Sequence[str], environ: dict[str, str]) -> None:
    """Replace this process by CMD, as the shell would have started it.

    Raises:
        OSError: it cannot be started.
    """
    # Python ignores these two, and ignored signals stay ignored in the next program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, list(words), environ)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve(
            "/bin/sh", ["/bin/sh", program, *words[1:]], environ
        )  # a script without a first line, as execvp(3)


def let_go_of_files() -> None:
    """Close what is CMD's: who waits for the end of a pipe or for a lock waits for CMD alone.

    Standard error stays, for the line at the end.
    """
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in (0, 1):
            with contextlib.suppress(OSError):
                os.fstat(number)  # else our caller has closed it, and another may have the number
                os.dup2(nothing, number, inheritable=False)
        os.close(nothing)
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))
