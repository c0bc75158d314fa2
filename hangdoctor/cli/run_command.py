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

_PDEATHSIG = 1
_LEFT_ALONE = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP,
    signal.SIGSYS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGXCPU, signal.SIGURG, signal.SIGWINCH,
    signal.SIGCONT,
}  # fmt: skip
PASSED_ON = set(signal.valid_signals()) - _LEFT_ALONE
_FROM_A_PROCESS = 0  # si_code of kill(2) and below; the terminal's and the kernel's are above
_ECHO_S = 0.1  # how long what goes to all may take to reach the second process


def run(
    program: str, words: Sequence[str], environ: dict[str, str], started: Callable[[int], None]
) -> int:
    """Run CMD to its end; returns its exit code, negative for a signal. `started` gets its pid.

    Raises:
        OSError: it cannot be started.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    witness = _Witness()
    try:
        child = _start(program, words, environ, before=_mask_at_start())
        started(child)
        return _wait(child, witness)
    finally:
        witness.end()


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


def _mask_at_start() -> set[int]:
    return set(_STARTED_WITH)


_STARTED_WITH = signal.pthread_sigmask(signal.SIG_BLOCK, set())


def _start(program: str, words: Sequence[str], environ: dict[str, str], before: set[int]) -> int:
    """Start CMD as the shell would have; its pid.

    Raises:
        OSError: it cannot be started.
    """
    read, write = os.pipe()
    me = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _die_with(me)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
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
        got = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if got.si_signo == signal.SIGCHLD:
            continue
        # The terminal sends to the whole group; what is sent to all reached the witness as well.
        if got.si_code <= _FROM_A_PROCESS and not witness.got(got.si_signo):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, got.si_signo)


class _Witness:
    """A process that only notes signals: what reaches it as well was sent to all, and so to CMD."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        me = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
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

    def end(self) -> None:
        """Take it away."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._read)
