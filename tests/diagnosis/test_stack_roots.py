"""Roots that torch's recorder leaves out and stacks show: two ranks that each take themselves for the root."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.model.operations import Group, Operation, RankOps
from tests.support.captures import C10D, MAIN, causes, judged, stack, still

WORLD = Group("w", [0, 1, 2, 3], "default_pg")
HALVES = [Group("a", [0, 2], "1"), Group("b", [1, 3], "2")]


def in_call(op: str, line: int, **values: int) -> list[Frame]:
    frames = stack((op, C10D, 9), ("step", "/app/train.py", line), MAIN)
    frames[0].values = values
    return frames


def call(group: Group, seq: int, op: str, state: str) -> Operation:
    site = "step (/app/train.py:40)" if group is WORLD else "step (/app/train.py:10)"
    return Operation(group.uid, seq, op, state, site=site)  # type: ignore[arg-type]


def rank(number: int, frames: list[Frame], *calls: Operation) -> RankCapture:
    def records() -> RankOps:
        groups, own = [WORLD, *HALVES], list(calls)
        return RankOps(number, 4, "flight_recorder", groups=groups, operations=own)

    return still(number, frames, ops=records(), ops_before=records())


def job(op: str, roots: dict[int, dict[int | str, int]]) -> list[RankCapture]:
    """Those with a root are in the call of all; the others have left it, and wait in a later one."""
    ranks = []
    for number in range(4):
        if number in roots:
            own = {str(name): value for name, value in roots[number].items()}
            inside = call(WORLD, 5, op, "entered")
            ranks.append(rank(number, in_call(op, 40, **own), inside))
        else:
            half = HALVES[number % 2]
            passed, later = call(WORLD, 5, op, "done"), call(half, 3, "all_reduce", "entered")
            ranks.append(rank(number, in_call("all_reduce", 10), passed, later))
    return ranks


@pytest.mark.parametrize(
    ("op", "roots"),
    [
        ("broadcast", {2: {"src": 2, "group_src": 2}, 3: {"src": 3}}),
        ("broadcast", {2: {"group_src": 2}, 3: {"group_src": 3}}),
        ("reduce", {2: {"dst": 2}, 3: {"dst": 3}}),
    ],
)
def test_two_that_take_themselves_for_the_root_are_named(
    op: str, roots: dict[int, dict[int | str, int]]
) -> None:
    """It was the network, since all four had entered the call."""
    said = judged(*job(op, roots))
    assert causes(said) == [("mismatch", [2, 3])], said.summary
    assert (
        f"Ranks 2-3 (n1) disagree in {op} #5: root 2 on rank 2 and root 3 on rank 3" in said.summary
    )


def test_one_of_three_with_another_root_is_named() -> None:
    said = judged(*job("broadcast", {1: {"src": 2}, 2: {"src": 2}, 3: {"src": 3}}))
    assert causes(said) == [("mismatch", [3])], said.summary
    assert "root 3" in said.summary


def test_roots_that_agree_change_nothing() -> None:
    for roots in ({2: {"src": 2}, 3: {"src": 2}}, {2: {}, 3: {"src": 3}}, {2: {}, 3: {}}):
        said = judged(*job("broadcast", roots))
        assert causes(said) == [("in_communication", [2, 3])], (roots, said.summary)
        assert "stuck in broadcast #5, which ranks 0-1 have already completed" in said.summary


def test_the_second_half_of_a_list_of_objects_has_the_root_of_the_first() -> None:
    """Rank 2 has sent the sizes, and is one call further on than ranks 1 and 3."""

    def in_list(number: int, code: str, root: int) -> list[Frame]:
        frames = in_call("broadcast", 40, group_src=root)
        return [frames[0], Frame("broadcast_object_list", C10D, 40 + number, code), *frames[1:]]

    sizes, objects = (
        "broadcast(object_sizes_tensor, group_src=group_src)",
        "broadcast(object_tensor, group_src=group_src)",
    )
    first, second = call(WORLD, 5, "broadcast", "entered"), call(WORLD, 6, "broadcast", "entered")
    through = call(WORLD, 5, "broadcast", "done"), call(WORLD, 6, "broadcast", "done")

    def job(code: str) -> list[RankCapture]:
        return [
            rank(
                0, in_call("all_reduce", 10), *through, call(HALVES[0], 3, "all_reduce", "entered")
            ),
            rank(1, in_list(1, sizes, 1), first),
            rank(2, in_list(2, code, 2), through[0], second),
            rank(3, in_list(3, sizes, 2), first),
        ]

    said = judged(*job(objects))
    assert causes(said) == [("mismatch", [1])], said.summary
    assert "root 1" in said.summary and "root 2" in said.summary
    assert causes(judged(*job(sizes))) != [("mismatch", [1])], "another call, of another root"


def in_loop(number: int, seq: int, root: int, code: str) -> RankCapture:
    """In the broadcast of one of several tensors, from one line; those before it are done."""
    frames = in_call("broadcast", 40, src=root)
    frames[1].counts, frames[1].code = "t", code
    calls = [call(WORLD, n, "broadcast", "done" if n < seq else "entered") for n in (4, 5, 6)]
    return rank(number, frames, *calls[: seq - 3])


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("dist.broadcast(t, src=source)", [2]),
        ("dist.broadcast(t, src=self.source)", [2]),
        ("dist.broadcast(x, src=t)", [1, 2]),  # another root in each round
        ("dist.broadcast(x, src=choose(x))", [1, 2]),
        ("dist.broadcast(", [1, 2]),
    ],
)
def test_who_is_a_round_further_in_a_loop_had_its_root_in_the_round_before(
    code: str, named: list[int]
) -> None:
    said = judged(
        in_loop(0, 6, 1, code),
        in_loop(1, 5, 1, code),
        in_loop(2, 5, 2, code),
        in_loop(3, 6, 1, code),
    )
    assert causes(said) == [("mismatch", named)], said.summary
