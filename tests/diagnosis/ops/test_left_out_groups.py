"""A rank that does not make a group that it is not in comes to all later ones a number too early; and a
transfer whose two sides have different tags is no call left out.
"""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsVerdict, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = [0, 1, 2, 3]
WORKERS, REPORTS = [0, 2, 3], [0, 1]
MADE, THEN = "make_workers (job.py:24)", "make_reports (job.py:27)"


def new_group(seq: int, members: str, site: str, state: str = "done") -> Operation:
    return entered(WORLD, seq, "new_group", detail=members, site=site, state=state)


def named(verdict: OpsVerdict) -> list[tuple[str, list[int]]]:
    return [(finding.kind, finding.ranks) for finding in verdict.findings]


def job(
    own_first: str = "0-1", own_site: str = THEN, wrapped: bool = False, others: str = "0,2-3"
) -> OpsVerdict:
    """Rank 0 waits in the second group's making, rank 1 in that group, the others for rank 0."""
    both = [new_group(1, "0,2-3", MADE), new_group(2, "0-1", THEN)]
    first = [new_group(1, others, MADE), new_group(2, "0-1", THEN)]
    waits = entered(WORKERS, 1, site="step (job.py:51)")
    ranks = [
        rank_ops(0, 4, [both[0], new_group(2, "0-1", THEN, "entered")], WORKERS, REPORTS),
        rank_ops(
            1,
            4,
            [
                new_group(1, own_first, own_site),
                entered(REPORTS, 1, "broadcast", site="say (job.py:56)"),
            ],
            REPORTS,
            overwritten=wrapped,
        ),
        rank_ops(2, 4, [*both, waits], WORKERS),
        rank_ops(3, 4, [*first, waits], WORKERS),
    ]
    return diagnose_ops(evidence(ranks, ranks))


def test_who_left_out_a_group_of_others_is_named() -> None:
    assert named(job()) == [("order", [1])]


@pytest.mark.parametrize(
    "other",
    [
        {"own_first": "1", "own_site": "of_its_own (job.py:30)"},  # another group, not a later one
        {"wrapped": True},  # there were calls before these records
        {"others": "3"},  # the others do not agree either
    ],
)
def test_other_groups_of_its_own_name_nobody_for_that(other: dict[str, object]) -> None:
    assert named(job(**other)) == [("order", [0, 1])]  # type: ignore[arg-type]


def shift(rank: int, tag: int, sent: bool = False) -> list[Operation]:
    """A hop of a ring of three: to the next rank, and from the one before."""
    to, back = (rank + 1) % 3, (rank - 1) % 3
    site = "shift (ring.py:26)"
    before = [
        done(range(3), n, op, peer=peer, site=site, detail=f"tag {100 + n}")
        for n in (1, 2)
        for op, peer in (("send", to), ("recv", back))
    ]
    mine = f"tag {tag}"
    sends = entered(range(3), 3, "send", peer=to, site=site, asynchronous=True, detail=mine)
    gets = entered(range(3), 3, "recv", peer=back, site=site, detail=mine)
    if sent:
        sends.waited, gets.state = True, "done"
    return [*before, sends, gets]


def test_a_rank_with_another_tag_than_both_neighbours_left_no_call_out() -> None:
    ranks = [
        rank_ops(0, 3, shift(0, 104)),
        rank_ops(1, 3, shift(1, 103)),
        rank_ops(2, 3, shift(2, 103, sent=True)),
    ]
    found = diagnose_ops(evidence(ranks, ranks))
    assert {tuple(f.ranks) for f in found.findings} == {(0,)}
    assert {f.kind for f in found.findings} == {"mismatch"}
