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
DRIVER = 'Traceback (most recent call last):\n  File "fit.py", line 9, in <module>\n    ray.get(runs)\n'
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
    long = "check failed in /srv/build/agent/workspace/main/tide/src/common/ports.cpp:21 for '6' " * 2
    assert kept(long).startswith("check failed in ports.cpp:21 for '6' check failed in ports.cpp:21")
    assert kept("see /srv/build/tide.cpp") == "see /srv/build/tide.cpp"
    assert len(kept("x" * 400)) == 120
