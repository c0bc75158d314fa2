"""Ranks that make groups of their own members alone: who makes them in another order keeps the others waiting."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.probe.asked_members import asked_members
from tests.support.captures import C10D, causes, still
from tests.support.ops_programs import only_cause
from tests.support.ops_records import entered, evidence, rank_ops

WORLD = [0, 1, 2, 3, 4, 5]
A, B, C = [0, 1, 2, 3], [2, 3, 4, 5], [0, 1, 4, 5]
REVERSED = [A, A, B, B, C, B]  # rank 4 begins with C, where all others take them in this order
NOBODY = [A, A, B, B, C, C]
SENTENCE = (
    "while ranks 2-3,5 wait for it in that for ranks 2-5: it makes its groups in another order"
)


def by_stacks(asked: list[list[int]]) -> Diagnosis:
    ranks = []
    for rank, members in enumerate(asked):
        call = Frame("new_group", C10D, 5863, lists={"own ranks": members})
        line = Frame(
            "regroup", "/app/search.py", 55, "self.groups[t] = dist.new_group(ranks_of(t))"
        )
        inner = [
            Frame("_new_process_group_helper", C10D, 2169),
            Frame("_new_group_with_tag", C10D, 6056),
        ]
        ranks.append(still(rank, [*inner, call, line], world_size=6))
    return diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 6, taken=1.0))


def test_stacks_name_the_rank_that_all_others_of_a_group_wait_for() -> None:
    said = by_stacks(REVERSED)
    assert causes(said) == [("order", [4])] and SENTENCE in said.summary
    assert "is in new_group for ranks 0-1,4-5" in said.summary
    assert "use_local_synchronization" in said.causes[0].advice


def test_stacks_that_single_nobody_out_accuse_nobody() -> None:
    said = by_stacks(NOBODY)
    assert said.causes == [] and [c.ranks for c in said.open] == [WORLD]


def job(asked: list[list[int]]) -> list[object]:
    details = [asked_members("new_group", (one, None, None, None, True), {}, 6) for one in asked]
    calls = [entered(WORLD, 2, "new_group", detail=d, site="regroup (s.py:55)") for d in details]
    return [rank_ops(rank, 6, [call]) for rank, call in enumerate(calls)]


def test_records_name_the_same_rank() -> None:
    cause = only_cause(diagnose_ops(evidence(job(REVERSED))))  # type: ignore[arg-type]
    assert (cause.kind, cause.ranks) == ("order", [4]) and SENTENCE in cause.summary


def test_records_that_single_nobody_out_blame_no_network() -> None:
    cause = only_cause(diagnose_ops(evidence(job(NOBODY))))  # type: ignore[arg-type]
    assert (cause.kind, cause.ranks) == ("order", WORLD)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        (([4, 5], None, None, None, True), {}, "local 4-5"),
        (([5, 4],), {"use_local_synchronization": True}, "local 4-5"),
        (([4, 5],), {"use_local_synchronization": False}, "4-5"),
        (
            (list(range(0, 900, 3)) + [1] * 0 + [7, 11, 500, 601, 733],),
            {"use_local_synchronization": True},
            "",
        ),
    ],
)
def test_what_the_probe_writes(
    args: tuple[object, ...], kwargs: dict[str, object], text: str
) -> None:
    assert asked_members("new_group", args, kwargs, 8) == text
