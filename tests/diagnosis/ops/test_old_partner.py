"""A rank that still waits for the stage whose place a spare has taken."""

from __future__ import annotations

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_programs import causes
from tests.support.ops_records import done, entered, evidence, rank_ops

ALL = [0, 1, 2, 3, 4]
FORWARD = "forward (/app/stages.py:30)"


def send(to: int, number: int, now: bool = False) -> Operation:
    return (entered if now else done)(ALL, number, "send", peer=to, shapes="[4]", site=FORWARD)


def recv(of: int, number: int, now: bool = False) -> Operation:
    return (entered if now else done)(ALL, number, "recv", peer=of, shapes="[4]", site=FORWARD)


def health(now: bool = True) -> Operation:
    return (entered if now else done)(ALL, 1, "all_gather", site="exchange (/app/train.py:49)")


def moved_to_the_spare(served: bool = False) -> OpsEvidence:
    """Stages 0, 1, 2; rank 3 is idle, and rank 4 takes stage 1 after three rounds. `served`: rank 2
    has received from rank 4 before, as a rank does that gathers from several in turn.
    """
    first = [send(1, 1), send(1, 2), send(1, 3), send(4, 1)]
    second = [recv(0, 1), send(2, 1), recv(0, 2), send(2, 2), recv(0, 3), send(2, 3), health()]
    third = [recv(1, 1), recv(1, 2), recv(1, 3), recv(1, 4, now=True)]
    spare = [recv(0, 1), send(2, 1, now=True)]
    if served:
        third.insert(2, recv(4, 1))
        spare = [send(2, 1), recv(0, 1), send(2, 2, now=True)]
    calls = [[*first, health()], second, third, [health()], spare]
    ops = [rank_ops(rank, 5, own) for rank, own in enumerate(calls)]
    return evidence(ops, ops)


def test_the_rank_that_does_not_know_the_new_plan_is_named() -> None:
    [cause] = causes(diagnose_ops(moved_to_the_spare()))
    assert (cause.kind, cause.ranks, cause.confidence) == ("p2p_unmatched", [2], 0.65)
    assert "it receives from rank 1, which does not expect it; rank 4 waits for it" in cause.summary
    assert "Rank 4 is waiting in send #1 to rank 2" in cause.summary


def test_an_old_partner_that_is_stuck_is_what_it_waits_for() -> None:
    """It neither sends nor receives, too."""
    evidence_of = moved_to_the_spare()
    del evidence_of.ops[1].operations[-1]
    found = causes(diagnose_ops(evidence_of))
    assert [cause.ranks for cause in found] != [[2]], found
    assert all("other partners" not in cause.summary for cause in found)


def test_one_that_receives_from_several_in_turn_waits_for_its_turn() -> None:
    found = causes(diagnose_ops(moved_to_the_spare(served=True)))
    assert all("other partners" not in cause.summary for cause in found)
    assert all(cause.ranks != [2] for cause in found)
