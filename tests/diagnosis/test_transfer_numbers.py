"""Sends and receives between nodes: each node numbers its own side alone."""

from __future__ import annotations

from typing import Any

from hangdoctor.diagnosis.transfer_numbers import agree
from hangdoctor.model.operations import RankOps
from hangdoctor.readers.flight_recorder import convert
from hangdoctor.readers.flight_recorder_format import of_plain
from tests.support.active_dumps import entry

GROUPS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def transfer(number: int, name: str, done: bool) -> dict[str, Any]:
    state = "completed" if done else "scheduled"
    own = entry(number, 0) | {"p2p_seq_id": number, "is_p2p": True, "state": state}
    return own | {"profiling_name": f"nccl:{name}"}


def dump(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"version": "2.10", "entries": list(entries), "pg_config": GROUPS, "pg_status": {}}


def sender() -> dict[str, Any]:
    """Three sends to rank 1, the last of which waits; between them one receive."""
    sends = [transfer(n, "send 0->1", done=n < 4) for n in (1, 2, 4)]
    return dump(*sends[:2], transfer(3, "recv 0<-1", done=True), sends[2])


def receiver() -> dict[str, Any]:
    """Its ring has lost the first receive."""
    recvs = [transfer(n, "recv 1<-0", done=n < 4) for n in (2, 4)]
    return dump(recvs[0], transfer(3, "send 1->0", done=True), recvs[1])


def numbers(ops: RankOps) -> list[tuple[str, int]]:
    return [(op.op, op.seq) for op in ops.operations]


def by_node() -> dict[int, RankOps]:
    """As two nodes convert them, each its own rank."""
    one = convert({0: of_plain(sender())}, world_size=2).ops
    other = convert({1: of_plain(receiver())}, world_size=2).ops
    return one | other


def test_they_agree_as_if_one_node_had_seen_both() -> None:
    whole = convert({0: of_plain(sender()), 1: of_plain(receiver())}, world_size=2).ops
    apart = by_node()
    assert numbers(apart[1]) != numbers(whole[1])
    now, _ = agree(apart, {})
    assert {rank: numbers(ops) for rank, ops in now.items()} == {
        rank: numbers(ops) for rank, ops in whole.items()
    }


def test_the_first_sample_is_shifted_alike() -> None:
    apart = by_node()
    now, before = agree(apart, {1: apart[1]})
    assert numbers(before[1]) == numbers(now[1])


def test_what_agrees_is_left_as_it_is() -> None:
    whole = convert({0: of_plain(sender()), 1: of_plain(receiver())}, world_size=2).ops
    now, before = agree(whole, {})
    assert now is whole and before == {}
