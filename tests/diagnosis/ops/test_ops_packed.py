"""Operations that stay packed until a pass looks at them give the verdict that they give as lists."""

from __future__ import annotations

import msgspec
import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.errors import WireError
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Operation, RankOps, Records
from hangdoctor.transport.capture_codec import Shared, pack_capture, unpack_capture
from hangdoctor.transport.packed_operations import Columns, Signature, check
from tests.support.ops_faults import FAULTS, make_case

LAYOUT = Layout(dp=2, pp=2, tp=2)


def carried(ops: dict[int, RankOps], lazy: bool) -> tuple[dict[int, RankOps], dict[int, RankOps]]:
    """The records of all ranks and of the sample before, as they come from one node."""
    ranks = [RankCapture(pid=r, rank=r, ops=o, ops_before=o) for r, o in ops.items()]
    capture = unpack_capture(pack_capture(NodeCapture("n", ranks=ranks)), Shared(lazy))
    now = {r.rank: r.ops for r in capture.ranks if r.ops is not None}
    before = {r.rank: r.ops_before for r in capture.ranks if r.ops_before is not None}
    return now, before


@pytest.mark.parametrize("kind", FAULTS)
def test_the_verdict_is_the_same(kind: str) -> None:
    tried = 0
    for seed in range(3):
        for ahead in (False, True):
            case = make_case(kind, LAYOUT, seed, ahead)
            if case is None:
                continue
            evidence = case.evidence(ring=60)
            verdicts = []
            for lazy in (False, True):
                now, before = carried(evidence.ops, lazy)
                assert all(isinstance(o.operations, Records) == lazy for o in now.values())
                one: OpsEvidence = msgspec.structs.replace(evidence, ops=now, earlier=before)
                verdicts.append(diagnose_ops(one))
            assert verdicts[0] == verdicts[1]
            tried += 1
    assert tried


def test_what_is_packed_is_what_was_there() -> None:
    some = [
        Operation(
            "w", n, "all_reduce", "done" if n % 3 else "entered", thread=1 + n % 2, entered_s=n
        )
        for n in range(1, 12)
    ]
    ops = RankOps(0, operations=some, side=[1])
    (now, before), (plain, _) = carried({0: ops}, True), carried({0: ops}, False)
    packed, listed = now[0].operations, plain[0].operations
    assert packed == listed and list(packed) == listed and len(packed) == len(listed) == 11
    assert list(reversed(packed)) == listed[::-1] and packed[2:5] == listed[2:5]
    assert [packed[i] for i in (0, 4, -1)] == [listed[i] for i in (0, 4, -1)]
    with pytest.raises(IndexError):
        packed[11]
    for name in ("unfinished", "unfinished_in_training", "newest_in_training", "groups_in_use"):
        assert getattr(now[0], name)() == getattr(plain[0], name)(), name
    opened = now[0].unfinished()
    assert all(any(o is mine for o in packed) for mine in opened), "the same objects each time"
    assert before[0].operations == listed


def test_the_tail_of_a_record_knows_what_is_in_it() -> None:
    some = [Operation("w", n, "all_reduce", "done", thread=7) for n in range(5)]
    some[1].state = "entered"
    ops = RankOps(0, operations=some)
    last = RankOps(0, operations=some[3:])
    ranks = [RankCapture(pid=1, rank=0, ops=ops, ops_before=last)]
    body = pack_capture(NodeCapture("n", ranks=ranks))
    [rank] = unpack_capture(body, Shared(lazy=True)).ranks
    assert rank.ops is not None and rank.ops_before is not None
    assert len(rank.ops.unfinished()) == 1 and rank.ops_before.unfinished() == []
    assert rank.ops_before.newest_in_training() is rank.ops.newest_in_training()


@pytest.mark.parametrize(
    "damage",
    [{"signatures": [5]}, {"signatures": [-1]}, {"seqs": []}, {"times": [1]}, {"seqs": [1 << 62]}],
)
def test_damage_is_seen_before_anything_is_unpacked(damage: dict[str, list[int]]) -> None:
    told = Columns(
        head=RankOps(0),
        groups=[],
        signatures=[0],
        seqs=[1],
        threads=[1],
        iterations=[1],
        times=[1, 1],
    )
    signature = Signature(
        group="w",
        op="all_reduce",
        state="done",
        reduce_op="",
        root=-1,
        peer=-1,
        shapes="",
        dtype="",
        site="",
        asynchronous=False,
        waited=False,
        failed=False,
        detail="",
    )
    check(told, [signature])
    with pytest.raises((IndexError, ValueError, OverflowError)):
        check(msgspec.structs.replace(told, **damage), [signature])
    with pytest.raises(WireError):
        unpack_capture(b"no capture", Shared(lazy=True))
