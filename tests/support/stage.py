"""Starting and steering `jobs/stage.py`, and running the `hangdoctor` command on it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

JOB = Path(__file__).parent / "jobs" / "stage.py"


def wait_until(
    condition: Callable[[], bool], what: str | Callable[[], str], seconds: float = 60.0
) -> None:
    """Poll a condition under a limit; the failure names what did not come (a callable: asked at
    that time).
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            missed = what if isinstance(what, str) else what()
            raise AssertionError(f"did not come within {seconds:.0f} s: {missed}")
        time.sleep(0.02)


def hangdoctor(
    *args: str,
    cwd: Path,
    code: int | None = 0,
    env: dict[str, str] | None = None,
    timeout: float = 90,
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would; the exit code is checked unless `code` is None."""
    done = subprocess.run(
        [sys.executable, "-m", "hangdoctor", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=env or os.environ.copy(),
    )
    if code is not None and done.returncode != code:
        raise AssertionError(
            f"exit code {done.returncode}, not {code}: {args}\n{done.stdout}\n{done.stderr}"
        )
    return done


def switches(pid: int) -> str:
    """State and context switches of a process's main thread: equal readings mean that it did not
    run.
    """
    try:
        text = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    except OSError:
        return "gone"
    return " ".join(
        line for line in text.splitlines() if line.startswith("State") or "ctxt" in line
    )


_TGKILL = 234 if platform.machine() == "x86_64" else 131


def interrupt(pid: int) -> None:
    """SIGUSR1 to the main thread itself: sent to the process, another thread may take it, and the
    main one sleeps on.
    """
    ctypes.CDLL(None).syscall(_TGKILL, pid, pid, int(signal.SIGUSR1))


class Stage:
    """An 8-rank gloo job under control of a test; a context manager that ends all of its processes."""

    def __init__(
        self,
        folder: Path,
        world: int = 8,
        ranks: Iterable[int] | None = None,
        late: int | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.world = folder, world
        self.port = free_port()
        self.key = f"127.0.0.1:{self.port}"
        self.ranks = list(ranks) if ranks is not None else list(range(world))
        self.late = late
        self.environ = environ or {}
        self.n = 0
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for fifo in ("fifo.read", "fifo.data", "fifo.checkpoint"):
            os.mkfifo(folder / fifo)

    def __enter__(self) -> Stage:
        env = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": str(self.world),
            "OMP_NUM_THREADS": "1",
        }
        env |= self.environ | ({"STAGE_LATE": str(self.late)} if self.late is not None else {})
        for rank in self.ranks:
            with (self.folder / f"log.{rank}").open("wb") as log:
                self.processes[rank] = subprocess.Popen(
                    [sys.executable, str(JOB), str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env
                    | {
                        "RANK": str(rank),
                        "LOCAL_RANK": str(rank),
                        "LOCAL_WORLD_SIZE": str(self.world),
                    },
                    start_new_session=True,
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(
                    process.pid, signal.SIGKILL
                )  # its session: data-loader workers and forked helpers too
        for process in self.processes.values():
            process.wait(timeout=20)

    def pid(self, rank: int) -> int:
        return self.processes[rank].pid

    def marks(self, word: str, n: int | None = None) -> set[int]:
        return {
            int(p.name.rpartition(".")[2])
            for p in self.folder.glob(f"{word}.{self.n if n is None else n}.*")
        }

    def wait_ready(self) -> Stage:
        wait_until(
            lambda: self.marks("done", 0) == set(self.ranks) or self._died(),
            f"all ranks ready in {self.folder}",
            100,
        )
        return self

    def _died(self) -> bool:
        dead = [r for r, p in self.processes.items() if p.poll() not in (None, 0)]
        if dead:
            raise AssertionError(
                f"ranks {dead} died: " + (self.folder / f"log.{dead[0]}").read_text()[-2000:]
            )
        return False

    def play(self, scenario: str, rank: int | str = 3, moving: Iterable[int] = ()) -> None:
        """Start a scenario and return when every rank but `moving` has come to rest in it."""
        self.n += 1
        staging = self.folder / "cmd.tmp"
        staging.write_text(json.dumps({"scenario": scenario, "rank": rank}))
        staging.rename(self.folder / f"cmd.{self.n}")
        wait_until(lambda: self.marks("at") >= set(self.ranks), f"all ranks at {scenario}")
        for r in set(self.ranks) - set(moving):
            self.wait_rest(r)

    def wait_rest(self, rank: int) -> None:
        """Until the rank's main thread has not run for 0.3 s; it then is where the scenario leads
        it.
        """
        last = [switches(self.pid(rank)), time.monotonic()]

        def rests() -> bool:
            now = switches(self.pid(rank))
            if now != last[0]:
                last[:] = [now, time.monotonic()]
            return time.monotonic() - float(last[1]) > 0.3

        wait_until(rests, f"rank {rank} at rest: {last}")

    def release(self, rank: int) -> None:
        interrupt(self.pid(rank))
        self.finish()

    def finish(self) -> None:
        wait_until(
            lambda: self.marks("done") >= set(self.ranks) or self._died(), "scenario finished"
        )

    def children(self, rank: int) -> list[int]:
        text = Path(f"/proc/{self.pid(rank)}/task/{self.pid(rank)}/children").read_text()
        return [int(p) for p in text.split()]

    def dump(self, *more: str) -> dict[str, Any]:
        """The verdict of `hangdoctor dump --local` on this job, as JSON."""
        args = ("dump", "--local", "--job", self.key, "--json", "-", "--no-bundle", *more)
        return dict(json.loads(hangdoctor(*args, cwd=self.folder).stdout))
