"""Workers of inference servers on this host: real processes with the titles of vLLM's and SGLang's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.readers import families
from tests.support.stage import free_port, hangdoctor, wait_until

JOB = Path(__file__).parents[1] / "support" / "jobs" / "served_job.py"

VLLM = ("VLLM::EngineCore", ["VLLM::Worker_TP2#2", "VLLM::Worker_TP1#1", "VLLM::Worker_TP0#0"])
SGLANG = (
    "sglang::server",
    ["sglang::detokenizer", "sglang::scheduler_PP1_TP0#1", "sglang::scheduler_PP0_TP0#0"],
)


@pytest.mark.torch
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("titles", "world"), [(VLLM, 3), pytest.param(SGLANG, 2, marks=pytest.mark.full)]
)
def test_a_worker_that_hangs_is_named(
    titles: tuple[str, list[str]], world: int, tmp_path: Path
) -> None:
    engine, others = titles
    words = [sys.executable, str(JOB), str(tmp_path), str(free_port()), engine, *others]
    job = subprocess.Popen(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)
    try:
        ends = [tmp_path / f"at.{rank}" for rank in range(world)]
        wait_until(lambda: all(end.exists() for end in ends), "all are where they stay", 200)
        # What started an engine has started its workers, too.
        started_by = os.getpid() if "Engine" in engine else job.pid
        flags = ("--local", "--job", f"parent:{started_by}", "--json", "-", "--no-bundle")
        found = json.loads(hangdoctor("dump", *flags, cwd=tmp_path).stdout)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(timeout=20)
    assert (found["status"], found["job"]["world_size"]) == ("hang", world), found
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1], found["summary"]
    assert "load_adapter" in found["causes"][0]["where"]["frame"]
    assert not any("numbered in the order" in note for note in found["notes"])


def test_helpers_beside_them_are_no_ranks() -> None:
    titles = ["sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer", "python"]
    made = [families.Member(n, 1, n, [title], {}) for n, title in enumerate(titles)]
    assert [m.pid for m in families.alike(made, {0, 1, 2, 3})] == [0, 1]
    # One that has not joined is like those that have
    assert [m.pid for m in families.alike(made, {0})] == [0, 1]


def test_workers_of_several_engines_are_one_job(tmp_path: Path) -> None:
    """Each engine has workers of its own; what started all engines started the job."""
    code = "import sys, time\nexec(open(sys.argv[1]).read().split('def load')[0])\nset_title(sys.argv[2])\nprint(flush=True)\ntime.sleep(3600)"
    pad = "x" * 64
    words = [sys.executable, "-c", code, str(JOB), "VLLM::EngineCore_DP0", pad]
    engine = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert engine.stdout is not None and engine.stdout.readline()
        workers = {engine.pid + 1_000_000: engine.pid, engine.pid + 1_000_001: engine.pid}
        assert families.by_starter(workers | {engine.pid: os.getpid()}) == {
            os.getpid(): [*workers, engine.pid]
        }
    finally:
        engine.kill()
        engine.wait(timeout=20)
