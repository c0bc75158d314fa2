"""Child processes that never outlive the command: in a session of their own, ended as a group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_GRACE_S = 3.0  # between SIGTERM and SIGKILL


def die_with_parent() -> None:
    """Have the kernel end this process when its parent dies, however that dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def environment(**more: str) -> dict[str, str]:
    """This one's, from whose root `benchmarks` and `hangdoctor` are imported."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}


def start(
    words: Sequence[str],
    *,
    env: dict[str, str] | None = None,
    out: IO[Any] | int = subprocess.DEVNULL,
    error: IO[Any] | int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """Start this Python with these words; it ends with us."""
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=error,
        pass_fds=pass_fds,
        start_new_session=own_group,
        preexec_fn=die_with_parent,
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its own session, and all that it has started; wait for its end."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, what)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    # In a call that the driver does not answer it cannot even be killed: it is not waited for.


def how_it_ended(code: int | None) -> str:
    """The exit code or signal, as a person names it."""
    if code is None:
        return "does not end, not even by SIGKILL"
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def last_lines(text: str, characters: int = 400) -> str:
    """The end of what a process has written, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-6:])[-characters:]


def until(moment: float) -> float:
    """Seconds from now to a moment of the monotonic clock, at least 0."""
    return max(0.0, moment - time.monotonic())
