"""A server that takes results of anyone, and workers that each send one for each piece of work."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import only_cause
from tests.support.ops_records import entered, evidence, rank_ops


def worker(rank: int, world: int, rounds: int, sent: int) -> RankOps:
    """It has taken `rounds` pieces, and has sent the results of the first ones."""
    operations: list[Operation] = []
    for number in range(1, rounds + 1):
        at = {"peer": 0, "state": "done"}
        operations.append(entered(range(world), number, "recv", site="work (es.py:20)", **at))
        if number <= sent:
            operations.append(entered(range(world), number, "send", site="work (es.py:28)", **at))
    operations.append(entered(range(world), rounds + 1, "recv", peer=0, site="work (es.py:20)"))
    return rank_ops(rank, world, operations)


def job(*sent: int, rounds: int = 4) -> list[RankOps]:
    world = len(sent) + 1
    server = [entered(range(world), 0, "recv", peer=-1, site="collect (es.py:34)")]
    workers = [worker(rank, world, rounds, n) for rank, n in enumerate(sent, start=1)]
    return [rank_ops(0, world, server), *workers]


def test_the_worker_that_sent_one_result_less_is_named() -> None:
    cause = only_cause(diagnose_ops(evidence(job(4, 3, 4))))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [2])
    assert "skipped send #4 to rank 0 (es.py:28)" in cause.summary
    assert "rank 1 at the same place: send #4 to rank 0" in str(cause.evidence[0])


@pytest.mark.parametrize("sent", [(4, 4, 4), (3, 3, 4), (3, 3), (4, 2, 4)])
def test_none_is_named_where_they_do_not_part_by_one(sent: tuple[int, ...]) -> None:
    """All alike, two behind, or more than one result apart."""
    assert diagnose_ops(evidence(job(*sent))).findings == []


def test_who_takes_a_piece_without_the_answer_that_it_always_gave_is_named() -> None:
    """Of two workers too, and where the others have gone on to the collective at the end."""
    cause = only_cause(diagnose_ops(evidence(job(4, 3))))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [2])
    assert "skipped send #4 to rank 0" in cause.summary and cause.confidence < 0.75
    ranks = job(4, 3, 4)
    for rank in (1, 3):
        ends = entered(range(4), 1, "gather", root=0, site="summarise (es.py:81)")
        ranks[rank].operations = [*list(ranks[rank].operations)[:-1], ends]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [2])
