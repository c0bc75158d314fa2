"""`hangdoctor sidecar` on a real Slurm cluster of four nodes: from the fault to the saved verdict,
without a person.

All seven faults with two ranks a node, and how long each takes, are in
`benchmarks.sidecar_latency`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.storage.incidents import Incidents
from tests.support.lab import NODES, Cluster, running_cluster, wait_until
from tests.support.watched import Watched

pytestmark = [pytest.mark.slurm, pytest.mark.torch]
FAILING = Path(__file__).parents[1] / "readers/job_logs/programs/failing_job.py"
HEALS = """
[actions]
cooldown_s = 1
[[action]]
kind = "signal"
signal = "SIGCONT"
min_confidence = 0.5
[[action]]
kind = "command"
command = ["sh", "-c", "echo \\"$0 $1\\" >> OUT", "{ranks}", "{kind}"]
"""
ACT = """
import sys
from pathlib import Path
from hangdoctor.sidecar import actions
config = actions.load(Path(sys.argv[1]))
verdict = actions.Verdict("id", f"slurm:{sys.argv[2]}.0", "hang", "stopped", "0", ["n1"], 1.0, "", "", {})
print("\\n".join(actions.Actor(config, len(sys.argv) > 3).act(verdict, 0.0)))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as lab:
        yield lab


@pytest.fixture(scope="module")
def watched(cluster: Cluster) -> Iterator[Watched]:
    """A job of one rank a node, with its sidecar on the login node."""
    job = Watched(cluster, "steady", NODES, 29733)
    config = cluster.folder / "hangdoctor.toml"
    config.write_text(HEALS.replace("OUT", str(cluster.folder / "acted")))
    try:
        job.submit()
        job.sidecar("--jobid", job.id, "--folder", str(job.folder), "--config", str(config))
        job.wait_rhythm()
        yield job
    finally:
        job.close()


@pytest.mark.timeout(240)
def test_a_stopped_rank_is_named_and_the_signal_of_the_configuration_continues_it(
    watched: Watched,
) -> None:
    os.kill(watched.seen_from_here(2), signal.SIGSTOP)  # for good: the action ends it
    found = watched.wait_verdict(1)
    assert (found.status, found.kind, found.ranks) == ("hang", "stopped", "2"), found.summary
    wait_until(lambda: bool(watched.incidents()[0].actions), "what the actions said is kept")
    assert "signal: srun exited with code 0" in watched.incidents()[0].actions
    assert (watched.cluster.folder / "acted").read_text() == "2 stopped\n"
    watched.wait_progress()  # no one else has continued it


@pytest.mark.timeout(240)
def test_a_node_that_is_cut_off_and_comes_back(watched: Watched) -> None:
    before = watched.positions()
    with watched.cluster.broken("n4", "blackhole"):
        found = watched.wait_verdict(2)
    assert (found.status, found.kind, found.ranks) == ("hang", "unreachable", "3"), found.summary
    watched.wait_progress()
    wait_until(
        lambda: watched.positions()["n4"].seq > before["n4"].seq + 10,
        "n4 reports again what it has kept",
    )
    assert all((p.received, p.lost) == (p.seq, 0) for p in watched.positions().values())


@pytest.mark.timeout(240)
def test_a_loader_that_brings_nothing(watched: Watched) -> None:
    with watched.asked("loader", 3):
        found = watched.wait_verdict(3)
    assert (found.status, found.ranks) == ("hang", "3"), found.summary
    watched.wait_progress()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "target",
    ["hostfile", *(pytest.param(way, marks=pytest.mark.full) for way in ("pbs", "exec"))],
)
def test_agents_by_ssh_and_by_mpiexec_come_go_and_leave_nothing(
    watched: Watched, target: str
) -> None:
    cluster = watched.cluster
    if not cluster.ssh:
        pytest.skip("needs sshd")
    hosts = cluster.folder / "sidecar-hosts"  # `hosts` is the cluster's own
    hosts.write_text("".join(f"n{n + 1}\n" for n in range(NODES)))
    folder, log = cluster.folder / target, cluster.folder / f"{target}.log"
    where = {
        "hostfile": ["--hostfile", str(hosts)],
        "pbs": ["--pbs"],
        "exec": ["--exec", "ssh -J login {host}", "--hosts", f"n[1-{NODES}]"],
    }[target]
    process = watched.sidecar(
        *where,
        "--folder",
        str(folder),
        "--job",
        f"slurm:{watched.id}",
        log=log,
        env={"PBS_NODEFILE": str(hosts)},
    )
    wait_until(
        lambda: "its agent has connected (4 nodes)" in log.read_text(),
        f"all agents: {log.read_text()}",
        60,
    )
    own = f"--folder {folder}"
    collector = next(p for p in cluster.processes("login", own))
    os.kill(collector, signal.SIGUSR1)
    wait_until(lambda: "saved in" in log.read_text(), f"the capture: {log.read_text()}", 60)
    assert sorted(
        n
        for i in Incidents(folder).rows()
        for n in json.loads((folder / "incidents" / i.id / "diagnosis.json").read_text())["job"][
            "nodes"
        ]
    ) == [
        "n1",
        "n2",
        "n3",
        "n4",
    ]
    # A collector that is killed says nothing to its agents: they see that their ssh has gone.
    os.kill(collector, signal.SIGKILL if target == "pbs" else signal.SIGTERM)
    wait_until(lambda: process.poll() is not None, "the sidecar ends", 30)
    wait_until(
        lambda: not any(cluster.processes(f"n{n + 1}", own) for n in range(NODES)),
        "no agent is left",
        30,
    )


