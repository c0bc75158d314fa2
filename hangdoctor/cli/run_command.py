"""Runs the command of `hangdoctor run` as a child that cannot be told from the command alone.

It has our terminal, session and process group; what is sent to us reaches it; what is sent to the
whole group or job reaches it by itself and is not sent twice; when we are killed it is killed, too;
and we end as it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

_PDEATHSIG = 1
# Those that stop and continue; and SIGPIPE and SIGXFSZ, which look the same whether the kernel or a
# process sends them. A fault of our own ends us although its signal is blocked.
_STOP_AND_GO = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
_NOT_SENT = {signal.SIGKILL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ}
_LEFT_ALONE = _STOP_AND_GO | _NOT_SENT
PASSED_ON = set(signal.valid_signals()) - _LEFT_ALONE
_FROM_A_PROCESS = 0  # si_code of kill(2) and below; the terminal's and the kernel's are above
_ANY_THAT_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
_ORPHANS_S = 1.0  # between two searches for ended processes without another parent
_ECHO_S = 0.1  # how long what goes to all may take to reach the second process


def run(
    program: str, words: Sequence[str], environ: dict[str, str], started: Callable[[int], None]
) -> int:
    """Run CMD to its end; returns its exit code, negative for a signal. `started` gets its pid.

    Raises:
        OSError: it cannot be started.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    # Where the caller ignores it, the kernel would keep no end of a child for us.
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with _Witness() as witness:
            child = _start(program, words, environ, at_end_of_child=before)
            started(child)
            return _wait(child, witness)
    except _NoRoom:
        _as_at_start(at_end_of_child=before)
        become(program, words, environ)
        raise


def end_as(code: int) -> None:
    """End this process with this exit code, or by this signal."""
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's own core is enough
    number = -code
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    time.sleep(1)
    os._exit(128 + number)


_STARTED_WITH = signal.pthread_sigmask(signal.SIG_BLOCK, set())


def _as_at_start(at_end_of_child: Any) -> None:
    signal.signal(signal.SIGCHLD, at_end_of_child)
    signal.pthread_sigmask(signal.SIG_SETMASK, _STARTED_WITH)


class _NoRoom(OSError):
    """No process or no descriptor is left for us beside CMD, which starts in our place then."""


def _fork() -> tuple[int, int, int]:
    """As os.fork, with a pipe from the child: (pid, its read end, its write end).

    Raises:
        _NoRoom: there are as many processes or files as may be.
    """
    ends: tuple[int, ...] = ()
    try:
        ends = os.pipe()
        return os.fork(), *ends
    except OSError as error:
        for end in ends:
            os.close(end)
        raise _NoRoom(error.errno, error.strerror) from error


def _start(
    program: str, words: Sequence[str], environ: dict[str, str], at_end_of_child: Any
) -> int:
    """Start CMD as the shell would have; its pid.

    Raises:
        OSError: it cannot be started.
    """
    me = os.getpid()
    child, read, write = _fork()
    if child == 0:
        try:
            _die_with(me)
            _as_at_start(at_end_of_child)
            become(program, words, environ)
        except OSError as error:
            os.write(write, str(error.errno or errno.ENOEXEC).encode())
        finally:
            os._exit(127)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        said = answers.read()
    if said:
        os.waitpid(child, 0)
        raise OSError(int(said), os.strerror(int(said)), program)
    return child


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


def _die_with(parent: int) -> None:
    """SIGKILL for us when the parent is gone: whoever kills `hangdoctor run` means the job."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _wait(child: int, witness: _Witness) -> int:
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        got = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, _ORPHANS_S)
        if got is None and os.getpid() == 1:
            _reap_orphans({child, witness.pid})
        if got is None or got.si_signo == signal.SIGCHLD:
            continue
        # The terminal sends to the whole group; what is sent to all reached the witness as well.
        if got.si_code <= _FROM_A_PROCESS and not witness.got(got.si_signo):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, got.si_signo)


def _reap_orphans(own: set[int]) -> None:
    """As the first process of a container, take in those whose parents have ended: nothing else does.

    Some time after their end, so that how ranks among them ended has been read.
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, _ANY_THAT_ENDED)) is not None:
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


class _Witness:
    """A process that only notes signals: what reaches it as well was sent to all, and so to CMD."""

    def __init__(self) -> None:
        me = os.getpid()
        self.pid, self._read, write = _fork()
        if self.pid == 0:
            try:
                os.close(self._read)
                _die_with(me)
                while True:
                    os.write(write, bytes([signal.sigwaitinfo(PASSED_ON).si_signo]))
            finally:
                os._exit(0)
        os.close(write)
        self._heard: list[tuple[float, int]] = []

    def got(self, number: int) -> bool:
        """Whether this signal reached it about now."""
        end = time.monotonic() + _ECHO_S
        while True:
            left = end - time.monotonic()
            fresh = [h for h in self._heard if h[0] > end - 2 * _ECHO_S]
            if (match := next((h for h in fresh if h[1] == number), None)) is not None:
                self._heard.remove(match)
                return True
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return False
            data = os.read(self._read, 64)
            if not data:
                return False
            self._heard += [(time.monotonic(), n) for n in data]

    def __enter__(self) -> _Witness:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._read)
