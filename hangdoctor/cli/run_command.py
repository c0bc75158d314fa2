"""Runs the command of `hangdoctor run` as a child that cannot be told from the command alone.

It has our terminal, session and process group; what is sent to us reaches it; what is sent to the
whole group or job reaches it by itself and is not sent twice; when we are killed it is killed, too;
and we end as it ended.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence

from .run_child import PASSED_ON, Child, NoRoom, Place, become, let_go_of_files
from .run_witness import Witness

__all__ = ["PASSED_ON", "become", "end_as", "end_on_signals", "run"]

_OF_TERMINALS = {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGWINCH}
_ASK_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_FROM_A_PROCESS = 0  # si_code of kill(2) and below; the terminal's and the kernel's are above
_ANY_THAT_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
_TICK_S = 0.25  # between two looks when nothing comes
_ORPHANS_S = 1.0  # between two searches for ended processes without another parent


def run(
    program: str, words: Sequence[str], environ: dict[str, str], started: Callable[[int], None]
) -> int:
    """Run CMD to its end; returns its exit code, negative for a signal. `started` gets its pid.

    Raises:
        OSError: it cannot be started.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    place = Place.take()

    def start() -> None:
        place.fill()
        become(program, words, environ)

    try:
        with Child(start) as child, Witness(program, words) as witness:
            # What came before there was a witness: twice for CMD, which is held, is once.
            while (got := signal.sigtimedwait(PASSED_ON, 0)) is not None:
                child.send(got.si_signo)
            child.go()
            let_go_of_files()
            started(child.pid)
            return _wait(child, witness)
    except NoRoom:
        start()
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


def end_on_signals(code: int) -> None:
    """CMD has ended: what is sent from now on, to end us, does so with CMD's exit code."""
    while signal.sigtimedwait(PASSED_ON, 0) is not None:
        pass  # was for CMD
    for number in _ASK_TO_END:
        signal.signal(number, lambda *_: end_as(code))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASK_TO_END)


def _wait(child: Child, witness: Witness) -> int:
    orphans_at = 0.0
    while True:
        found, status = os.waitpid(child.pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        witness.keep()
        if os.getpid() == 1 and time.monotonic() >= orphans_at:
            orphans_at = time.monotonic() + _ORPHANS_S
            _reap_orphans({child.pid, witness.pid})
        got = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, _TICK_S)
        witness.join(child.group_of_its_own() or os.getpgrp())
        if got is None:
            witness.settle()
        elif got.si_signo != signal.SIGCHLD:
            _pass_on(got, child, witness)


def _pass_on(got: signal.struct_siginfo, child: Child, witness: Witness) -> None:
    """Send to CMD what it has not got by itself."""
    if got.si_code <= _FROM_A_PROCESS:
        if not witness.heard(got):
            child.send(got.si_signo)
        return
    # The terminal sends to the whole group.
    group = child.group_of_its_own()
    if group and got.si_signo in _OF_TERMINALS:
        with contextlib.suppress(OSError):
            os.killpg(group, got.si_signo)


def _reap_orphans(own: set[int]) -> None:
    """As the first process of a container, take in those whose parents have ended: nothing else does.

    Some time after their end, so that how ranks among them ended has been read.
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, _ANY_THAT_ENDED)) is not None:
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
