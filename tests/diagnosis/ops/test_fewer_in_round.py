"""Records without sends and receives: who left a collective out of its round, beside one at the same line."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.findings import Op
from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.capture import Frame
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import causes
from tests.support.ops_records import done, entered, evidence, rank_ops

GROUP = [0, 1, 2, 3]
SHAPES = ["[48, 24]", "[24, 24]", "[24]"]  # of one push of the weights


def pushes(number: int, shapes: list[str] = SHAPES, line: int = 43) -> list[Operation]:
    """So many broadcasts of the weights, one tensor after the other."""
    return [
        done(
            GROUP,
            n + 1,
            "broadcast",
            root=0,
            shapes=shapes[n % len(shapes)],
            site=f"receive (rl.py:{line})",
        )
        for n in range(number)
    ]


def job(behind: int, ahead: int, shapes: list[str] = SHAPES, waits_in: int = 0) -> OpsEvidence:
    """Rank 0 pushes weights to engines 1-3, which then send it something. Ranks 1 and 2 wait in that send; rank 3
    had its own taken.
    """
    last = waits_in or behind + 1
    push = pushes(last, shapes, line=58)
    push[-1].state = "entered"
    further = [
        *pushes(ahead, shapes),
        entered(GROUP, ahead + 1, "broadcast", root=0, shapes=shapes[ahead % len(shapes)]),
    ]
    ranks: list[RankOps] = [
        rank_ops(0, 4, push, source="flight_recorder"),
        rank_ops(1, 4, pushes(ahead, shapes), source="flight_recorder"),
        rank_ops(2, 4, pushes(behind, shapes), source="flight_recorder"),
        rank_ops(3, 4, further, source="flight_recorder"),
    ]
    at = Frame("main", "rl.py", 101)
    return evidence(
        ranks,
        unrecorded={1: 0, 2: 0},
        transfers={1: Op("send", peer=0, frame=at), 2: Op("send", peer=0, frame=at)},
    )


def test_who_is_at_the_same_line_after_fewer_calls_than_a_round_left_one_out() -> None:
    [cause] = causes(diagnose_ops(job(behind=8, ahead=9)))
    assert (cause.kind, cause.ranks) == ("order", [2])
    assert "skipped broadcast #9" in cause.summary and "went on to send to rank 0" in cause.summary


@pytest.mark.parametrize(
    ("behind", "ahead", "shapes"),
    [(6, 9, SHAPES), (8, 9, ["[4]"]), (8, 9, [f"[{n}]" for n in range(9)])],
    ids=["a whole round behind", "a round of one call", "no round shows"],
)
def test_else_it_may_be_a_round_behind(behind: int, ahead: int, shapes: list[str]) -> None:
    found = causes(diagnose_ops(job(behind, ahead, shapes)))
    assert not any("skipped" in cause.summary for cause in found)


def test_only_where_somebody_waits_in_what_was_left_out() -> None:
    found = causes(diagnose_ops(job(behind=7, ahead=9, waits_in=9)))
    assert not any("skipped" in cause.summary for cause in found)


def test_a_rank_that_made_the_call_in_every_round_has_not_skipped_it() -> None:
    """Rank 0 pushes weights to ranks 2-3 before it reduces gradients with rank 1, which has no such calls:
    that is no fault of rank 0, which waits for rank 3 outside of all records.
    """
    learners, pushed = [0, 1], [0, 2, 3]
    mine: list[Operation] = []
    theirs: list[Operation] = []
    for n in range(1, 6):
        mine += [
            done(pushed, 2 * n - 1, "broadcast", root=0, shapes="[4]", site="push (rl.py:58)"),
            done(pushed, 2 * n, "broadcast", root=0, shapes="[8]", site="push (rl.py:58)"),
            done(learners, n, shapes="[12]", site="learn (rl.py:76)"),
        ]
        theirs.append(done(learners, n, shapes="[12]", site="learn (rl.py:76)"))
    engine = [o for o in mine if o.op == "broadcast"]
    now = entered(pushed, 11, "broadcast", root=0, shapes="[4]", site="push (rl.py:58)")
    reduces = entered(learners, 6, shapes="[12]", site="learn (rl.py:76)")
    records = {0: [*mine, now], 1: [*theirs, reduces], 2: [*engine, now], 3: engine}
    groups = {0: [learners], 1: [learners], 2: [], 3: []}  # the other one is not known
    found = diagnose_ops(
        evidence(
            [
                rank_ops(rank, 4, calls, *groups[rank], source="flight_recorder")
                for rank, calls in records.items()
            ],
            unrecorded={0: -1, 3: 0},  # members of the second group are not sure
            transfers={3: Op("send", peer=0, frame=Frame("main", "rl.py", 101))},
        )
    )
    assert not [cause for cause in causes(found) if 0 in cause.ranks]


def test_a_call_that_was_left_out_once_is_not_made_up_for_by_the_next_ones_number() -> None:
    """An overflow that one tensor parallel pair of two agrees on: it skips the gradients' reduction, whose
    every later call meets the other replica's one before.
    """
    everyone = list(range(4))
    records: dict[int, list[Operation]] = {}
    for rank in everyone:
        pair, replicas = [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
        calls: list[Operation] = []
        reduced = 0
        for step in range(1, 11):
            calls += [
                done(pair, 2 * step - 1, shapes="[8]", site="forward (t.py:10)"),
                done(pair, 2 * step, "all_gather", shapes="[1]", site="overflowed (t.py:20)"),
            ]
            if rank > 1 and step == 5:
                continue
            reduced += 1
            calls.append(done(replicas, reduced, shapes="[64]", site="reduce (t.py:30)"))
        if rank > 1:
            calls.append(entered(everyone, 1, shapes="[1]", site="log (t.py:40)"))
        else:
            calls[-1] = entered(replicas, reduced, shapes="[64]", site="reduce (t.py:30)")
        records[rank] = calls
    groups = {
        rank: [[rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]] for rank in everyone
    }
    found = causes(
        diagnose_ops(evidence([rank_ops(r, 4, calls, *groups[r]) for r, calls in records.items()]))
    )
    assert [(cause.kind, cause.ranks) for cause in found] == [("order", [2, 3])]
    assert "skipped all_reduce #5" in found[0].summary


def test_a_stage_with_fewer_parameters_has_skipped_no_reduction() -> None:
    """Stages 0 and 2 reduce five gradients a step, stage 1 four. Rank 5 sends what rank 1 waits for to rank 3,
    which no record has.
    """
    everyone, stages = (
        list(range(6)),
        {rank: [rank // 2 * 2, rank // 2 * 2 + 1] for rank in range(6)},
    )
    of_stage = {0: 5, 1: 4, 2: 5}
    records: dict[int, list[Operation]] = {}
    for rank in everyone:
        calls: list[Operation] = []
        made = of_stage[rank // 2]
        for step in range(3):
            if step == 2 and rank in (1, 5):
                break
            for n in range(made):
                number, shape = step * made + n + 1, f"[{n + 1}]"
                late = step == 2 and rank in (0, 4)
                make = entered if late else done
                calls.append(make(stages[rank], number, shapes=shape, site="sync (pipe.py:72)"))
                if late:
                    break
            if step < 2:
                calls.append(done(everyone, step + 1, "barrier", site="main (pipe.py:94)"))
            elif rank in (2, 3):
                calls.append(entered(everyone, 3, "barrier", site="main (pipe.py:94)"))
        records[rank] = calls
    at = Frame("exchange", "tied.py", 18)
    found = diagnose_ops(
        evidence(
            [
                rank_ops(rank, 6, calls, stages[rank], everyone, source="flight_recorder")
                for rank, calls in records.items()
            ],
            unrecorded={1: 5, 5: 3},
            transfers={1: Op("recv", peer=5, frame=at), 5: Op("send", peer=3, frame=at)},
        )
    )
    assert not [cause for cause in causes(found) if {2, 3} & set(cause.ranks)]
