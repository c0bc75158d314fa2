"""How much longer `dump --jobid` takes than a bare step: four lab nodes, two torch ranks each.

    python -m benchmarks.slurm_latency

Starts the lab cluster (scripts/lab, needs root), a gloo job whose rank 5 never enters an
all_reduce, and then measures in turn: one `srun ... true`, four of them at once, and `dump --jobid
J --settle 0` from start to verdict. The target is at most 2 s over the bare step beside it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.progress import say
from tests.support.lab import JOB, LAB, NODES, Cluster, LabJob, unavailable

ROUNDS = 9
TARGET_S = 2.0


def timed(cluster: Cluster, commands: Sequence[Sequence[str]]) -> tuple[float, str]:
    """(seconds from the first start to the last end, standard output of the first)."""
    begin = time.perf_counter()
    running = [
        subprocess.Popen(
            [LAB / "cluster-node", "exec", "login", *command],
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for command in commands
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit(f"failed: {commands[0]}")
    return time.perf_counter() - begin, outputs[0]


def step(job: str, node: int) -> list[str]:
    """The bare step that a dump is compared with."""
    return [
        "srun",
        f"--jobid={job}",
        "--overlap",
        "--gres=gpu:0",
        "-w",
        f"n{node}",
        "-N1",
        "-n1",
        "true",
    ]


def measure(cluster: Cluster, job: LabJob) -> dict[str, list[float]]:
    """Seconds of each way, in turns."""
    taken: dict[str, list[float]] = {"one": [], "four": [], "dump": [], "capture": []}
    for i in range(ROUNDS):
        say(f"round {i + 1} of {ROUNDS}")
        taken["one"].append(timed(cluster, [step(job.id, 1)])[0])
        taken["four"].append(timed(cluster, [step(job.id, n + 1) for n in range(NODES)])[0])
        seconds, output = timed(
            cluster, [cluster.dump_command("--settle", "0", "--json", "-", "--jobid", job.id)]
        )
        diagnosis = json.loads(output)
        if [c["ranks"] for c in diagnosis["causes"]] != [[5]]:
            raise SystemExit(f"wrong verdict: {diagnosis['summary']}")
        taken["dump"].append(seconds)
        taken["capture"].append(diagnosis["took"]["capture_s"])
    return taken


def show(taken: dict[str, list[float]]) -> bool:
    """Print the table; True where the target is met."""
    names = {
        "one": "srun ... true, one node",
        "four": "srun ... true, four at once",
        "dump": "dump --jobid, to the verdict",
        "capture": "  of it the capture",
    }
    print(f"{'seconds, ' + str(ROUNDS) + ' rounds':<32} {'median':>8} {'min':>8} {'max':>8}")
    for key, values in taken.items():
        print(
            f"{names[key]:<32} {statistics.median(values):>8.2f} {min(values):>8.2f} {max(values):>8.2f}"
        )
    over = statistics.median(d - s for d, s in zip(taken["dump"], taken["one"], strict=True))
    print(
        f"{'over the bare step beside it':<32} {over:>8.2f}   target {TARGET_S:.1f}: {'met' if over <= TARGET_S else 'MISSED'}"
    )
    return over <= TARGET_S


def main() -> None:
    """Start the lab, measure, and print the medians."""
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
        job.id = cluster.submit(
            f"-N{NODES}",
            "--ntasks-per-node=2",
            "--gres=gpu:4",
            script=f"{settings}\nsrun {sys.executable} {JOB} {job.control}",
        )
        job.hang(5)
        met = show(measure(cluster, job))
    finally:
        cluster.down()
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
