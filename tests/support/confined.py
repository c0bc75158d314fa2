"""Reading under limits: in a forked process, with so much memory and processor time beside what is
used already.
"""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

from hangdoctor.errors import HangdoctorError


def confined(read: Callable[[], object], megabytes: int = 400, seconds: int = 10) -> str:
    """``read: ...`` or ``refused: ...`` for what came of it; a traceback, a death or a limit fails
    the test.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(read, writing, megabytes, seconds)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status != -signal.SIGXCPU, f"more than {seconds} s of processor time"
    assert status == 0, f"the process ended with {status}: {said}"
    assert said.startswith(("read: ", "refused: ")), said
    return said


def _child(read: Callable[[], object], pipe: int, megabytes: int, seconds: int) -> None:
    """Does not return."""
    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20), resource.RLIM_INFINITY))
        used = int(sum(os.times()[:2])) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.RLIM_INFINITY))
        try:
            said = f"read: {str(read())[:10_000]}"
        except HangdoctorError as error:
            said = f"refused: {error} {error.help}"
        except BaseException:
            said = traceback.format_exc()
        os.write(pipe, said.encode("utf-8", "replace")[:60_000])
    finally:
        os._exit(0)
