"""Of a job that is over: who ended with exit code 0 long before the others."""

from __future__ import annotations

import pytest
from msgspec import structs

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.left_behind import add_left
from tests.support.captures import LOAD, still
from tests.support.ended_boxes import column, ended, left

LEFT_AT = 1020.4
LEFT = ended(3, 0, LEFT_AT)


def boxes(until: int = 20) -> list[Contents]:
    """Of the others, which made one call a second until then and lived for a minute."""
    made = [column(rank, until, 1000.0 + until, 1000.01 + until, [0, 1, 2, 3]) for rank in range(3)]
    for contents in made:
        contents.box.heartbeat_s = 1060.0
    return made


def capture(of: list[Contents], *ends: ProcessEnd, stood: int = 3) -> JobCapture:
    """With what is added to it; `stood`: how many of the others have a place."""
    ranks = [still(c.ops.rank, LOAD, "") for c in of]
    for rank in ranks[stood:]:
        rank.samples = []
    made = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    made.over, made.by_heartbeat, made.origin = True, True, "files"
    made.logs = ended_ranks.facts_of(of, ends)
    add_left(made, of, ends)
    return made


def added(*ends: ProcessEnd, of: list[Contents] | None = None, stood: int = 3) -> list[int]:
    return [rank.rank for rank in capture(of or boxes(), *ends, stood=stood).ranks() if rank.gone]


def test_the_rank_that_left_is_named_with_how_long_the_others_stood() -> None:
    """Each `hangdoctor run` of a shell's loop has noted its end."""
    found = diagnose(capture(boxes(), LEFT, structs.replace(LEFT, at=LEFT_AT + 0.01)))
    assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [3])]
    assert found.status == "hang"
    assert "ended (exit code 0) 40 s before the others, which got no further" in found.summary
    advice = found.causes[0].advice
    assert "return" in advice and "the others did not" in advice and "cancel" not in advice


def test_it_is_named_where_the_others_were_killed_much_later_too() -> None:
    for code in (-9, -15):
        found = diagnose(capture(boxes(), LEFT, *(ended(r, code, 1060.0) for r in range(3))))
        assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [3])], found.summary
        assert "40 s before the others" in found.summary


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ended(3, 1, LEFT_AT), id="an exit code that the logs judge"),
        pytest.param(ended(3, 0, 990.0), id="of an earlier start"),
        pytest.param(ended(3, 0, 1040.0), id="after the others had stood still"),
        pytest.param(ended(3, 0, 1005.0), id="while the others went on for long"),
        pytest.param(ended(3, 0, LEFT_AT, boxed=False), id="no rank of its own"),
        pytest.param(ended(2, 0, LEFT_AT), id="another process had the rank"),
        pytest.param(ended(4, 0, LEFT_AT), id="a rank is not known"),
    ],
)
def test_no_other_end_is_taken_for_it(end: ProcessEnd) -> None:
    assert added(end) == []


def test_nothing_is_added_where_one_of_the_others_got_on_or_told_how_it_ended() -> None:
    assert added(LEFT) == [3]
    assert added(LEFT, stood=2) == []
    told = boxes()
    told[1] = left(1, 1021.0, "ValueError\nbad shard")
    assert added(LEFT, of=told) == []


def test_nor_where_most_have_ended() -> None:
    of = boxes()[:1]
    assert added(*(ended(rank, 0, LEFT_AT) for rank in (1, 2, 3)), of=of) == []
