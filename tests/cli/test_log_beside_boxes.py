"""A job's log and its black boxes together: the report says whether they agree."""

from __future__ import annotations

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import AnyFact, Ended, JobLogs, LogFile, PythonError
from hangdoctor.readers.offline import join_logs


def logs_of(*facts: AnyFact, name: str = "train.log") -> JobLogs:
    return JobLogs(files=[LogFile(name, 9)], facts=list(facts), world_size=4)


def error(rank: int, at: float, says: str = "ValueError: bad shard") -> PythonError:
    return PythonError(rank=rank, at=at, error="ValueError", message="bad shard", says=says, line=7)


def killed(rank: int, at: float, by: str = "hangdoctor run") -> Ended:
    return Ended(rank=rank, at=at, code=-9, by=by, first=True, says="ended by signal 9")


def both(log: JobLogs, boxes: JobLogs) -> Diagnosis:
    join_logs(log, boxes)
    capture = JobCapture("files", [NodeCapture("n1")], world_size=4)
    capture.logs = log
    return diagnose(capture)


def test_a_box_that_names_the_same_rank_agrees() -> None:
    boxes = logs_of(error(2, 10.0), name="n1-7.blackbox")
    [cause] = both(logs_of(error(2, 10.0)), boxes).causes
    assert cause.ranks == [2]
    says = [e.says for e in cause.evidence]
    assert any("The black boxes agree" in text for text in says), says


def test_a_box_that_names_another_rank_contradicts() -> None:
    boxes = logs_of(killed(1, 20.0), name="n1: exit codes")
    found = both(logs_of(error(2, 10.0)), boxes)
    [cause] = found.causes  # a process that was killed did not wait for another's exception
    assert cause.ranks == [1]
    says = [e.says for e in cause.evidence]
    assert any("The log contradicts: by its lines rank 2" in text for text in says), says
    assert any("one names rank 2, the other rank 1" in note for note in found.notes)
    alone = JobCapture("files", [NodeCapture("n1")], world_size=4)
    alone.logs = logs_of(killed(1, 20.0))
    assert cause.confidence < diagnose(alone).causes[0].confidence


def test_a_box_that_was_first_contradicts_the_log() -> None:
    log = logs_of(killed(1, 200.0, by="torchelastic"))
    found = both(log, logs_of(error(2, 10.0), name="n1-7.blackbox"))
    [cause] = found.causes
    says = [e.says for e in cause.evidence]
    assert cause.ranks == [2]
    assert any("The log contradicts: by its lines rank 1" in text for text in says), says


def test_one_of_them_that_names_none_says_nothing() -> None:
    lost = PythonError(rank=0, at=11.0, error="RuntimeError", role="consequence", says="closed")
    found = both(logs_of(error(2, 10.0)), logs_of(lost, name="n1-7.blackbox"))
    [cause] = found.causes
    assert not any("black box" in e.says for e in cause.evidence) and not found.notes
