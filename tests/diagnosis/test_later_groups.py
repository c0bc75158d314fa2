"""Ranks that all make further groups: who asks for another mesh, or another group, than most."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture
from hangdoctor.model.diagnosis import Cause, Diagnosis
from tests.support.captures import C10D, still

MESH = "/site-packages/torch/distributed/device_mesh.py"
INSIDE = [
    Frame("_new_process_group_helper", C10D, 2169),
    Frame("_new_group_with_tag", C10D, 6056),
]


def by_mesh(*shape: int, line: int = 57, turn: int = 313, **user: object) -> list[Frame]:
    """`turn`: the line of torch's own loop over the axes."""
    return [
        *INSIDE,
        Frame("new_group", C10D, 5863, lists={"ranks": [0, turn]}),
        Frame("DeviceMesh.__init__", MESH, turn),
        Frame("init_device_mesh", MESH, 1583, lists={"mesh_shape": list(shape)} if shape else {}),
        Frame("main", "/app/train.py", line, "mesh = init_device_mesh('cpu', shape)", **user),  # type: ignore[arg-type]
    ]


def by_group(*ranks: int, **user: object) -> list[Frame]:
    call = Frame("new_group", C10D, 5863, lists={"ranks": list(ranks)})
    line = Frame("main", "/app/train.py", 60, "pair = dist.new_group(members)", **user)  # type: ignore[arg-type]
    return [*INSIDE, call, line]


def in_library(*ranks: int) -> list[Frame]:
    calls = Frame("initialize", "/v/site-packages/megatron/core/parallel_state.py", 9)
    *inner, _ = by_group(*ranks)
    return [*inner, calls, Frame("main", "/app/train.py", 60, "initialize(2)")]


def verdict(*stacks: list[Frame]) -> Diagnosis:
    ranks = [still(n, frames, world_size=len(stacks)) for n, frames in enumerate(stacks)]
    node = NodeCapture("n1", ranks=ranks)
    return diagnose(JobCapture("j", [node], [], len(stacks), taken=1.0))


def cause(*stacks: list[Frame]) -> Cause:
    found = verdict(*stacks)
    [one] = found.causes or found.open
    return one


def test_the_rank_with_another_mesh_is_named_whatever_turn_of_torchs_loop_it_is_in() -> None:
    usual = [by_mesh(2, 3, turn=300 + n) for n in range(5)]
    found = cause(*usual[:4], by_mesh(3, 2), usual[4])
    assert (found.kind, found.ranks, found.difference) == ("mismatch", [4], "group")
    assert found.summary == (
        "Rank 4 (n1, pid 13) entered init_device_mesh with mesh shape 3 x 2, the others with mesh shape 2 x 3; "
        "it is in main (train.py:57). Ranks 0-3,5 are waiting."
    )
    assert "train.py:57" in found.advice and "/proc/13/environ" in found.advice
    assert [e.says for e in found.evidence][:2] == [
        "mesh shape 2 x 3 at main (app/train.py:57)",
        "mesh shape 3 x 2 at main (app/train.py:57)",
    ]


def test_the_rank_that_makes_a_group_of_other_members_is_named() -> None:
    pair = [by_group(0, 1, 2, 3) for _ in range(3)]
    found = cause(*pair, by_group(0, 1, 3))
    assert (found.kind, found.ranks) == ("mismatch", [3])
    assert "entered new_group with members 0-1,3, the others with members 0-3" in found.summary
    assert found.confidence < cause(by_mesh(2, 2), by_mesh(2, 2), by_mesh(4)).confidence


