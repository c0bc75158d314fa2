"""`preflight --collectives` on a Slurm cluster of namespaces: a link that is dead and a node whose
network is slow are named; a busy node takes no part; nothing stays behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.lab import LAB, NODES, Cluster, running_cluster, wait_until

# 16 kB in a tenth of a second: a hundred times slower than a pair here at a load of 30.
SLOW = "tc qdisc add dev eth0 root tbf rate 2mbit burst 16kbit latency 400ms"
# Frames for n3 go to a network card that does not exist: silence, no error.
DEAD = "ip neigh replace 10.77.0.3 lladdr 02:77:00:00:00:99 dev eth0 nud permanent"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Nodes of their own: the tests of other modules run ranks on theirs."""
    with running_cluster() as lab:
        yield lab


def start(cluster: Cluster, *flags: str) -> subprocess.Popen[str]:
    home = cluster.folder / "home-of-preflight"
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hangdoctor", "preflight", "--collectives", "--timeout", "3"]
    return subprocess.Popen(
        [f"{LAB}/cluster-node", "exec", "login", *command, *flags],
        env=cluster.env | {"HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def servers(cluster: Cluster) -> list[int]:
    """Processes of ours on the nodes, ranks among them."""
    found = []
    for number in range(1, NODES + 1):
        found += list(cluster.processes(f"n{number}", "preflight --serve"))
    return found


@pytest.mark.full
def test_a_dead_link_and_a_slow_node_are_named(cluster: Cluster) -> None:
    job = cluster.submit(f"-N{NODES}", "--ntasks-per-node=1", script="sleep 600")
    cluster.wait_state(job, "RUNNING")
    cluster.node("exec", "n1", *DEAD.split())
    cluster.node("exec", "n4", *SLOW.split())
    flags = ("--sizes", "4k,16k", "--slow-below", "10", "--collective-timeout", "6")
    try:
        out, errors = start(cluster, "--jobid", job, *flags, "--json", "-").communicate(timeout=110)
    finally:
        cluster.node("exec", "n1", "ip", "neigh", "flush", "all")
        cluster.node("exec", "n4", "tc", "qdisc", "del", "dev", "eth0", "root")
    found = json.loads(out)
    data = found["collectives"]
    named = [(c["kind"], c["units"], c["status"]) for c in data["culprits"]]
    assert named == [("node", ["n4"], "slow"), ("link", ["n1", "n3"], "failed")], errors
    assert data["exclude"] == "n[3-4]" and data["backend"] == "gloo" and data["left_out"] == {}
    assert [d["error"] for d in data["devices"]] == [""] * NODES
    [link] = [f for f in found["findings"] if f["check"] == "link n1-n3"]
    assert link["verdict"] == "fail" and "sbatch --exclude=n3" in link["advice"]
    good = [t for t in data["tests"] if t["status"] == "ok"]
    assert good and all(t["speeds"]["16384"] > 0 for t in good)
    wait_until(lambda: servers(cluster) == [], "no process of ours is left")
    kept = (cluster.folder / "home-of-preflight/.hangdoctor/preflight.jsonl").read_text()
    assert len(json.loads(kept)["faults"]) == 2
    cluster.login("scancel", job)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_busy_node_takes_no_part_and_nothing_stays_behind(
    cluster: Cluster, number: signal.Signals
) -> None:
    hosts = cluster.folder / "hosts-of-preflight"
    hosts.write_text("n1\nn2\nn3\n")
    rank = ("env", "RANK=0", "WORLD_SIZE=1", "MASTER_PORT=1", sys.executable, "-c")
    program = "print(flush=True); import time; time.sleep(600)"
    busy = subprocess.Popen(
        [f"{LAB}/cluster-node", "exec", "n1", *rank, program],
        env=cluster.env,
        stdout=subprocess.PIPE,
    )
    # n2 and n3 cannot reach each other: their test lasts until it is ended.
    cluster.node("exec", "n2", *DEAD.split())
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        own = start(cluster, "--hostfile", str(hosts), "--collective-timeout", "100")
        assert own.stderr is not None
        said = []
        for line in own.stderr:
            said.append(line)
            if "pairs: " in line:
                break
        assert said[-1] == "hangdoctor: pairs: n[2-3]\n", said
        wait_until(lambda: len(servers(cluster)) > 2, "ranks are at work")
        [here] = [p for p in cluster.processes("login", "preflight --collectives")]
        os.kill(here, number)
        out, errors = own.communicate(timeout=60)
        wait_until(lambda: servers(cluster) == [], "no process of ours is left")
        assert not cluster.processes("login", "ssh -o")
        assert busy.poll() is None
        assert "Traceback" not in errors and out == ""
    finally:
        cluster.node("exec", "n2", "ip", "neigh", "flush", "all")
        for pid in cluster.processes("n1", program):
            os.kill(pid, signal.SIGKILL)
        busy.communicate()
