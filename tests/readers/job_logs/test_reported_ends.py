"""Ends that another process reports, and errors of which a paste keeps the last line alone."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers.job_logs.kept_values import kept
from tests.support.read_logs import diagnosed, named

RAY = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Lease ID: 01 Worker ID: aa "
    "Node ID: bb Worker IP address: 10.7.0.3 Worker port: 45 Worker PID: 812 Worker exit type: SYSTEM_ERROR Worker exit detail: gone.\n"
)
WORDS = "(Learner pid={}) tide table is corrupted: cannot go on\n"
DRIVER = (
    'Traceback (most recent call last):\n  File "fit.py", line 9, in <module>\n    ray.get(runs)\n'
)
MEMORY = (
    "Memory on the node (IP: 10.7.0.4, ID: ba65) where the task (task ID: d2, name=Learner.step, pid=45, memory used=9.10GB) "
    "was running was 119.2GB / 120.0GB (0.99), which exceeds the memory usage threshold of 0.95.\n"
)
RAISED = """\
[2025-03-02 10:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/engine/loop.py", line 40, in load
    weights[name]
KeyError: 'layers.0.tide'
"""


def test_a_worker_says_why_below_the_report_on_its_end(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, RAY + WORDS.format(812) + DRIVER)
    assert named(verdict) == [("dead", [])] and "Process 812 on 10.7.0.3" in verdict.summary
    assert "it had printed 'tide table is corrupted: cannot go on' (job.log:2)" in verdict.summary


def test_words_of_another_worker_are_not_its_own(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, RAY + WORDS.format(813) + DRIVER)
    assert "Process 812 on 10.7.0.3" in verdict.summary and "printed" not in verdict.summary


def test_the_memory_monitor_of_ray(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, "100%|####| 40/40 [01:00<00:00, 1.50s/it]\n" + MEMORY)
    assert named(verdict) == [("dead", [])] and "lack of memory" in verdict.summary
    assert "Process 45" in verdict.summary and verdict.causes[0].nodes == ["10.7.0.4"]


def test_a_last_line_above_the_whole_of_a_named_process(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, "KeyError: 'layers.0.tide'\n\n" + RAISED)
    assert named(verdict) == [("error", [1])] and verdict.causes[0].confidence <= 0.7
    assert "Rank 1 and 1 more failed alike" in verdict.summary and "in load" in verdict.summary


def test_another_error_above_it_stays_the_first(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, "KeyError: 'layers.1.moon'\n\n" + RAISED)
    assert named(verdict) == [("error", [])] and "moon" in verdict.summary


def test_a_value_keeps_names_of_files_and_not_their_folders() -> None:
    long = (
        "check failed in /srv/build/agent/workspace/main/tide/src/common/ports.cpp:21 for '6' " * 2
    )
    assert kept(long).startswith(
        "check failed in ports.cpp:21 for '6' check failed in ports.cpp:21"
    )
    assert kept("see /srv/build/tide.cpp") == "see /srv/build/tide.cpp"
    assert len(kept("x" * 400)) == 120


SIGQUIT = "[2025-03-02 10:00:06] Received sigquit from a child process. It usually means the child failed.\n"
FLAT = """\
[2025-03-02 10:00:07 TP2] Scheduler hit an exception: Traceback (most recent call last):
File "/srv/engine/loop.py", line 40, in load
weights = read(path)
File "/srv/engine/files.py", line 7, in read
"""
OLD = "(VllmWorkerProcess pid={}) ERROR 03-02 10:00:07 multiproc_worker_utils.py:226] "
HEARTBEAT = "2025-03-02 10:00:07,167 - distributed.scheduler - WARNING - Worker failed to heartbeat for 588s; attempting restart: <WorkerState 'tcp://127.0.0.1:4660', name: 1, status: running>\n"
STREAM = """\
2025-03-02 10:00:09,269 - distributed.worker - ERROR - Worker stream died during communication: tcp://127.0.0.1:4660
Traceback (most recent call last):
  File "/opt/lib/distributed/comm/tcp.py", line 228, in read
    frames = await read_bytes_rw(stream)
tornado.iostream.StreamClosedError: Stream is closed
"""


def test_a_child_had_failed_before_the_first_error(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, SIGQUIT + RAISED)
    assert named(verdict) == [("error", [1])] and verdict.causes[0].confidence <= 0.5
    assert "its parent had seen another one fail before (job.log:1)" in verdict.summary


def test_the_report_on_the_child_that_failed(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, RAISED + SIGQUIT)
    assert "Rank 1 failed first" in verdict.summary
    other = RAISED.replace("TP1", "TP3").replace("line 40", "line 44").replace("tide", "moon")
    assert "Rank 3 failed first" in diagnosed(tmp_path, other + SIGQUIT + RAISED).summary


def test_a_traceback_that_lost_its_indentation(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, FLAT)
    assert named(verdict) == [("error", [2])] and "in read (files.py:7)" in verdict.summary
    verdict = diagnosed(tmp_path, FLAT + "ValueError: no moon\nDone.\n")
    assert "Rank 2 failed first: ValueError in read (files.py:7): no moon" in verdict.summary


def test_the_words_of_a_second_process_before_its_cut_traceback(tmp_path: Path) -> None:
    own = f'{OLD}  File "/opt/e/w.py", line 3, in load\n{OLD}RuntimeError: the tide tables do not fit the moon\n'
    other = OLD + "Exception in worker while processing load: the tide tables do not fit the mo\n"
    verdict = diagnosed(tmp_path, own.format(760, 760) + other.format(762))
    assert "Process 760 and 1 more failed alike" in verdict.summary
    assert "more" not in diagnosed(tmp_path, own.format(760, 760) + other.format(760)).summary


def test_a_worker_without_heartbeat_and_who_lost_it(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, HEARTBEAT + STREAM)
    assert named(verdict) == [("unreachable", [])] and "Worker 1 was lost first" in verdict.summary
    assert "no heartbeat for 588s" in verdict.summary
    verdict = diagnosed(tmp_path, STREAM)
    assert (verdict.status, verdict.causes) == ("unknown", [])


def test_horovodruns_word_on_the_first_that_ended(tmp_path: Path) -> None:
    text = "RuntimeError: Horovod detected that one or more processes exited. The first process to do so was:\nProcess name: n-7[0]\nExit code: 137\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [])] and "Worker n-7[0]" in verdict.summary
    verdict = diagnosed(tmp_path, text.replace("n-7[0]", "3"))
    assert named(verdict) == [("dead", [3])]


def test_watchdogs_that_gave_up_beside_the_only_wait(tmp_path: Path) -> None:
    wait = "[rank2]:[E816 01:09:38.1 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600034 milliseconds before timing out.\n"
    gave_up = "[rank0]:[E816 01:09:38.2 ProcessGroupNCCL.cpp:621] [Rank 0] Some NCCL operations have failed or timed out. Data may be incomplete.\n"
    verdict = diagnosed(tmp_path, wait + gave_up)
    assert verdict.causes == [] and "the watchdog of rank 0 gave up, too" in verdict.summary
    assert "only rank 2 waits" in diagnosed(tmp_path, wait).summary