def test_of_two_sides_of_equal_size_both_are_named() -> None:
    found = cause(by_mesh(2, 2), by_mesh(2, 2), by_mesh(4, 1), by_mesh(4, 1))
    assert (found.kind, found.ranks) == ("mismatch", [0, 1, 2, 3])
    assert "mesh shape 4 x 1 on ranks 2-3 and mesh shape 2 x 2 on ranks 0-1" in found.summary
    assert found.confidence == 0.5


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param([by_mesh(2, 2)] * 3, id="all ask for the same"),
        pytest.param([by_mesh(2, 2), by_mesh(2, 2), by_mesh()], id="one is not known"),
        pytest.param([by_mesh(2, 2), by_mesh(2, 2), by_mesh(4, 1, line=80)], id="another line"),
        pytest.param([by_mesh(n, 2, loops=True) for n in (1, 1, 2)], id="in a loop"),
        pytest.param([by_group(0, n, loops=True) for n in (1, 1, 2)], id="groups in a loop"),
        pytest.param(
            [by_group(0, 1), by_group(0, 1), by_group(2, 3), by_group(2, 3)],
            id="each makes its own",
        ),
        pytest.param([by_group(0, 1), by_group(0, 1), by_group(2)], id="its own, less than most"),
        pytest.param([in_library(0, n) for n in (1, 1, 2)], id="in a library, perhaps in a loop"),
        pytest.param([by_mesh(n, 1, values={"i": n}) for n in (1, 1, 2)], id="by a loop's counter"),
    ],
)
def test_no_rank_is_named_and_no_network(stacks: list[list[Frame]]) -> None:
    found = cause(*stacks)
    assert (found.kind, found.ranks) == ("start_stall", list(range(len(stacks))))
    assert "same groups in one order" in found.advice
    assert "MASTER_ADDR" not in found.advice and "reach each other" not in found.summary


def test_of_calls_at_two_lines_each_is_named() -> None:
    found = cause(by_mesh(2, 2), by_mesh(2, 2), by_mesh(4, 1, line=80))
    assert (
        "ranks 0-1 in init_device_mesh (train.py:57), rank 2 in init_device_mesh (train.py:80)"
        in (found.summary)
    )


def test_a_mesh_that_makes_the_jobs_own_group_first_is_the_first_set_up() -> None:
    frames = [
        Frame("init_process_group", C10D, 1700),
        Frame("init_device_mesh", MESH, 1500, lists={"mesh_shape": [2, 2]}),
        Frame("main", "/app/train.py", 57, "init_device_mesh('cpu', shape)"),
    ]
    found = cause(frames, frames, frames)
    assert "they probably cannot reach each other" in found.summary


def test_a_rank_that_is_past_it_is_asked_for_the_groups_that_it_made() -> None:
    past = [Frame("all_reduce", C10D, 9), Frame("main", "/app/train.py", 70, "dist.all_reduce(x)")]
    found = cause(*[by_mesh(2, 2)] * 3, past)
    assert found.ranks == [3]
    assert "skipped it, or made another group there" in found.advice


def past(line: int = 64, **user: object) -> list[Frame]:
    return [
        Frame("all_reduce", C10D, 3252),
        Frame("main", "/app/train.py", line, "dist.all_reduce(x, group=pair)", **user),  # type: ignore[arg-type]
    ]


def test_members_that_are_left_alone_with_their_group_tell_that_each_makes_another() -> None:
    """Were it made by all together, nobody could be past it."""
    pair = [by_group(0, 1), by_group(0, 1)]
    found = cause(*pair, past(), past())
    assert (found.kind, found.ranks) == ("mismatch", [0, 1])
    assert "ranks 2-3 have left it: the ranks make different groups there" in found.summary
    assert "every rank make every group at train.py:60" in found.advice


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param([by_group(0, 1), by_group(0, 1), past(), past(41)], id="one has not come"),
        pytest.param([by_group(0, 1, 2), by_group(0, 1, 2), past(), past()], id="a member is past"),
        pytest.param([by_group(0, 1, loops=True)] * 2 + [past()] * 2, id="in a loop"),
    ],
)
def test_members_alone_may_wait_for_others_all_the_same(stacks: list[list[Frame]]) -> None:
    assert "different groups" not in verdict(*stacks).summary


