"""A steady job on the lab cluster with its sidecar, as the tests and `benchmarks.sidecar_latency`
break it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hangdoctor.collector.instructions import Position
from hangdoctor.storage.incidents import Incident, Incidents
from hangdoctor.train.faults import outside
from tests.support.lab import LAB, NODES, Cluster, wait_until

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("jobs") / "steady_job.py"
RANK_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MASTER_ADDR": "n1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "PYTHONPATH": str(ROOT),
}


class Watched:
    """`ranks` of `steady_job.py` on four nodes, and a sidecar on the login node unless `own` is
    off.
    """

    def __init__(self, cluster: Cluster, name: str, ranks: int, port: int) -> None:
        self.cluster, self.ranks, self.port = cluster, ranks, port
        self.control = cluster.folder / name
        self.control.mkdir()
        self.folder = cluster.folder / f"{name}-sidecar"
        self.log = cluster.folder / f"{name}-sidecar.log"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.id = ""

    # ----------------------------------------------------------------- begin and end

    def submit(self) -> None:
        """The job alone, as a user without hangdoctor in the script has it."""
        settings = " ".join(
            f"{k}={v}" for k, v in {**RANK_SETTINGS, "MASTER_PORT": str(self.port)}.items()
        )
        script = f"export {settings}\nsrun {sys.executable} {JOB} {self.control}"
        self.id = self.cluster.submit(
            f"-N{NODES}", f"--ntasks-per-node={self.ranks // NODES}", script=script
        )
        self.cluster.wait_state(self.id, "RUNNING")
        wait_until(
            lambda: (
                f"{self.id}.0"
                in self.cluster.login("squeue", "-h", "-s", "-j", self.id, "-o", "%i")
            ),
            "its step runs",
        )

    def submit_with_sidecar(self, config: Path) -> None:
        """By the job script that comes with hangdoctor: the sidecar runs inside the job."""
        environ = {
            **RANK_SETTINGS,
            "MASTER_PORT": str(self.port),
            "BARE": "1",
            "HANGDOCTOR_FOLDER": str(self.folder),
            "HANGDOCTOR_CONFIG": str(config),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.log = self.cluster.folder / "script.out"
        command = [
            "sbatch",
            "--parsable",
            f"-N{NODES}",
            f"--ntasks-per-node={self.ranks // NODES}",
            "--gres=gpu:1",
            "-o",
            str(self.log),
            "--open-mode=append",
            str(ROOT / "scripts/slurm/train_with_hangdoctor.sbatch"),
            sys.executable,
            str(JOB),
            str(self.control),
        ]
        self.id = self.cluster.login(*command, env=environ)
        self.cluster.wait_state(self.id, "RUNNING")

    def sidecar(
        self, *more: str, log: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `hangdoctor sidecar` on the login node."""
        command = [sys.executable, "-m", "hangdoctor", "sidecar", *more]
        with (log or self.log).open("wb") as out:
            process = subprocess.Popen(
                [LAB / "cluster-node", "exec", "login", *command],
                env=self.cluster.env | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def wait_rhythm(self) -> None:
        wait_until(
            lambda: self.said(f"rhythm is known; {self.ranks} ranks"),
            f"the rhythm of {self.ranks} ranks: {self.text()}",
            120,
        )
        wait_until(
            lambda: all((self.control / f"at.{r}").exists() for r in range(self.ranks)),
            "every rank trains",
            60,
        )
        begin = self.at(0)[
            0
        ]  # a few steps more than the first: until then the bound is that of an unknown phase
        wait_until(lambda: self.at(0)[0] > begin + 20, "it goes on", 60)

    def wait_steps(self, number: int) -> None:
        """Until every rank has made so many."""
        every = range(self.ranks)
        wait_until(
            lambda: all((self.control / f"at.{r}").exists() for r in every), "they train", 90
        )
        wait_until(lambda: all(self.at(r)[0] >= number for r in every), f"{number} steps", 60)

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=20)

    # ----------------------------------------------------------------- looking

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def said(self, words: str) -> bool:
        assert all(p.poll() is None for p in self.processes[:1]), self.text()
        return words in self.text()

    def at(self, rank: int) -> tuple[int, str]:
        """(iteration, process as its own node numbers it)."""
        number, pid = (self.control / f"at.{rank}").read_text().split()
        return int(number), pid

    def node_of(self, rank: int) -> str:
        return f"n{rank // (self.ranks // NODES) + 1}"

    def incidents(self) -> list[Incident]:
        if not (self.folder / "incidents" / "index.sqlite").exists():
            return []
        return [i for i in Incidents(self.folder).rows() if i.state == "saved"]

    def positions(self) -> dict[str, Position]:
        """By node, as the collector has kept them."""
        kept = Incidents(self.folder).get("positions")
        assert kept is not None
        return {p.node: p for p in msgspec.json.decode(kept, type=dict[str, Position]).values()}

    def wait_verdict(self, number: int, seconds: float = 60) -> Incident:
        begin = time.monotonic()
        wait_until(
            lambda: len(self.incidents()) >= number, f"incident {number}: {self.text()}", seconds
        )
        found = self.incidents()[number - 1]
        print(f"verdict after {time.monotonic() - begin:.1f} s: {found.summary}")
        return found

    def wait_progress(self) -> None:
        """Until the job has gone on for longer than the watchdog is calm after a stall."""
        begin = self.at(0)[0]
        wait_until(
            lambda: all(self.at(r)[0] > begin + 30 for r in range(self.ranks)),
            f"the job goes on from {begin}",
            120,
        )

    # ----------------------------------------------------------------- breaking

    def seen_from_here(self, rank: int) -> int:
        """The pid that this machine has for the rank."""
        return self.cluster.seen_from_here(self.node_of(rank), int(self.at(rank)[1]))

    def stopped(self, rank: int) -> contextlib.AbstractContextManager[None]:
        """SIGSTOP to the rank for as long as the block lasts."""
        return outside.stopped(self.seen_from_here(rank))

    @contextlib.contextmanager
    def asked(self, fault: str, rank: int) -> Iterator[None]:
        """A fault of `steady_job.py` in one rank, for as long as the block lasts."""
        file = self.control / fault
        file.write_text(str(rank))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
