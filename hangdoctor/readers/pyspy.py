"""Stacks by py-spy (https://github.com/benfred/py-spy), without stopping the process that is read.

`--nonblocking` reads a process's memory while it runs; nothing is attached, so nothing can be left
stopped. The blocking modes attach with ptrace: they are used on request only, on processes none of
whose threads is in uninterruptible I/O, and die with hangdoctor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import BadInput
from ..model.capture import ThreadSample
from . import loaded_modules, memory_access
from .pyspy_frames import parse_json

_ATTEMPTS = 3
_NO_INTERPRETER = "find a python interpreter"  # py-spy says so where it could read nothing, too
_TRACE = "Stack backtrace:"  # py-spy's own
_SHUT_DOWN = "Python has shut down its interpreter, and the process has not ended"
_LOWEST = 19  # nice
_END_S = 1.0  # for py-spy to end after a signal


_running: dict[subprocess.Popen[bytes], bool] = {}  # whether it holds the process that it reads
_dying: list[subprocess.Popen[bytes]] = []


class StackResult(msgspec.Struct):
    """What py-spy gave of one process, or why it gave nothing; `took_s` in seconds."""

    threads: list[ThreadSample]
    error: str = ""
    raw: str = ""
    took_s: float = 0.0
    unread: bool = False  # there was no time for it
    shut_down: bool = False  # the process has had a Python interpreter, and has none any more
    hurried: bool = False  # what the others left of the processors was not enough


def find_pyspy() -> str | None:
    """Path of py-spy: beside this interpreter first (a bare remote shell has no PATH worth the
    name), then PATH.
    """
    # Not Path.home(): a user without an entry in passwd and without HOME, as in containers, has
    # none.
    home = os.environ.get("HOME", "")
    for folder in (
        str(Path(sys.executable).parent),
        sysconfig.get_path("scripts"),
        home and f"{home}/.local/bin",
    ):
        candidate = Path(folder, "py-spy")
        if folder and candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which("py-spy")


_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """A blocking py-spy must not outlive us: its end lets go of the threads that it holds."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def dump(
    pid: int,
    deadline_s: float,
    *,
    blocking: bool = False,
    native: bool = False,
    gentle_s: float = 0.0,
) -> StackResult:
    """Stacks of all Python threads of `pid`, or why there are none. Never raises, never outlasts
    the deadline by much.

    For the first `gentle_s` seconds it takes only what other processes leave of the processors;
    then it is done anew as usual.
    """
    program = find_pyspy()
    if program is None:
        return StackResult([], "py-spy is not installed beside this Python: pip install py-spy")
    command = [program, "dump", "--json", "--locals", "--pid", str(pid)]
    hold = blocking or native
    if native:
        command.append("--native")
    elif not hold:
        command.append("--nonblocking")
    begin = time.monotonic()
    gently = 0 < gentle_s < deadline_s and not hold  # what holds a process must not be slow
    result = _run(command, gentle_s, gentle=True) if gently else None
    hurried = result is not None and result.hurried
    if result is None or hurried or _may_pass(result.error):
        result = _insist(command, begin + deadline_s, hold)
    if _NO_INTERPRETER in result.error:
        _explain_absence(pid, result)
    result.took_s, result.hurried = time.monotonic() - begin, hurried
    return result


def _explain_absence(pid: int, result: StackResult) -> None:
    """Why there is no interpreter: it may not be read, or Python has shut it down, or not yet made it."""
    if memory_access.is_refused(pid):
        result.error = _ALLOW
    elif loaded_modules.are_there(pid):
        result.error, result.shut_down = _SHUT_DOWN, True


def _insist(command: list[str], end: float, hold: bool) -> StackResult:
    """Some attempts until `end`, by the monotonic clock."""
    result = StackResult([], "no time was left to read it")
    for attempt in range(_ATTEMPTS):
        left = end - time.monotonic()
        if left <= 0:
            break
        result = _run(command, left, hold=hold)
        if not _may_pass(result.error):
            break
        time.sleep(0.02 * attempt)
    return result


def _may_pass(error: str) -> bool:
    """A process that runs while it is read can be caught in an inconsistent moment; a second sample
    often works.
    """
    return bool(error) and not any(
        word in error
        for word in (
            "Permission",
            "executable name",
            "find python version",
            "Failed to suspend",
            "deadline",
            "started",
        )
    )


def _run(
    command: list[str], timeout_s: float, hold: bool = False, gentle: bool = False
) -> StackResult:
    before: Callable[[], None] | None = _die_with_parent if hold else None
    try:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=before,
            start_new_session=True,
        )
    except (
        OSError,
        subprocess.SubprocessError,
    ) as error:  # of another architecture, no memory, too many files
        return StackResult([], f"{command[0]} cannot be started: {error}")
    _running[started] = hold
    if gentle:
        _stand_back(started.pid)
    try:
        out, err = started.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        if gentle:
            _let_go(started)
        else:
            _end([(started, hold)])
        why = f"py-spy did not answer within its deadline of {timeout_s:.0f} s"
        return StackResult([], why, hurried=gentle)
    finally:
        _running.pop(started, None)
    if started.returncode != 0:
        return StackResult(
            [], explain(err.decode("utf-8", "replace")), raw=err.decode("utf-8", "replace")
        )
    try:
        dumped = parse_json(out)
    except BadInput as error:
        return StackResult([], str(error))
    return StackResult(dumped, raw=msgspec.json.encode(dumped).decode())


def _stand_back(pid: int) -> None:
    """Let a process that we have started run only where no other one wants to.

    The lowest weight, not SCHED_IDLE: it reads a rank's memory, and what is never scheduled may
    never let go of that.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _LOWEST)
    # Its session is a group of its own to the scheduler, where that makes groups (sched(7), "The
    # autogroup feature").
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_LOWEST))


def end_all() -> None:
    """End every py-spy that runs: the capture was cancelled."""
    _end(list(_running.items()))


def _end(those: list[tuple[subprocess.Popen[bytes], bool]]) -> None:
    """SIGTERM lets a py-spy that holds a process detach; SIGKILL stands behind it, for all that it
    has started.

    One that the kernel itself holds outlives even that: it is left behind, and what it says is not
    waited for.
    """
    if any(holds for _, holds in those):
        _signal([process for process, holds in those if holds], signal.SIGTERM)
    _signal([process for process, _ in those], signal.SIGKILL)
    for process, _ in those:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _signal(those: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    """A signal to each and its children; returns when all have ended, or after a moment."""
    for process in those:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    end = time.monotonic() + _END_S
    for process in those:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, end - time.monotonic()))


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """End one that holds nothing, and do not wait: with the lowest weight it may take long even to
    die.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    _dying[:] = [p for p in (*_dying, process) if p.poll() is None]


REFUSED = "not permitted to read the process"
_ALLOW = (
    f"{REFUSED}: run as its user, and allow ptrace "
    "(sudo sysctl kernel.yama.ptrace_scope=0, or give py-spy CAP_SYS_PTRACE)"
)


def explain(stderr: str) -> str:
    """One line for a person out of py-spy's error: what it was and what to do."""
    text = " ".join(stderr.replace("Error:", "").partition(_TRACE)[0].split())
    if "Permission" in text or "EPERM" in text or "Operation not permitted" in text:
        return _ALLOW
    if "executable name" in text:
        return "the process has ended or is a zombie"
    if "find python version" in text:
        return "not a Python process"
    if "Failed to suspend" in text:
        return "the process cannot be suspended: it is stopped, or a debugger holds it"
    return text[:200] or "py-spy printed nothing"
