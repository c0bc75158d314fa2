"""Workers that a log names otherwise than by rank: vLLM's, SGLang's and Ray's.

Texts by the formats of their own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

BUSY = """\
{a}ERROR 09-05 21:05:38 [executor.py:596] WorkerProc hit an exception.
{a}ERROR 09-05 21:05:38 [executor.py:596] Traceback (most recent call last):
{a}ERROR 09-05 21:05:38 [executor.py:596]   File "/opt/vllm/v1/worker/gpu_worker.py", line 362, in execute_model
{a}ERROR 09-05 21:05:38 [executor.py:596]     output = self.run(batch)
"""
KNOWN = BUSY + "{a}ERROR 09-05 21:05:38 [executor.py:596] IndexError: too many blocks\n"
PARENT = "(EngineCore_0 pid=268) ERROR 09-05 21:05:39 [executor.py:146] Worker proc VllmWorker-{} died unexpectedly, shutting down executor.\n"
ENGINE = "(EngineCore_DP0 pid=12) ERROR 10-05 21:05:38 [core.py:9] EngineCore hit a fatal error.\n"
LEFT = "(VllmWorker TP{0} pid=40{0}) INFO 09-05 21:05:39 [executor.py:520] Parent process exited, terminating worker\n"


def test_a_place_in_tensor_parallelism_alone_is_the_rank(tmp_path: Path) -> None:
    log = ENGINE + KNOWN.format(a="(VllmWorker TP3 pid=432) ") + PARENT.format(3) + LEFT.format(0)
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("error", [3])] and "IndexError" in verdict.summary


def test_a_worker_that_its_engine_lost(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, PARENT.format(2) + LEFT.format(0) + LEFT.format(1))
    assert named(verdict) == [("dead", [2])]
    verdict = diagnosed(tmp_path, PARENT.format(2))  # which of several engines it is does not show
    assert named(verdict) == [("dead", [])]
    assert verdict.summary.startswith("Worker VllmWorker-2 failed first: its process died")


def test_with_other_axes_only_the_workers_name_is_known(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, KNOWN.format(a="(Worker_DP1_TP0_EP2 pid=432) "))
    assert named(verdict) == [("error", [])]
    assert verdict.summary.startswith("Worker DP1 TP0 (process 432) failed first: IndexError")


def test_one_name_of_two_engines_is_no_rank(tmp_path: Path) -> None:
    log = LEFT.format(3) + KNOWN.format(a="(VllmWorker TP3 pid=432) ")
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("error", [])] and "Worker TP3" in verdict.summary


CUT = """\
[2026-04-23 21:31:41 {0}] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 618, in event_loop_normal
    batch = self.get_next_batch_to_run()
  File "/opt/sglang/srt/managers/schedule_batch.py", line 1138, in prepare_for_extend
    write_pool(
"""


@pytest.mark.parametrize("last", ["", "IndexError: out of pool\n"])
def test_a_message_of_several_lines_is_that_of_its_first(tmp_path: Path, last: str) -> None:
    log = "[2026-04-23 21:31:40 TP5] Decode batch. #running-req: 1\n" + CUT.format("TP2") + last
    verdict = diagnosed(tmp_path, log + "[2026-04-23 21:31:41] Received sigquit\nKilled\n")
    assert named(verdict) == [("error", [2])]
    assert "prepare_for_extend" in verdict.summary
    verdict = diagnosed(tmp_path, CUT.format("DP1 TP2") + last)
    assert named(verdict) == [("error", [])] and "Worker DP1 TP2" in verdict.summary


def test_workers_that_all_report_a_stall_name_none_of_them(tmp_path: Path) -> None:
    log = "".join(
        f"[2026-03-09 00:57:15 TP{n}] Watchdog timeout (self.watchdog_timeout=300)\n"
        for n in (4, 1, 0, 2, 3)
    )
    verdict = diagnosed(
        tmp_path, log + "[2026-03-09 00:57:20] Received sigquit from a child process.\nKilled\n"
    )
    assert (verdict.status, verdict.causes) == ("unknown", [])
    assert "ranks 0-4 for 5 min, and which rank" in verdict.summary


def test_a_rank_that_waits_for_the_others_to_load_is_not_named(tmp_path: Path) -> None:
    error = "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish loading.\n"
    verdict = diagnosed(tmp_path, CUT.format("TP1") + error)
    assert verdict.causes == []


def test_a_scheduler_that_died_with_its_code(tmp_path: Path) -> None:
    log = "[12-16 14:27:08] Rank 3 scheduler is dead. Please check if there are relevant logs.\n[12-16 14:27:10] Exit code: -9\n"
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("dead", [3])] and "SIGKILL" in verdict.summary


DIED = """\
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
{tab}class_name: create_colocated_worker_cls.<locals>.WorkerDict
{tab}actor_id: 9c5f29e1bcd0f4df6b77731602000000
{tab}pid: 1230
{tab}name: g7SufjWorkerDict_1:7
{tab}namespace: b6698e2b-8c31
{tab}ip: 10.0.0.7
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR
"""


@pytest.mark.parametrize("tab", ["\t", "        "])
def test_the_actor_that_ray_names_below(tmp_path: Path, tab: str) -> None:
    verdict = diagnosed(tmp_path, DIED.format(tab=tab))
    assert [(c.kind, c.ranks, c.nodes) for c in verdict.causes] == [("dead", [], ["10.0.0.7"])]
    assert "Worker g7SufjWorkerDict_1:7 (process 1230) on 10.0.0.7" in verdict.summary


def test_the_actor_whose_rank_its_own_lines_tell(tmp_path: Path) -> None:
    line = "(WorkerDict pid=1230, ip=10.0.0.7) [rank15]:[W1 17:05:08.1 init.cpp:9] is ready\n"
    assert named(diagnosed(tmp_path, line + DIED.format(tab="\t"))) == [("dead", [15])]


def test_the_error_below_rays_report_is_its_workers(tmp_path: Path) -> None:
    log = """\
(WorkerDict pid=811, ip=10.0.0.4) [rank9]: step 3
Traceback (most recent call last):
  File "/job/driver.py", line 9, in <module>
    ray.get(refs)
ray.exceptions.RayTaskError(RuntimeError): ray::WorkerDict.step() (pid=811, ip=10.0.0.4, actor_id=9c5f, repr=<w.WorkerDict object at 0x7f>)
  File "/job/worker.py", line 31, in step
    loss.backward()
RuntimeError: shape of the mask is wrong
"""
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("error", [9])] and "RuntimeError in step" in verdict.summary


@pytest.mark.parametrize(
    "line",
    [
        "worker {0} is pid {1}",
        "started rank {0} (pid {1})",
        "worker_{0} on n1 has pid={1}",
        "Process {0}: PID {1}",
    ],
)
def test_the_rank_of_a_process_by_the_programs_own_word(tmp_path: Path, line: str) -> None:
    begin = "".join(line.format(rank, 80 + rank) + "\n" for rank in range(3))
    died = "launch.sh: line 4:    81 Segmentation fault      RANK=$r python enhance.py\n"
    verdict = diagnosed(tmp_path, begin + "step 1 loss 0.5\n" + died)
    plain = diagnosed(tmp_path, "step 1 loss 0.5\n" + died)
    assert [c.ranks for c in plain.causes] == [[]], plain.summary
    assert [c.ranks for c in verdict.causes] == [[1]], verdict.summary
