"""Replicas that make as many calls of their own as their data or their draws ask for, in a job that went on for steps."""

from __future__ import annotations

from hangdoctor.diagnosis.findings import Diverged
from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.diagnosis.ops.divergence import Divergence
from hangdoctor.diagnosis.ops.order import divergence_finding
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import only_cause
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = [0, 1, 2, 3, 4, 5]
WITHIN = {rank: [0, 1, 2] if rank < 3 else [3, 4, 5] for rank in WORLD}
ACROSS = {rank: [rank % 3, rank % 3 + 3] for rank in WORLD}
CALLS = {0: (14, 12, 16, 14), 1: (15, 14, 13, 16)}  # a step, within each replica


def rank_of_job(rank: int, last: list[Operation]) -> RankOps:
    """Its steps, of which the last is `last`."""
    made: list[Operation] = []
    within = 0
    for step, calls in enumerate(CALLS[rank // 3], start=1):
        made += [done(WITHIN[rank], within + n, site="block (m.py:4)") for n in range(1, calls + 1)]
        within += calls
        made += [
            done(ACROSS[rank], step, site="sync (t.py:9)"),
            done(WORLD, step, site="log (t.py:12)"),
        ]
    return rank_ops(rank, 6, made + last, WITHIN[rank], ACROSS[rank])


def job(left_out: int) -> list[RankOps]:
    """In the fifth step one rank of the second replica makes a call fewer within it."""
    ranks = []
    for rank in WORLD:
        first = sum(CALLS[rank // 3])
        calls = 4 if rank < 3 or rank == left_out else 5
        last = [done(WITHIN[rank], first + n, site="block (m.py:4)") for n in range(1, calls + 1)]
        partner = sum(ACROSS[rank]) - rank
        if rank >= 3 and rank != left_out:
            last[-1] = entered(WITHIN[rank], first + calls, site="block (m.py:4)")
        elif left_out in (rank, partner):
            last.append(done(ACROSS[rank], 5, site="sync (t.py:9)"))
            last.append(entered(WORLD, 5, site="log (t.py:12)"))
        else:
            last.append(entered(ACROSS[rank], 5, site="sync (t.py:9)"))
        ranks.append(rank_of_job(rank, last))
    return ranks


def test_who_made_one_fewer_than_its_own_replica_is_named() -> None:
    for rank in (3, 4, 5):
        cause = only_cause(diagnose_ops(evidence(job(rank))))
        assert cause.ranks == [rank] and cause.kind in ("order", "mismatch"), cause.summary
        assert f"all_reduce #5 of group {rank - 3},{rank} (t.py:9)" in cause.summary
        assert "all_reduce #63 of group 3-5 (m.py:4)" in cause.summary


def sent(tag: int, seq: int = 9, site: str = "forward (p.py:63)") -> Operation:
    return entered([0, 1], seq, "send", peer=1, detail=f"tag {tag}", site=site)


def test_a_send_with_another_tag_is_no_call_that_was_left_out() -> None:
    ranks = [rank_ops(rank, 2, [sent(9)]) for rank in (0, 1)]
    scene = Scene(evidence(ranks), set())

    def story(mine: Operation) -> Diverged:
        parted = Divergence(0, 1, "skipped", mine, theirs=sent(9), position=0)
        found = divergence_finding(scene, {0: parted}, []).story
        assert isinstance(found, Diverged)
        return found

    assert story(sent(10)).tags == ("tag 10", "tag 9")
    assert not story(sent(9)).tags and not story(sent(10, seq=10)).tags
    assert not story(sent(10, site="")).tags and not story(sent(10, site="b (p.py:9)")).tags
