"""Groups of the recorder, whose members gloo leaves out, beside those of the same names in the box."""

from __future__ import annotations

from hangdoctor.model.operations import Group, Operation, RankOps
from hangdoctor.readers.flight_recorder import convert
from hangdoctor.readers.flight_recorder_format import Dump, of_plain
from hangdoctor.readers.recorder_beside import named_as_in_box

BOX = [Group("w", [0, 1, 2, 3], "default_pg"), Group("s", [1, 3], "mesh_fsdp")]
BOX += [Group("t", [0, 1], "mesh_tp"), Group("t2", [0, 1], "mesh_tp")]
BOX += [Group("p", [0, 2], "mesh_pp"), Group("p2", [1, 3], "mesh_pp")]


def ops(groups: list[Group], *operations: str) -> RankOps:
    made = [Operation(group, n, "all_reduce") for n, group in enumerate(operations, 1)]
    return RankOps(rank=1, world_size=4, groups=groups, operations=made)


def test_members_that_were_guessed_are_those_of_the_box() -> None:
    guessed = [Group("g", [0, 1, 2, 3], "mesh_fsdp"), Group("t3", [0, 1], "mesh_tp")]
    found = named_as_in_box(ops(guessed, "g", "t3", "other"), ops(BOX))
    assert [(g.uid, g.ranks) for g in found.groups] == [("s", [1, 3]), ("t", [0, 1])]
    assert [op.group for op in found.operations] == ["s", "t", "other"]


def test_what_the_box_does_not_decide_stays() -> None:
    guessed = [Group("g", [0, 2], "mesh_pp"), Group("h", [2], "unknown")]
    mine = ops(guessed, "g", "h")
    assert named_as_in_box(mine, ops(BOX)) == mine
    assert named_as_in_box(mine, None) is mine
    one_name_twice = ops([Group("g", [0], "mesh_fsdp"), Group("g", [0], "mesh_tp")], "g")
    assert named_as_in_box(one_name_twice, ops(BOX)) is one_name_twice


def test_groups_of_the_same_members_are_told_apart_though_one_rank_used_one_alone() -> None:
    """gloo's dumps mention a group where it was used: its name says which one it is."""
    dumps = {0: gloo_dump("0", "1"), 1: gloo_dump("1"), 2: gloo_dump("1")}
    found = convert(dumps, world_size=3)
    used = {rank: [op.group for op in ops.operations] for rank, ops in found.ops.items()}
    assert used[0][1:] == used[1] == used[2]
    assert used[0][0] != used[0][1]


def gloo_dump(*groups: str) -> Dump:
    """One all_reduce of each group."""
    rows = [
        {
            "record_id": number,
            "process_group": [name, "default_pg" if name == "0" else "undefined"],
            "collective_seq_id": 1,
            "profiling_name": "gloo:all_reduce",
            "retired": True,
        }
        for number, name in enumerate(groups)
    ]
    return of_plain({"version": "2.10", "entries": rows, "pg_config": {}})
