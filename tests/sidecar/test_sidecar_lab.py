"""`hangdoctor sidecar` on a real Slurm cluster of four nodes: from the fault to the saved verdict, without a person."""

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
import pytest
from lab import LAB, NODES, Cluster, unavailable, wait_until

from hangdoctor.collector.parts import Position
from hangdoctor.incidents import Incident, Incidents

pytestmark = [pytest.mark.slurm, pytest.mark.torch]
JOB = Path(__file__).with_name("steady_job.py")


class Watched:
    """A job of one rank a node, with its sidecar on the login node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.control = cluster.folder / "steady"
        self.control.mkdir()
        self.folder = cluster.folder / "sidecar"
        self.log = cluster.folder / "sidecar.log"
        script = (
            "export OMP_NUM_THREADS=1 MASTER_ADDR=n1 MASTER_PORT=29733 GLOO_SOCKET_IFNAME=eth0 "
            f"PYTHONPATH={Path(__file__).parents[2]}\nsrun {sys.executable} {JOB} {self.control}"
        )
        self.id = cluster.submit(f"-N{NODES}", "--ntasks-per-node=1", script=script)
        cluster.wait_state(self.id, "RUNNING")
        wait_until(lambda: f"{self.id}.0" in cluster.login("squeue", "-h", "-s", "-j", self.id, "-o", "%i"), "its step runs")
        command = [sys.executable, "-m", "hangdoctor", "sidecar", "--jobid", self.id, "--folder", str(self.folder)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [LAB / "cluster-node", "exec", "login", *command], env=cluster.env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: self.said("rhythm is known; 4 ranks"), "the rhythm of 4 ranks", 100)
        wait_until(lambda: all((self.control / f"at.{r}").exists() for r in range(NODES)), "every rank trains", 60)

    def said(self, words: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return words in self.log.read_text()

    def at(self, rank: int) -> tuple[int, str]:
        """(iteration, process as its own node numbers it)."""
        number, pid = (self.control / f"at.{rank}").read_text().split()
        return int(number), pid

    def incidents(self) -> list[Incident]:
        if not (self.folder / "incidents" / "index.sqlite").exists():
            return []
        return [i for i in Incidents(self.folder).rows() if i.state == "saved"]

    def positions(self) -> dict[str, Position]:
        """By node, as the collector has kept them."""
        kept = Incidents(self.folder).get("positions")
        assert kept is not None
        return {p.node: p for p in msgspec.json.decode(kept, type=dict[str, Position]).values()}

    def wait_verdict(self, number: int) -> Incident:
        begin = time.monotonic()
        wait_until(lambda: len(self.incidents()) >= number, f"incident {number}: {self.log.read_text()}", 60)
        print(f"verdict after {time.monotonic() - begin:.1f} s: {self.incidents()[-1].summary}")
        return self.incidents()[number - 1]

    def wait_progress(self) -> None:
        """Until the job has gone on for longer than the watchdog is calm after a stall."""
        begin = self.at(0)[0]
        wait_until(lambda: all(self.at(r)[0] > begin + 30 for r in range(NODES)), f"the job goes on from {begin}", 90)


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    cluster = Cluster()
    job: Watched | None = None
    try:
        cluster.up()
        if not cluster.netns:
            pytest.skip("the lab's Slurm cluster needs the right to make namespaces")
        job = Watched(cluster)
        yield job
    finally:
        if job is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait(timeout=20)
        cluster.down()


@pytest.mark.timeout(240)
def test_a_stopped_rank(watched: Watched) -> None:
    pid = watched.at(2)[1]
    watched.cluster.node("exec", "n3", "kill", "-STOP", pid)
    found = watched.wait_verdict(1)
    assert (found.status, found.kind, found.ranks) == ("hang", "stopped", "2"), found.summary
    watched.cluster.node("exec", "n3", "kill", "-CONT", pid)
    watched.wait_progress()


@pytest.mark.timeout(240)
def test_a_frozen_node(watched: Watched) -> None:
    watched.cluster.node("freeze", "n2")
    try:
        found = watched.wait_verdict(2)
    finally:
        watched.cluster.node("thaw", "n2")
    assert (found.status, found.kind, found.ranks) == ("hang", "unreachable", "1"), found.summary
    watched.wait_progress()


@pytest.mark.timeout(240)
def test_a_loader_that_brings_nothing(watched: Watched) -> None:
    (watched.control / "loader").write_text("3")
    found = watched.wait_verdict(3)
    assert (found.status, found.ranks) == ("hang", "3"), found.summary
    (watched.control / "loader").unlink()
    watched.wait_progress()


@pytest.mark.timeout(240)
def test_a_node_that_is_cut_off_and_comes_back(watched: Watched) -> None:
    before = watched.positions()
    watched.cluster.node("blackhole", "n4")
    try:
        found = watched.wait_verdict(4)
    finally:
        watched.cluster.node("link-up", "n4")
    assert (found.status, found.kind, found.ranks) == ("hang", "unreachable", "3"), found.summary
    watched.wait_progress()
    wait_until(lambda: watched.positions()["n4"].seq > before["n4"].seq + 10, "n4 reports again what it has kept")
    assert all((p.received, p.lost) == (p.seq, 0) for p in watched.positions().values())


@pytest.mark.timeout(240)
def test_a_skipped_collective_and_the_end(watched: Watched) -> None:
    number = len(watched.incidents())
    (watched.control / "skip").write_text("1")
    found = watched.wait_verdict(number + 1)
    assert (found.status, found.ranks) == ("hang", "1"), found.summary
    assert len(watched.incidents()) == number + 1  # one each, and no false alarm between them
    watched.cluster.login("scancel", watched.id)
    wait_until(lambda: watched.process.poll() is not None, "the sidecar ends with its job", 60)
    assert not watched.cluster.processes("n1", "hangdoctor agent")
