"""Ranks of one job that look for the store at different ports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.launchers.gather import Gathered, join
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.readers import other_ports
from hangdoctor.readers.capture_options import CaptureOptions
from hangdoctor.readers.discover import Found
from hangdoctor.readers.node import capture_node
from tests.support.stage import free_port

JOB = """
import datetime, torch.distributed as dist
print("joins", flush=True)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
"""


@pytest.mark.torch
@pytest.mark.timeout(150)
def test_the_rank_with_another_port_is_named(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    script = tmp_path / "train.py"
    script.write_text(JOB)
    ranks: list[subprocess.Popen[str]] = []
    for rank in range(3):
        environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[rank == 2])}
        environ |= {"RANK": str(rank), "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
        words = [sys.executable, str(script)]
        ranks.append(
            subprocess.Popen(words, env=os.environ | environ, stdout=subprocess.PIPE, text=True)
        )
    try:
        for process in ranks:
            assert process.stdout is not None and process.stdout.readline() == "joins\n"
        capture = capture_node(CaptureOptions(job=str(ranks[0].pid), timeout_s=60), "n1")
        assert [rank.pid for rank in capture.ranks] == [process.pid for process in ranks]
        [cause] = diagnose(JobCapture(capture.job, [capture], world_size=3)).causes
        assert (cause.kind, cause.ranks) == ("start_stall", [2])
        said = f"Rank 2 (n1, pid {ranks[2].pid}) uses MASTER_PORT {ports[1]}, ranks 0-1 use {ports[0]}."
        assert cause.summary.startswith(said)
        assert "getent" not in cause.advice
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def found(rank: int, port: int, **more: object) -> Found:
    known: dict[str, object] = {"ppid": 50, "world_size": 4, "job": f"127.0.0.1:{port}"}
    known |= {"argv": ["python", "train.py", f"--rank={rank}"], "user": "me"}
    known |= {"local_rank": rank, "local_world_size": 0, "started": 1.0}
    environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return Found(pid=100 + rank, rank=rank, environ=environ, **(known | more))  # type: ignore[arg-type]


def keys(*ranks: Found) -> list[str]:
    groups: dict[tuple[str, str], list[Found]] = {}
    for one in ranks:
        groups.setdefault((one.job, one.user), []).append(one)
    return sorted(key for key, _ in other_ports.joined(groups))


def test_two_jobs_stay_two() -> None:
    a = [found(rank, 29500) for rank in (0, 1, 3)]
    assert keys(*a, found(2, 29501)) == ["127.0.0.1:29500"]
    two = ["127.0.0.1:29500", "127.0.0.1:29501"]
    assert keys(*a, found(1, 29501)) == two, "rank 1 is there twice"
    assert keys(*a, found(2, 29501, ppid=51)) == two, "another launcher"
    assert keys(*a, found(2, 29501, world_size=8)) == two
    assert keys(*a, found(2, 29501, argv=["python", "eval.py"])) == two
    orphans = [found(rank, 29500 + rank, ppid=1) for rank in (0, 1)]
    assert keys(*orphans) == two
    assert keys(found(0, 29500, job="slurm:7.0"), found(1, 29501)) == [
        "127.0.0.1:29501",
        "slurm:7.0",
    ]


def test_nodes_that_look_elsewhere_are_of_one_job_where_their_ranks_complement() -> None:
    def nodes(job: str, *ranks: int) -> dict[str, NodeCapture]:
        first = NodeCapture("n1", "10.0.0.1:29500", [RankCapture(pid=1, rank=0, world_size=4)])
        own = [RankCapture(pid=5 + r, rank=r, world_size=4) for r in ranks]
        return {"n1": first, "n2": NodeCapture("n2", job, own)}

    def together(job: str, *ranks: int) -> list[str]:
        gathered = Gathered(captures=nodes(job, *ranks))
        return [node.node for node in join(gathered, ["n1", "n2"], {}, CaptureOptions()).nodes]

    assert together("10.0.0.9:29500", 2, 3) == ["n1", "n2"]
    assert together("10.0.0.9:29500", 0, 1) == ["n1"]
    assert together("slurm:7.0", 2, 3) == ["n1"]
