"""Jobs that were started again in one folder."""

from __future__ import annotations

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import ended_ranks, ended_starts
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.ended_operations import as_at_the_limit
from tests.support.ended_boxes import LOST, column, ended, left

OWN = "ValueError\nflaky"


def again(later_s: float, *said: str) -> tuple[list[Contents], list[ProcessEnd]]:
    """A start so much later, with what its ranks raised; its processes have other numbers."""
    boxes, ends = [], []
    for rank, text in enumerate(said):
        at = 1010.0 + later_s + rank / 10
        contents = left(rank, at if text else 0.0, text)
        contents.box.created_s += later_s
        contents.box.heartbeat_s += later_s
        contents.box.pid += int(later_s)
        end = ended(rank, 1 if text else -15, at + 0.5)
        end.pid, end.began = contents.box.pid, 1000.0 + later_s
        boxes.append(contents)
        ends.append(end)
    return boxes, ends


def verdict(boxes: list[Contents], ends: list[ProcessEnd]) -> Diagnosis:
    starts = ended_starts.by_start(boxes)
    logs = ended_ranks.facts_of(starts[-1], ends)
    assert logs is not None
    as_at_the_limit(starts[-1], logs)
    ended_starts.add_earlier(logs, starts[:-1], ends)
    ranks = [
        RankCapture(pid=c.box.pid, rank=c.ops.rank, world_size=3, ops=c.ops) for c in starts[-1]
    ]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=3)
    capture.logs, capture.over = logs, True
    return diagnose(capture)


def test_a_start_that_shows_consequences_only_leads_to_the_one_before() -> None:
    (one, its_ends), (two, their_ends) = again(0, LOST, OWN, LOST), again(20, LOST, "", LOST)
    found = verdict(one + two, its_ends + their_ends)
    assert (found.status, [(c.kind, c.ranks) for c in found.causes]) == ("failed", [("error", [1])])
    assert any("the verdict is on start 1" in note for note in found.notes)


def test_the_last_start_has_the_word_where_it_says_something() -> None:
    (one, its_ends), (two, their_ends) = again(0, LOST, OWN, LOST), again(20, LOST, LOST, OWN)
    found = verdict(one + two, its_ends + their_ends)
    assert [c.ranks for c in found.causes] == [[2]]
    assert not any("start" in note for note in found.notes)


def test_another_job_in_the_same_folder_is_no_earlier_start() -> None:
    (one, its_ends), (two, their_ends) = again(0, LOST, OWN, LOST), again(20, LOST, "", LOST)
    for contents in one:
        contents.box.job = "other"
    assert verdict(one + two, its_ends + their_ends).causes == []
    late, late_ends = again(4000, LOST, "", LOST)
    first, first_ends = again(0, LOST, OWN, LOST)
    assert verdict(first + late, first_ends + late_ends).causes == []


def test_a_hang_of_the_last_start_is_not_hidden_by_the_one_before() -> None:
    one, its_ends = again(0, LOST, OWN, LOST)
    two = [column(rank, 21, 1051.0, 0.0, [0, 1, 2]) for rank in range(3)]
    two[2] = column(2, 20, 1050.0, 1050.01, [0, 1, 2])
    ends = []
    for contents in two:
        contents.box.pid += 50
        contents.box.created_s = 1030.0
        end = ended(contents.ops.rank, -15, 1080.0)
        end.pid, end.began = contents.box.pid, 1030.0
        ends.append(end)
    found = verdict(one + two, its_ends + ends)
    assert (found.status, [c.ranks for c in found.causes]) == ("hang", [[2]])
