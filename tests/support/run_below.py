"""A command below `hangdoctor run` that says each signal that it gets."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.probe_ranks import ROOT, until

# Without the command line's own second of imports.
PARENT = """
import os, sys
from hangdoctor.cli import run_command
run_command.end_as(run_command.run(sys.argv[1], sys.argv[1:], dict(os.environ), lambda pid: None))
"""
# Says each signal that it gets; no signal ends it but SIGUSR2.
LISTENS = """
import os, signal
every = signal.valid_signals() - {signal.SIGCHLD, signal.SIGCONT}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
print(os.getpid(), flush=True)
number = 0
while number != signal.SIGUSR2:
    number = signal.sigwait(every)
    print(int(number), flush=True)
"""


def below(*words: str, first: str = "") -> list[str]:
    return [sys.executable, "-S", "-c", f"{first}\n{PARENT}", *words]


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def plain_environ(folder: Path) -> dict[str, str]:
    """Little more than a path: nothing of the one who runs the tests."""
    libraries = [p for p in sys.path if p.endswith("site-packages")]
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), *libraries]),
        "HANGDOCTOR_DIR": str(folder),
    }


def pending(pid: int) -> int:
    """The signals that wait for a process, as a mask; 0 for no process."""
    if pid == 0:
        return 0
    text = Path(f"/proc/{pid}/status").read_text().partition("\nShdPnd:")[2]
    return int(text.split()[0], 16)


class Listener:
    """A command below `run` that says what it gets."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""
        self.command = int(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], 30)
            assert ready, "nothing was said within 30 s"
            if not (more := os.read(self.process.stdout.fileno(), 4096)):
                break
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode().strip()

    @property
    def helper(self) -> int:
        """The other child of `run`; 0 while there is none."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return next((int(n) for n in text.split() if int(n) != self.command), 0)

    def send(self, *numbers: int) -> None:
        """To `run` alone."""
        for number in numbers:
            self.process.send_signal(number)

    def rest(self, times: int = 8) -> None:
        """Until the helper has noted what came before, and `run` has slept so often that it is past."""
        until("all is noted", lambda: pending(self.helper) == 0)
        status = Path(f"/proc/{self.process.pid}/status")

        def slept() -> int:
            return int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

        start = slept()
        until("it sleeps", lambda: slept() >= start + times)

    def states(self) -> set[str]:
        pids = (self.process.pid, self.command)
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}


@contextmanager
def listening(environ: dict[str, str], first: str = "", parent: str = "") -> Iterator[Listener]:
    """`first`: code of the command before it listens; `parent`: code of `run` before it starts."""
    process = subprocess.Popen(
        below(*python(f"{first}\n{LISTENS}"), first=parent),
        env=environ,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Listener(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
