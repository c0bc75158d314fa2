"""What gloo's recorder does not show: transfers, and who is in a group that one rank alone has used."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture, SilentNode
from hangdoctor.model.operations import Group, Operation, RankOps
from tests.support.captures import C10D, LOAD, MAIN, causes, judged, stack, still

WORLD = Group("w", [0, 1, 2, 3], "default_pg")
PAIRS = [Group("a", [0, 1], "1"), Group("b", [2, 3], "2")]
HALF = Group("h", [2], "3")


def at(op: str, line: int, **values: int) -> list[Frame]:
    frames = stack((op, C10D, 9), ("step", "/app/train.py", line), MAIN)
    frames[0].values = values
    return frames


def done(group: Group, count: int, line: int) -> list[Operation]:
    return [_call(group, n, line, "done") for n in range(1, count + 1)]


def _call(group: Group, seq: int, line: int, state: str) -> Operation:
    site = f"step (/app/train.py:{line})"
    return Operation(group.uid, seq, "all_reduce", state, site=site)  # type: ignore[arg-type]


def rank(number: int, frames: list[Frame], groups: list[Group], *calls: Operation) -> RankCapture:
    def records() -> RankOps:
        unsure = [group.uid for group in groups if group is HALF]
        return RankOps(
            rank=number,
            world_size=4,
            source="flight_recorder",
            groups=groups,
            operations=list(calls),
            unsure=unsure,
        )

    return still(number, frames, ops=records(), ops_before=records())


def test_a_rank_in_a_transfer_is_not_missing_from_its_pair() -> None:
    """Rank 3 never came; rank 2 waits in its pair, and ranks 0 and 1 receive from them."""
    receiving = [
        rank(r, at("recv", 20, src=r + 2), [PAIRS[0]], *done(PAIRS[0], 3, 10)) for r in (0, 1)
    ]
    waits = _call(PAIRS[1], 3, 10, "entered")
    in_pair = rank(2, at("all_reduce", 10), [PAIRS[1]], *done(PAIRS[1], 2, 10), waits)
    asleep = rank(3, LOAD, [PAIRS[1]], *done(PAIRS[1], 2, 10))
    assert causes(judged(*receiving, in_pair, asleep)) == [("not_entered", [3])]


def test_who_waits_in_a_group_of_which_no_more_is_known_is_compared_by_its_calls() -> None:
    """Rank 2 is in the first call of a group; the others wait for it in one of all ranks."""
    waits = _call(WORLD, 3, 10, "entered")
    others = [rank(r, at("all_reduce", 10), [WORLD], *done(WORLD, 2, 10), waits) for r in (0, 1, 3)]
    own = _call(HALF, 1, 40, "entered")
    apart = rank(2, at("all_reduce", 40), [WORLD, HALF], *done(WORLD, 2, 10), own)
    said = judged(others[0], others[1], apart, others[2])
    [(kind, ranks)] = causes(said)
    assert ranks == [2] and kind in ("order", "mismatch"), said.summary
    assert "of group" not in said.summary, "it is not known who is in it"
    assert "train.py:40" in said.summary and "train.py:10" in said.summary


def test_ranks_that_all_wait_in_such_groups_are_not_said_to_have_a_fault_of_the_network() -> None:
    own = _call(HALF, 1, 40, "entered")
    apart = rank(2, at("all_reduce", 40), [HALF], own)
    others = [still(r, at("all_reduce", 10)) for r in (0, 1, 3)]
    said = judged(others[0], others[1], apart, others[2])
    assert "in_communication" not in [kind for kind, _ in causes(said)], said.summary


def test_a_rank_that_has_made_no_call_yet_is_seen_by_its_stack_beside_a_silent_node() -> None:
    waits = _call(WORLD, 1, 10, "entered")
    others = [rank(r, at("all_reduce", 10), [WORLD], waits) for r in (0, 1)]
    lost = SilentNode("n2", "no answer within 20 s", [3])
    said = judged(*others, still(2, LOAD), silent=[lost])
    assert ("not_entered", [2]) in causes(said), said.summary
    assert all(kind != "unreachable" or 2 not in ranks for kind, ranks in causes(said))


def test_a_ring_of_groups_at_one_line_is_told_by_the_records() -> None:
    """All are in the function that each group's reduction is made by: stacks show one operation of
    all.
    """
    rows = [Group("r0", [0, 1], "row"), Group("r1", [2, 3], "row")]
    columns = [Group("c0", [0, 2], "column"), Group("c1", [1, 3], "column")]
    first = {0: rows[0], 1: columns[1], 2: columns[0], 3: rows[1]}
    frames = at("all_reduce", 10)
    frames[0].group = "sub"
    ranks = [
        rank(r, frames, [*rows, *columns], _call(first[r], 1, 10, "entered")) for r in range(4)
    ]
    said = judged(*ranks)
    assert "network" not in said.summary, said.summary
    assert "ranks 0,3 in all_reduce #1 of group 'row' (0-1)" in said.summary
    assert "ranks 1-2 in all_reduce #1 of group 'column' (1,3)" in said.summary
