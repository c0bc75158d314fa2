"""A stage that runs fewer micro-batches than its neighbours: what it did in the place of a receive
comes later in the history of its like.
"""

from __future__ import annotations

from hangdoctor.diagnosis import wording
from hangdoctor.diagnosis.ops import OpsVerdict, diagnose_ops
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_records import done, entered, evidence, rank_ops

STAGES = {0: [0, 2, 4], 1: [1, 3, 5]}  # of two replicas, three stages each
SITE = "run (pipe.py:35)"


def stage(rank: int, micro: int, stop: tuple[str, int, int] | None = None) -> RankOps:
    """1F1B of a middle stage, as it exchanges with both neighbours, up to the transfer that it is
    in.
    """
    members = STAGES[rank % 2]
    before, after = rank - 2, rank + 2
    calls: list[tuple[str, int, int]] = []
    for n in range(1, micro + 2):
        if n <= micro:
            calls += [("recv", before, n), ("send", after, n)]
        if n > 1:
            calls += [("recv", after, n - 1), ("send", before, n - 1)]
    made: list[Operation] = []
    for at, (op, peer, seq) in enumerate(calls):
        there = (op, peer, seq) == stop
        how = entered if there else done
        made.append(how(members, seq, op, peer=peer, site=SITE, entered_s=float(at + 1)))
        if there:
            break
    return rank_ops(rank, 6, made, members)


def ends(rank: int, calls: list[tuple[str, int]], waits: bool = False) -> RankOps:
    """The first or last stage: its transfers with the middle one, in the last of which it may be."""
    members, peer = STAGES[rank % 2], 2 + rank % 2
    last = len(calls) if waits else 0
    ops = [
        (entered if at == last else done)(members, n, op, peer=peer, site=SITE, entered_s=float(at))
        for at, (op, n) in enumerate(calls, 1)
    ]
    return rank_ops(rank, 6, ops, members)


FIRST = [("send", 1), *((op, n + k) for n in range(1, 4) for op, k in (("send", 1), ("recv", 0)))]
LAST = [(op, n) for n in range(1, 5) for op in ("recv", "send")]


def pipelines(own: int) -> OpsVerdict:
    """Rank 3 runs so many micro-batches, all others four; its neighbours wait for it."""
    waits = [entered(range(6), 1, site="reduce (pipe.py:43)", entered_s=99.0)]
    other = [ends(0, [*FIRST, ("recv", 4)]), stage(2, 4), ends(4, LAST)]
    for ops in other:
        ops.operations = [*ops.operations, *waits]
    ranks = [
        *other,
        ends(1, FIRST[: FIRST.index(("send", own + 1)) + 1], waits=True),
        stage(3, own, ("send", 1, own)),
        ends(5, LAST[: LAST.index(("recv", own + 1)) + 1], waits=True),
    ]
    return diagnose_ops(evidence(ranks, ranks))


def test_the_receive_that_is_waited_for_was_left_out() -> None:
    [finding] = pipelines(2).findings
    assert (finding.kind, finding.ranks) == ("p2p_unmatched", [3])
    said = wording.summary(finding)
    assert (
        "Rank 3 skipped recv #3 from rank 1 (pipe.py:35) and went on to recv #2 from rank 5" in said
    )
    assert "came to fewer sends and receives than its neighbours expect" in wording.advice(finding)
