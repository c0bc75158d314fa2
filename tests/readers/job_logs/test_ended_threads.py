"""A thread of a rank that ended by an exception: the process goes on, and may hang for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import Finding, NeverReached
from hangdoctor.diagnosis.findings.log_stories import Quote
from hangdoctor.diagnosis.logs.scene import open_scene
from hangdoctor.diagnosis.logs.threads import add_ended_threads
from hangdoctor.model.log_facts import AnyFact, JobLogs, LogFile, PythonError, Signalled
from tests.support.read_logs import diagnosed, logs_of, named

_PROGRAM = """\
import threading

def write():
    try:
        raise KeyError("missing")
    except KeyError:
        raise OSError(28, "No space left on device")

thread = threading.Thread(target=write, name="hard-examples")
thread.start()
thread.join()
print("not reached" if thread.is_alive() else "the main thread goes on")
"""
HEAD = "step 0 loss 2.82\nstep 10 loss 2.76\n"
AGENT = "W1123 18:49:33.401000 16462 torch/distributed/elastic/agent/server/api.py:753] "
ENDED = f"{AGENT}Received 15 death signal, shutting down workers\n"
OTHER = 'Traceback (most recent call last):\n  File "/app/t.py", line 7, in f\nValueError: bad\n'


@pytest.fixture(scope="module")
def died() -> str:
    """What Python itself prints of a thread that ends by an exception."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "the main thread goes on\n"
    return ran.stderr


def test_all_tracebacks_of_the_thread_have_its_name_and_the_next_has_not(
    tmp_path: Path, died: str
) -> None:
    log = tmp_path / "job.log"
    log.write_text(HEAD + died + "step 11 loss 2.7\n" + OTHER)
    errors = [fact for fact in logs_of(log).facts if isinstance(fact, PythonError)]
    assert [(error.error, error.thread) for error in errors] == [
        ("KeyError", "hard-examples"),
        ("OSError", "hard-examples"),
        ("ValueError", ""),
    ]


def test_it_is_the_first_failure_where_no_progress_follows(tmp_path: Path, died: str) -> None:
    found = diagnosed(tmp_path, HEAD + died.partition("During handling")[0] + ENDED)
    assert (found.status, named(found)) == ("failed", [("error", [])])
    assert found.summary.startswith(
        "Thread 'hard-examples' of a rank (the log does not show which) ended by an exception: KeyError in write"
    )
    assert found.causes[0].confidence == 0.55
    assert "goes on without that thread" in found.causes[0].advice


def test_with_its_rank_it_is_no_surer(tmp_path: Path, died: str) -> None:
    lines = [f"[rank1]: {line}" for line in died.splitlines(keepends=True)]
    found = diagnosed(tmp_path, HEAD + "".join(lines) + ENDED)
    assert named(found) == [("error", [1])]
    assert found.summary.startswith("Thread 'hard-examples' of rank 1 ended by an exception")
    assert found.causes[0].confidence == 0.55


def test_with_progress_after_it_only_what_happened_shows_it(tmp_path: Path, died: str) -> None:
    found = diagnosed(tmp_path, HEAD + died + "step 20 loss 2.80\n" + ENDED)
    assert (found.status, found.causes) == ("unknown", [])
    assert "nothing failed" not in found.summary
    assert "a thread of a rank ended by 'OSError: [Errno 28] No space" in found.summary
    assert "after which the job went on; the last progress in the log is 'step 20" in found.summary
    shown = [
        line.says for line in found.chain if line.says.startswith("thread 'hard-examples' ended")
    ]
    assert any("No space left" in says for says in shown)


def test_nor_is_it_nothing_where_a_signal_met_the_ranks(tmp_path: Path, died: str) -> None:
    met = (
        'Traceback (most recent call last):\n  File "/app/t.py", line 7, in f\nKeyboardInterrupt\n'
    )
    found = diagnosed(tmp_path, HEAD + died + "step 20 loss 2.80\n" + met)
    assert found.status == "unknown"
    assert "before it a thread of a rank ended by 'OSError" in found.summary


def test_a_log_that_stops_after_it_has_a_failure(tmp_path: Path, died: str) -> None:
    found = diagnosed(tmp_path, HEAD + died + "step 20 loss 2.80\n")
    assert "without a clean end, and a thread of a rank ended by 'OSError" in found.summary


@pytest.mark.parametrize("after", [ENDED, "training finished\n"])
def test_nothing_of_a_threads_end_is_a_failure_where_the_job_had_its_own(
    tmp_path: Path, died: str, after: str
) -> None:
    """After the launcher was asked to end, and in a job that came to its end."""
    at_end = ENDED + died if after == ENDED else died + after
    assert diagnosed(tmp_path, HEAD + at_end).causes == []


def test_an_exception_of_a_main_thread_is_named_before_it(tmp_path: Path, died: str) -> None:
    found = diagnosed(tmp_path, HEAD + died + "loading\n" + OTHER + ENDED)
    assert "failed first: ValueError in f (t.py:7): bad" in found.summary


def beside(rank: int, ranks: list[int], facts_before: list[AnyFact]) -> list[object]:
    """What a log adds to a finding of black boxes: a thread of `rank` ended, `ranks` are elsewhere."""
    error = PythonError(rank=rank, line=23, error="OSError", message="no space", thread="writer")
    facts = [*facts_before, error]
    draft = Draft()
    draft.findings = [Finding("not_entered", ranks, NeverReached(None), 0.75)]
    scene = open_scene(JobLogs(files=[LogFile("job.log")], facts=facts), 0)
    add_ended_threads(draft, scene)
    add_ended_threads(draft, scene)
    return [(clue.ranks, clue.fact) for clue in draft.findings[0].clues]


def test_beside_boxes_it_is_evidence_once_where_it_may_be_of_the_rank_that_is_elsewhere() -> None:
    quote = Quote("job.log", 23, "OSError: no space")
    assert beside(-1, [1], []) == [((1,), quote)]
    assert beside(1, [1], []) == [((1,), quote)]
    assert beside(2, [1], []) == []
    assert beside(-1, [1, 2], []) == []
    assert beside(-1, [1], [Signalled(line=2, number=15)]) == []