@pytest.mark.timeout(240)
def test_a_killed_rank_and_scancel(watched: Watched) -> None:
    number = len(watched.incidents())
    os.kill(watched.seen_from_here(1), signal.SIGKILL)
    found = watched.wait_verdict(number + 1)
    assert (found.status, found.kind, found.ranks) == ("hang", "dead", "1"), found.summary
    assert number == 3  # one each, and no false alarm between them
    config = watched.cluster.folder / "scancel.toml"
    config.write_text('[[action]]\nkind = "scancel"\n')
    act = [sys.executable, "-c", ACT, str(config), watched.id]
    assert watched.cluster.login(*act, "dry") == f"scancel: would run scancel {watched.id}"
    assert watched.cluster.state(watched.id) == "RUNNING"
    assert watched.cluster.login(*act) == "scancel: scancel exited with code 0"
    wait_until(lambda: watched.processes[0].poll() is not None, "the sidecar ends with its job", 60)
    assert not watched.cluster.processes("n1", "hangdoctor agent")
    wait_until(
        lambda: watched.cluster.login("squeue", "-h", "-s", "-j", watched.id) == "",
        "no step is left in squeue",
        60,
    )


@pytest.mark.timeout(400)
def test_a_crash_is_an_incident_that_names_who_failed_first(cluster: Cluster) -> None:
    """Ranks without a probe on four nodes; one is killed, the others end for it."""
    job = Watched(cluster, "crash", NODES, 29766)
    settings = "OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 MASTER_ADDR=n1 MASTER_PORT=29766"
    rank = "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS STEPS=100000 LIMIT_S=60"
    run = f"bash -c '{rank} exec {sys.executable} {FAILING} healthy'"
    script = f"export {settings}\nsrun {run}"
    job.id = cluster.submit(f"-N{NODES}", "--ntasks-per-node=1", script=script)
    try:
        cluster.wait_state(job.id, "RUNNING")
        wait_until(lambda: "iteration" in said(cluster, job.id), "it trains", 90)
        job.sidecar("--jobid", job.id, "--folder", str(job.folder))
        wait_until(lambda: followed(cluster) == NODES, f"the agents follow it: {job.text()}", 90)
        [victim] = ranks_on(cluster, "n3")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: bool(job.incidents()) or ended(job), "an incident, or the end", 150)
        assert job.incidents(), f"{job.text()}\n{said(cluster, job.id)}\n{cluster.state(job.id)}"
        [found] = job.incidents()
        assert (found.status, found.kind, found.ranks) == ("failed", "dead", "2"), found.summary
        saved = (job.folder / "incidents" / found.id / "diagnosis.json").read_text()
        [cause] = json.loads(saved)["causes"]
        assert cause["nodes"] == ["n3"] and "SIGKILL" in cause["summary"]
        wait_until(lambda: job.processes[0].poll() is not None, "the sidecar ends with its job", 60)
        assert len(job.incidents()) == 1
    finally:
        job.close()
        cluster.login("scancel", job.id, check=False)


def ended(job: Watched) -> bool:
    """Whether its sidecar has gone."""
    return job.processes[0].poll() is not None


def said(cluster: Cluster, job: str) -> str:
    output = cluster.folder / f"job-{job}.out"
    return output.read_text() if output.exists() else ""


def ranks_on(cluster: Cluster, node: str) -> list[int]:
    """Its processes of `failing_job.py`, as seen from here."""
    found = cluster.processes(node, f"{FAILING} healthy")
    return [p for p in found if "python" in Path(f"/proc/{p}/exe").readlink().name]


def followed(cluster: Cluster) -> int:
    """Ranks whose end the agents wait for."""
    count = 0
    for node in (f"n{n + 1}" for n in range(NODES)):
        for agent in cluster.processes(node, "hangdoctor agent"):
            for link in Path(f"/proc/{agent}/fd").iterdir():
                with contextlib.suppress(OSError):
                    count += "pidfd" in str(link.readlink())
    return count


@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_job_script_watches_its_own_job_and_requeues_it(
    cluster: Cluster, watched: Watched, tmp_path: Path
) -> None:
    config = cluster.folder / "requeue.toml"
    config.write_text('[[action]]\nkind = "requeue"\n')
    job = Watched(cluster, "script", NODES, 29755)
    job.submit_with_sidecar(config)
    job.wait_rhythm()
    (job.control / "skip").write_text("1")
    found = job.wait_verdict(1)
    assert (found.status, found.ranks) == ("hang", "1"), found.summary
    wait_until(
        lambda: "Restarts=1" in cluster.login("scontrol", "show", "job", job.id),
        f"it is requeued: {job.text()}",
        60,
    )
    wait_until(lambda: cluster.state(job.id) == "PENDING", "it waits to run again", 60)
    wait_until(
        lambda: not any(cluster.processes(f"n{n + 1}", "hangdoctor") for n in range(NODES)),
        "its sidecar has ended",
        60,
    )
    cluster.login("scancel", job.id)