def counted(number: int, *ranks: int) -> list[Frame]:
    """In a loop, where torch's own frame has the members and the number of the group."""
    helper, tagged = INSIDE
    lists = {"ranks": list(ranks), "group number": [number]}
    tagged = Frame(tagged.name, C10D, tagged.line, lists=lists)
    _, _, call, line = by_group(*ranks, loops=True)
    return [helper, tagged, call, line]


def test_who_made_more_groups_before_the_same_members_is_named() -> None:
    """Groups meet in the store under their numbers."""
    found = cause(
        counted(1, 0, 2, 4),
        counted(2, 1, 3, 5),
        counted(1, 0, 2, 4),
        counted(2, 1, 3, 5),
        counted(4, 0, 2, 4),
        counted(5, 1, 3, 5),
    )
    assert (found.kind, found.ranks, found.difference) == ("mismatch", [4, 5], "group")
    assert found.summary == (
        "Ranks 4-5 (n1) entered new_group with members 0,2,4 as group #4 and 1,3,5 as #5, the others with members "
        "0,2,4 as group #1 and 1,3,5 as #2; they are in main (train.py:60). Ranks 0-3 are waiting."
    )
    assert "same groups in one order" in found.advice and "train.py:60" in found.advice
    assert [e.says for e in found.evidence][:2] == [
        "members 0,2,4 as group #1 at main (app/train.py:60)",
        "members 0,2,4 as group #4 at main (app/train.py:60)",
    ]


def test_who_makes_a_group_of_other_members_under_the_same_number_is_named() -> None:
    """Rank 0 began with the pairs: rank 4 comes to its pair later, which is no reason to name it."""
    fours = [counted(1, 0, 1, 2, 3)] * 3
    pairs = [counted(3, 0, 4), counted(4, 1, 5), counted(5, 2, 6), counted(6, 3, 7)]
    found = cause(counted(1, 0, 4), *fours, *pairs)
    assert (found.kind, found.ranks) == ("mismatch", [0])
    assert "with members 0,4 as group #1, the others with members 0-3 as group #1" in found.summary


def test_of_two_orders_on_as_many_ranks_each_both_stay_open() -> None:
    found = verdict(counted(1, 0, 2), counted(2, 1, 3), counted(3, 0, 2), counted(4, 1, 3))
    assert not found.causes and found.open[0].ranks == [0, 1, 2, 3]
    assert "members 0,2 as group #1 and 1,3 as #2 on ranks 0-1" in found.summary
    assert "members 0,2 as group #3 and 1,3 as #4 on ranks 2-3" in found.summary


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param([counted(1, 0, 2), counted(2, 1, 3)] * 2, id="one order"),
        pytest.param([counted(1, 0, 1)] * 2 + [counted(1, 2, 3)] * 2, id="each makes its own"),
        pytest.param([counted(1, 0, 1, 2)] * 2 + [by_group(0, 1, loops=True)], id="one not known"),
    ],
)
def test_numbers_of_groups_that_agree_name_nobody(stacks: list[list[Frame]]) -> None:
    assert cause(*stacks).kind == "start_stall"


def test_who_waits_for_members_that_are_past_the_number_of_its_group_is_named() -> None:
    """Ranks 4-5 have another order of axes: rank 1 has made a pair with rank 0 under number 1 and is at 5."""
    found = cause(
        counted(4, 0, 2, 4),
        counted(5, 1, 3, 5),
        counted(4, 0, 2, 4),
        counted(5, 1, 3, 5),
        counted(2, 1, 4),
        counted(3, 2, 5),
    )
    assert (found.kind, found.ranks) == ("mismatch", [4, 5])
    assert "members 1,4 as group #2 and 2,5 as #3, the others with members 0,2,4" in found.summary


def test_one_who_left_the_making_of_a_group_out_is_past_those_who_wait_for_it() -> None:
    """Rank 3 goes on to the second group; the others are in the first."""
    found = cause(*[counted(1, 0, 1, 2, 3)] * 3, counted(2, 1, 3))
    assert (found.kind, found.ranks) == ("mismatch", [3])
