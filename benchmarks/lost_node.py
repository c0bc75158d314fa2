"""How long `dump --jobid` takes when one of four lab nodes is lost, for each way to lose it.

    python -m benchmarks.lost_node

Starts the lab cluster (scripts/lab, needs root) with a gloo job whose rank 5 never enters an
all_reduce, breaks its node n3 in turn, and measures from start to verdict with the default deadline
of 20 s. A healthy cluster stands first. The target is 5 s for each of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.progress import say
from tests.support.lab import JOB, NODES, UNDO, Cluster, LabJob, unavailable

ROUNDS = 3
TARGET_S = 5.0


def timed(cluster: Cluster, job: LabJob) -> tuple[float, dict[str, Any]]:
    """(seconds from start to verdict, the diagnosis)."""
    begin = time.perf_counter()
    done = cluster.node("exec", "login", *cluster.dump_command("--json", "-", "--jobid", job.id))
    seconds = time.perf_counter() - begin
    diagnosis: dict[str, Any] = json.loads(done.stdout)
    return seconds, diagnosis


def lost(cluster: Cluster, job: LabJob, fault: str) -> list[float]:
    """Seconds of each round, with n3 broken already; the verdict must name it."""
    taken: list[float] = []
    why = ""
    for _ in range(ROUNDS):
        seconds, diagnosis = timed(cluster, job)
        if [(m["node"], m["ranks"]) for m in diagnosis["missing"]] != [("n3", [4, 5])]:
            raise SystemExit(f"{fault}: wrong: {diagnosis['summary']} {diagnosis['missing']}")
        why = diagnosis["missing"][0]["why"]
        taken.append(seconds)
    print(
        f"{fault:<12} {statistics.median(taken):>6.1f} ({min(taken):.1f} - {max(taken):.1f})   {why}",
        flush=True,
    )
    return taken


def measure(cluster: Cluster, job: LabJob) -> dict[str, list[float]]:
    healthy = [timed(cluster, job)[0] for _ in range(ROUNDS)]
    print(
        f"{'healthy':<12} {statistics.median(healthy):>6.1f} ({min(healthy):.1f} - {max(healthy):.1f})",
        flush=True,
    )
    taken = {}
    for fault in UNDO:
        say(f"n3: {fault}")
        with cluster.broken("n3", fault, job.id):
            taken[fault] = lost(cluster, job, fault)
    say("n3: crash")
    cluster.node("crash", "n3")
    taken["crash"] = lost(cluster, job, "crash")
    return taken


def main() -> None:
    reason = unavailable()
    if reason:
        raise SystemExit(reason)
    cluster = Cluster()
    try:
        say("starting the lab cluster and its job")
        cluster.up()
        job = LabJob(cluster, "job", 2 * NODES)
        settings = (
            "export OMP_NUM_THREADS=1 MASTER_ADDR=n1 MASTER_PORT=29511 GLOO_SOCKET_IFNAME=eth0"
        )
        command = f"srun {sys.executable} {JOB} {job.control}"
        job.id = cluster.submit(
            f"-N{NODES}", "--ntasks-per-node=2", "--gres=gpu:4", script=f"{settings}\n{command}"
        )
        job.hang(5)
        taken = measure(cluster, job)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"a dump took too long: {error}") from error
    finally:
        cluster.down()
    worst = max(statistics.median(seconds) for seconds in taken.values())
    print(
        f"target {TARGET_S:.0f} s for a lost node: {'met' if worst <= TARGET_S else 'MISSED'} ({worst:.1f} s)"
    )
    sys.exit(0 if worst <= TARGET_S else 1)


if __name__ == "__main__":
    main()
