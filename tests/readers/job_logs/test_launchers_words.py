"""What launchers and schedulers say of a process that ended: srun, mp.spawn, Lightning, Ray, docker compose, vLLM.

Texts by the formats of their own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import aborted, caught, traceback

SPAWNED = """\
Traceback (most recent call last):
  File "/job/train.py", line 9, in <module>
    mp.spawn(main, nprocs=4)
  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
{first}

-- Process 2 terminated with the following error:
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "/job/train.py", line 4, in main
    raise KeyError("shard")
KeyError: 'shard'
"""


def slurm(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


CANCELLED = "slurmstepd: error: *** STEP 41.0 ON n1 CANCELLED AT 2026-07-09T17:52:24 ***"


def test_srun_names_the_task_that_exited_first(tmp_path: Path) -> None:
    log = slurm(
        "srun: error: n2: task 5: Exited with exit code 255",
        "srun: Terminating StepId=41.0",
        CANCELLED,
        "srun: error: n2: tasks 4,6-7: Terminated",
        "srun: error: n1: tasks 0-3: Terminated",
    )
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("dead", [5])] and verdict.causes[0].nodes == ["n2"]
    assert "exit code 255" in verdict.summary


def test_a_step_that_srun_ended_itself_was_not_cancelled_by_a_person(tmp_path: Path) -> None:
    lost = "RuntimeError: [pair.cc:547] Connection closed by peer [10.0.0.1]:1"
    log = traceback(1, lost) + slurm(
        "srun: error: n2: task 1: Exited with exit code 1",
        CANCELLED,
        "srun: error: n1: task 0: Terminated",
    )
    verdict = diagnosed(tmp_path, log)
    assert (verdict.status, verdict.causes) == ("unknown", [])
    assert "cancelled" not in verdict.summary and "ranks 0-1 lost a connection" in verdict.summary


@pytest.mark.parametrize(
    "first", ["torch.multiprocessing.spawn.ProcessRaisedException: ", "Exception: "]
)
def test_the_process_that_spawn_names_is_the_rank(tmp_path: Path, first: str) -> None:
    verdict = diagnosed(tmp_path, SPAWNED.format(first=first))
    assert named(verdict) == [("error", [2])]
    assert "KeyError in main (train.py:4)" in verdict.summary


@pytest.mark.parametrize(
    ("how", "says"),
    [("exit code 7", "exit code 7"), ("signal SIGSEGV", "SIGSEGV"), ("signal SIGKILL", "SIGKILL")],
)
def test_a_process_that_spawn_lost(tmp_path: Path, how: str, says: str) -> None:
    error = f"torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with {how}\n"
    verdict = diagnosed(tmp_path, SPAWNED.partition("{first}")[0] + error)
    assert named(verdict) == [("dead", [3])] and says in verdict.summary


LIGHTNING = (
    "[rank: 1] Child process with PID 947 terminated with code {}. Forcefully terminating all "
    "other processes to avoid zombies\nrun.sh: line 4:  900 Killed    python train.py\n"
)


@pytest.mark.parametrize(("code", "says"), [(-9, "SIGKILL"), (4, "exit code 4")])
def test_the_child_that_lightning_names(tmp_path: Path, code: int, says: str) -> None:
    verdict = diagnosed(tmp_path, LIGHTNING.format(code))
    assert named(verdict) == [("dead", [1])] and says in verdict.summary


def test_the_kill_after_lightnings_word_is_its_own(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, traceback(1, "ValueError: bad") + LIGHTNING.format(1))
    assert named(verdict) == [("error", [1])]
    log = caught(1) + aborted(1) + LIGHTNING.format(-6)
    assert diagnosed(tmp_path, log).causes == []


def test_ray_lost_a_node(tmp_path: Path) -> None:
    for why in ("because the detector has missed too many heartbeats", "This can happen when a"):
        log = (
            "2026-09-02 12:53:00,741 WARNING worker.py:1829 -- The node with node id: 5ad7 and address: 10.0.0.7 "
            f"and node name: 10.0.0.7 has been marked dead{'. ' if why[0] == 'T' else ' '}{why}\n"
        )
        verdict = diagnosed(tmp_path, log)
        assert [(c.kind, c.nodes) for c in verdict.causes] == [("unreachable", ["10.0.0.7"])]
        assert "Ray lost it" in verdict.summary


VLLM = """\
{a}(EngineCore_DP0 pid=132) Traceback (most recent call last):
{a}(EngineCore_DP0 pid=132)   File "/opt/vllm/v1/core/kv_cache_utils.py", line 623, in check
{a}(EngineCore_DP0 pid=132)     raise ValueError(
{a}(EngineCore_DP0 pid=132) ValueError: No available memory for the cache blocks.
"""
SERVER = """\
{a}(APIServer pid=1) Traceback (most recent call last):
{a}(APIServer pid=1)   File "/opt/vllm/v1/engine/utils.py", line 1010, in wait_for_engine_startup
{a}(APIServer pid=1)     raise RuntimeError(
{a}(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""


@pytest.mark.parametrize("prefix", ["", "qwen-4b  | ", "t=114.62 | stderr | "])
def test_the_engines_error_and_not_the_servers(tmp_path: Path, prefix: str) -> None:
    log = (VLLM + SERVER).format(a=prefix)
    verdict = diagnosed(tmp_path, log)
    assert [c.kind for c in verdict.causes] == ["error"] and "ValueError" in verdict.summary
    assert diagnosed(tmp_path, SERVER.format(a=prefix)).causes == []


def test_containers_whose_tracebacks_are_woven(tmp_path: Path) -> None:
    def lines(name: str, error: str) -> list[str]:
        told = traceback(0, error).replace("[rank0]: ", "").splitlines()
        return [f"{name}  | {line}\n" for line in told]

    lost = "ConnectionResetError: [Errno 104] Connection reset by peer"
    pairs = zip(lines("worker-1", "KeyError: 'x'"), lines("worker-2", lost), strict=True)
    log = "".join(line for pair in pairs for line in pair)
    verdict = diagnosed(tmp_path, log)
    assert [(c.kind, c.nodes) for c in verdict.causes] == [("error", ["worker-1"])]


def test_the_launchers_table_ends_no_traceback(tmp_path: Path) -> None:
    log = (
        "failed (exitcode: 124) local_rank: 0 (pid: 94) of binary: /usr/bin/python\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 263, in launch_agent\n'
        "train.py FAILED\n-----\nFailures:\n[1]:\n  time      : 2026-06-13_18:33:16\n  host      : n1\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : 124 (pid: 95)\n"
    )
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("dead", [0, 1])] and "exit code 124" in verdict.summary
