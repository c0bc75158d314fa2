"""A wait for several handles ends when all are done: MPI's Waitall in an exchange with the neighbours."""

from __future__ import annotations

from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import only_cause
from tests.support.ops_records import entered, evidence, rank_ops

WORLD = 5
HERE = {"site": "halo (heat.py:39)", "asynchronous": True}


def exchange(rank: int, number: int, tag: int, state: str) -> list[Operation]:
    """A send to each neighbour in the line, and a receive from it."""
    peers = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < WORLD]
    about = {**HERE, "state": state, "detail": f"tag {tag}"}
    return [
        entered(range(WORLD), number, op, peer=peer, waited=state == "started" and first, **about)
        for peer in peers
        for op, first in (("send", peer == peers[0]), ("recv", False))
    ]


def job(odd: int, its: int) -> list[RankOps]:
    """All wait in their fourth exchange, both ends in their fifth; one of them with another tag."""
    ranks = []
    for rank in range(WORLD):
        operations = [o for n in (1, 2, 3) for o in exchange(rank, n, n, "done")]
        if rank in (0, WORLD - 1):
            operations += exchange(rank, 4, 4, "done") + exchange(rank, 5, 5, "started")
        else:
            operations += exchange(rank, 4, its if rank == odd else 4, "started")
        ranks.append(rank_ops(rank, WORLD, operations))
    return ranks


def test_another_tag_is_one_cause_and_the_transfers_beside_it_are_none() -> None:
    """Ranks 1 and 3 have got what the ends sent, and wait for all of their handles."""
    cause = only_cause(diagnose_ops(evidence(job(odd=2, its=2))))
    assert (cause.kind, cause.ranks) == ("mismatch", [2])
    assert {r for e in cause.evidence for r in e.ranks} == {1, 2, 3}


def test_without_another_cause_such_a_transfer_still_is_one() -> None:
    ranks = job(odd=2, its=4)
    verdict = diagnose_ops(evidence(ranks, earlier=ranks))
    assert verdict.findings
    assert {f.kind for f in verdict.findings} <= {"in_communication", "p2p_unmatched"}


def test_of_several_handles_any_may_be_the_one_that_is_waited_for() -> None:
    """A ring of four, as a box has it: of the handles of a `Waitall`, the first alone is marked. Rank 0 has
    other tags; rank 2, between its neighbours, is past the exchange.
    """

    def ring(rank: int) -> list[Operation]:
        tag, state = 100 if rank == 0 else 0, "done" if rank == 2 else "started"
        about = [
            ("recv", (rank - 1) % 4, tag + 1),
            ("recv", (rank + 1) % 4, tag + 2),
            ("send", (rank + 1) % 4, tag + 1),
            ("send", (rank - 1) % 4, tag + 2),
        ]
        return [
            entered(
                range(4),
                1,
                op,
                peer=peer,
                state=state,
                detail=f"tag {number}",
                waited=state == "started" and at == 0,
                **HERE,
            )
            for at, (op, peer, number) in enumerate(about)
        ]

    ranks = [rank_ops(rank, 4, ring(rank)) for rank in range(4)]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("mismatch", [0])
