"""Jobs that are over in which no rank can be singled out, or only by the calls before the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import JobLogs, LogFile, NoBeat, Silent
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.job_logs.rules import rules
from tests.support.ended_boxes import LIMIT, LOST, column, ended, left, of_column

EVERYONE = [0, 1, 2, 3]
WORLD = Group(group_uid(EVERYONE), EVERYONE)
OWN = "RuntimeError\nthe loss is no number any more\nmain\t/app/train.py\t18"


def of(rank: int, *operations: Operation, said: str = "") -> Contents:
    """A box of one of four ranks, that ended at 1010 s."""
    contents = left(rank, 1010.0 if said else 0.0, said)
    done = [structs.replace(o, group=WORLD.uid) for o in operations]
    contents.ops = RankOps(rank, 4, groups=[WORLD], operations=done, heartbeat_s=1009.0)
    contents.box.world_size = 4
    return contents


def called(seq: int, op: str = "all_reduce", **fields: object) -> Operation:
    """One that has ended; others are as they are changed."""
    at = 1000.0 + seq / 10
    made = Operation("", seq, op, "done", entered_s=at, left_s=at + 0.01, site="main (train.py:9)")
    return structs.replace(made, **fields)


INSIDE = {"state": "entered", "left_s": 0.0}
JUST_NOW = {**INSIDE, "entered_s": 1009.8}


def verdict_of_alike(*last: Operation) -> Diagnosis:
    boxes = [of(rank, called(1), own, said=OWN) for rank, own in zip(EVERYONE, last, strict=True)]
    return of_column(boxes, [ended(rank, 1, 1011.0) for rank in EVERYONE])


def test_what_all_raise_alike_names_no_rank() -> None:
    found = verdict_of_alike(*[called(2)] * 4)
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [])]
    assert found.status == "failed"
    assert found.summary.startswith("All ranks (0-3) failed alike, at one moment: RuntimeError")


@pytest.mark.parametrize(
    ("usual", "other", "says"),
    [
        ({"reduce_op": "sum"}, {"reduce_op": "max"}, "reduce op max"),
        ({"shapes": "[8]"}, {"shapes": "[9]"}, "shapes [9]"),
    ],
)
def test_another_call_before_it_does(
    usual: dict[str, object], other: dict[str, object], says: str
) -> None:
    calls = [called(2, **usual) for _ in EVERYONE]
    calls[2] = called(2, **other)
    found = verdict_of_alike(*calls)
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [2])]
    assert says in found.summary


def test_the_same_sizes_written_in_two_ways_do_not() -> None:
    calls = [called(2, shapes="[4, 8]") for _ in EVERYONE]
    calls[2] = called(2, shapes="[32]")
    found = verdict_of_alike(*calls)
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [])]


def test_one_rank_that_raises_first_is_named_before_those_that_raise_the_same() -> None:
    boxes = [of(rank, called(1), said=OWN) for rank in EVERYONE]
    boxes[3].box.ended_s = 1002.0
    found = of_column(boxes, [ended(rank, 1, 1011.0) for rank in EVERYONE])
    assert 3 in found.causes[0].ranks


# ---------------------------------------------------------------------- aborts


def aborted(boxes: Sequence[Contents]) -> Diagnosis:
    """Rank 0 by SIGABRT, the others by the launcher after it."""
    after = [ended(rank, -15, 1010.5) for rank in EVERYONE[1:]]
    return of_column(list(boxes), [ended(0, -6, 1009.9), *after])


def test_an_abort_inside_an_operation_is_by_whichever_rank_is_not_in_it() -> None:
    boxes = [of(rank, called(1), called(2, **JUST_NOW)) for rank in EVERYONE]
    boxes[1] = of(1, called(1))
    found = aborted(boxes)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [1])]
    assert found.status == "failed"


def test_an_abort_inside_an_operation_of_all_names_no_rank() -> None:
    boxes = [of(rank, called(1), called(2, **JUST_NOW)) for rank in EVERYONE]
    boxes[3] = of(3, called(1), called(2, failed=True, entered_s=1009.8, left_s=1010.0), said=LOST)
    found = aborted(boxes)
    assert (found.status, found.causes) == ("unknown", [])
    assert "rank 0 was aborted (SIGABRT) inside all_reduce #2" in found.summary


def test_an_abort_outside_of_any_operation_is_the_ranks_own() -> None:
    boxes = [of(rank, called(1), called(2, **INSIDE)) for rank in EVERYONE]
    boxes[0] = of(0, called(1))
    found = aborted(boxes)
    assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [0])]


# ---------------------------------------------------------------------- limits


@pytest.mark.parametrize(("after_s", "named"), [(0.5, []), (6.0, [("not_entered", [2])])])
def test_a_rank_whose_wait_reached_its_limit_with_the_others_waited_for_someone_else(
    after_s: float, named: list[tuple[str, list[int]]]
) -> None:
    """Stages of a pipeline: 0 and 1 wait for the next one, 2 in what no record shows, 3 left early."""
    boxes = [of(rank, called(1), said=LIMIT) for rank in EVERYONE]
    for rank in (0, 1):
        wait = called(1, op="recv", peer=rank + 1, **INSIDE)
        boxes[rank] = of(rank, called(1), wait, said=LIMIT)
    boxes[3] = of(3, called(1), called(2, op="barrier", **INSIDE), said=LIMIT)
    boxes[2].box.ended_s = 1010.0 + after_s
    found = of_column(boxes, [ended(rank, 1, 1018.0) for rank in EVERYONE])
    assert [(c.kind, c.ranks) for c in found.causes] == named, found.summary


# ---------------------------------------------------------------------- no exit


@pytest.mark.parametrize(("got_on_s", "at_work"), [(1008.5, True), (1001.0, False)])
def test_what_was_killed_with_its_launcher_was_at_work_or_not(
    got_on_s: float, at_work: bool
) -> None:
    """It is not called healthy: one of them may have died, and the others after it."""
    boxes = [of(rank, *(called(n) for n in range(1, 6))) for rank in EVERYONE]
    for contents in boxes:
        contents.ops.got_on_s = got_on_s
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank, world_size=4, ops=c.ops) for c in boxes]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.over = True
    found = diagnose(capture)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert ("ranks 0-3 were at work to the end" in found.summary) == at_work, found.summary
    boxes[2].ops.heartbeat_s = 1004.0  # long before the others: it ended first
    assert "at work to the end" not in diagnose(capture).summary


def pausing(last: float, node: str = "n1", how: Silent = "") -> str:
    """What is said of ranks that made a step all 4 s, with heartbeats to 1016 s, that of rank 2 to
    `last`; no exit is known. `how`: what other signs of life show of it.
    """
    steps = [called(n, entered_s=996.0 + 4 * n, left_s=996.1 + 4 * n) for n in range(1, 5)]
    boxes = [of(rank, *steps) for rank in EVERYONE]
    for contents in boxes:
        contents.ops.heartbeat_s = last if contents.ops.rank == 2 else 1016.0
        contents.ops.got_on_s = contents.ops.heartbeat_s - 1.0
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank, ops=c.ops, node="n1") for c in boxes]
    ranks[2].node = node
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.over = True
    if how:
        capture.logs = JobLogs(
            files=[LogFile("box")], facts=[NoBeat(rank=2, silent_s=5.0, how=how)]
        )
        capture.logs.of_boxes = [0]
    found = diagnose(capture)
    assert (found.status, found.causes) == ("unknown", [])
    return found.summary


def test_a_heartbeat_that_native_code_kept_for_a_pause_is_no_end_of_the_progress() -> None:
    said = pausing(1011.0)
    assert "The job went on to its end: ranks 0-1,3 were at work" in said
    assert "Rank 2 had no heartbeat in the last 5 s, no longer than the job's pauses" in said
    assert "as gc.collect does, or it ended first." in said
    assert "as gc.collect does. All were killed" in pausing(1011.0, how="gil")
    assert "or it ended first." in pausing(1011.0, how="stopped")
    assert "Nothing hung: ranks 0-3 were at work to the end" in pausing(1015.0)
    assert "went on to its end" not in pausing(1011.0, node="n2"), "clocks of two nodes differ"


@pytest.mark.parametrize(("last", "slow"), [(40, [("slow", [2])]), (20, [])])
def test_who_came_last_until_a_job_was_ended_was_slow(
    last: int, slow: list[tuple[str, list[int]]]
) -> None:
    """Where the collectives had ended long before the job, what came then is not known."""
    boxes = [column(rank, last, 1000.7 + last, 1000.9 + last, EVERYONE) for rank in EVERYONE]
    for contents in boxes:
        contents.ops.heartbeat_s = contents.ops.got_on_s = 1040.5
        for call in contents.ops.operations[:-1]:
            call.entered_s += 0.6 * (contents.ops.rank == 2)
            call.left_s = call.entered_s + 0.8
    found = of_column(boxes, [ended(rank, -15, 1041.0) for rank in EVERYONE])
    assert [(c.kind, c.ranks) for c in found.causes] == slow, found.summary
    assert found.status == ("slow" if slow else "healthy")
    if slow:
        assert "was slow: the job went on to its end, but the others waited" in found.summary


# ---------------------------------------------------------------------- two sides


def test_two_sides_of_a_wait_that_nothing_decides_name_no_rank() -> None:
    """All were killed at once, `hangdoctor run` too: no end is recorded."""
    boxes = [of(rank, called(1), called(2, **INSIDE)) for rank in EVERYONE]
    for rank in (2, 3):
        boxes[rank] = of(rank, called(1), called(2, "barrier", site="main (train.py:5)", **INSIDE))
    found = of_column(boxes, [ended(rank, -15, 1060.0) for rank in EVERYONE])
    assert (found.status, found.causes) == ("unknown", [])
    assert (
        "all_reduce on ranks 0-1 (train.py:9) and barrier on ranks 2-3 (train.py:5)"
        in found.summary
    )
    assert "nothing shows which of the two is right" in found.summary


def test_a_rank_that_asked_for_other_members_is_named() -> None:
    asked = {"op": "new_group", **INSIDE}
    boxes = [of(rank, called(1), called(1, detail="0-2", **asked)) for rank in EVERYONE]
    boxes[1] = of(1, called(1), called(1, detail="1-3", **asked))
    found = of_column(boxes, [ended(rank, -15, 1060.0) for rank in EVERYONE])
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [1])]
    assert "members 1-3, the others with members 0-2" in found.summary


# ---------------------------------------------------------------------- the last ones


def in_pairs(rank: int, calls: int, lost: bool = False) -> Contents:
    """A box of four ranks in two pairs, each pair with its own all_reduces."""
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    group = Group(group_uid(pair), pair)
    contents = of(rank, *(called(n) for n in range(1, calls + 1)), said=LOST if lost else "")
    own = [structs.replace(o, group=group.uid) for o in contents.ops.operations]
    if lost:
        own[-1] = structs.replace(own[-1], failed=True, left_s=1010.0)
    contents.ops.groups, contents.ops.operations = [WORLD, group], own
    contents.box.ended_s = 1010.0 if lost else 1005.0
    return contents


@pytest.mark.parametrize(
    ("calls", "named"), [([8, 8, 8, 7], ("not_entered", [3])), ([8, 8, 9, 8], ("end_stall", [2]))]
)
def test_who_went_on_alone_may_be_the_one_that_made_all_its_calls(
    calls: list[int], named: tuple[str, list[int]]
) -> None:
    """Rank 2 loses rank 3, which has ended: it left a call out, or rank 2 made one too many."""
    boxes = [in_pairs(rank, n, lost=rank == 2) for rank, n in enumerate(calls)]
    ends = [*(ended(rank, 0, 1006.0) for rank in (0, 1, 3)), ended(2, 1, 1010.2)]
    found = of_column(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [named], found.summary
    assert found.status == "failed"


def test_a_port_that_is_taken_is_its_ranks_own_error() -> None:
    """It comes as an error of the rendezvous store, of which others are consequences."""
    said = "DistNetworkError: The server socket has failed to listen: 29500, name: EADDRINUSE"
    rule = rules().known(said)
    assert rule is not None and (rule.id, rule.role) == ("port_in_use", "cause")
    waits = rules().known("DistNetworkError: The client socket has timed out after 60000ms")
    assert waits is not None and waits.role == "consequence"


@pytest.mark.parametrize(
    "last_at", [1011.2, 1041.0], ids=["at one moment", "long after the others"]
)
def test_all_but_one_that_abort_at_one_moment_have_given_up_on_that_one(
    tmp_path: Path, last_at: float
) -> None:
    """As processes of JAX do that wait for one which never registers: they leave no box."""
    for rank, at in ((0, 1011.0), (2, 1011.1), (3, last_at)):
        told = {"pid": 10 + rank, "node": "n1", "code": -6, "at": at, "rank": rank, "world_size": 4}
        (tmp_path / f"n1-{rank}-7.ends").write_text(json.dumps({**told, "began": 990.0}) + "\n")
    found = diagnose(load([tmp_path]))
    if last_at < 1012.0:
        assert (found.status, found.causes) == ("unknown", []), found.summary
        assert "no exit of rank 1 is recorded" in found.summary
    else:
        assert [cause.ranks for cause in found.causes] == [[0, 2]], found.summary
