"""Where several ranks that left nothing may be, by what the others did with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.score import Result, judge
from benchmarks.accuracy.simulate import Case, Settings, simulate
from benchmarks.accuracy.simulated import capture_of, capture_of_folder, expected
from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.ops.group_members import GroupTable
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, RankOps, group_uid

SMALL, WIDE = Layout(dp=2, pp=2, tp=2), Layout(dp=4, pp=2, tp=2)
SILENT = Settings(silent=0.1)


def judged(case: Case, folder: Path | None = None) -> Result:
    if folder is None:
        capture = capture_of(case.after, case.before, world=case.layout.world_size)
    else:
        case.write(folder / "dumps")
        capture = capture_of_folder(folder / "dumps")
    result = Result("simulated", "silent", case.kind, case.seed, case.name)
    return judge(result, diagnose(capture), expected(case))


@pytest.mark.parametrize(
    ("kind", "layout", "seed"),
    [
        # both ranks of a pipeline are silent: no rank lists that group
        ("dead", SMALL, 1),
        # each of the two seems to wait for the other, in transfers that both have come to
        ("dead", SMALL, 2),
        ("two_faults", WIDE, 0),
    ],
)
def test_of_two_silent_ranks_the_one_that_waits_for_the_other_is_innocent(
    kind: str, layout: Layout, seed: int
) -> None:
    result = judged(simulate(kind, layout, seed, SILENT))
    assert result.exact and not result.victim, result.named


def test_transfers_of_dumps_do_not_show_how_far_a_silent_rank_came(tmp_path: Path) -> None:
    result = judged(simulate("not_entered", SMALL, 0, SILENT), tmp_path)
    assert result.named == [("not_entered", [4])]


@pytest.mark.parametrize(
    ("kind", "layout", "seed", "named"),
    [
        # the silent rank waits in a transfer for the one that is seen to do nothing
        ("not_entered", SMALL, 47, [("not_entered", [1])]),
        # it has got its transfer, and so it is at fault itself
        ("two_faults", Layout(dp=2, pp=4, tp=4), 55, [("not_entered", [6]), ("unreachable", [9])]),
    ],
)
def test_what_a_peer_recorded_beside_another_shows_how_far_a_silent_rank_came(
    kind: str, layout: Layout, seed: int, named: list[tuple[str, list[int]]], tmp_path: Path
) -> None:
    assert judged(simulate(kind, layout, seed, SILENT), tmp_path).named == named


@pytest.mark.parametrize(
    ("kind", "seed", "named"),
    [
        # 7 has sent to 3 what 6 still sends to 2: of these two silent ranks, 3 is ahead
        ("dead", 45, [("unreachable", [2])]),
        # 1 waits for 0, which waits in nothing that 1 has called before
        ("two_faults", 52, [("not_entered", [2]), ("unreachable", [0])]),
        # the line calls all_reduce on all other ranks
        ("wrong_op", 45, [("mismatch", [1])]),
        # what is pending alone has no rounds that one of the two could have left
        ("wrong_op", 901, [("mismatch", [2])]),
    ],
)
def test_pending_operations_show_how_far_a_silent_rank_came(
    kind: str, seed: int, named: list[tuple[str, list[int]]], tmp_path: Path
) -> None:
    pending = Settings(silent=0.1, only_active=True)
    assert judged(simulate(kind, SMALL, seed, pending), tmp_path).named == named


def table(known: list[int], groups: list[list[int]], world: int) -> GroupTable:
    ops = [
        RankOps(rank, world, groups=[Group(group_uid(g), g) for g in groups if rank in g])
        for rank in known
    ]
    found = GroupTable(ops, world, None)
    found.complete(known)
    return found


def test_a_group_that_only_silent_ranks_are_in_is_completed() -> None:
    found = table([0, 2, 4, 6], [[0, 4], [2, 6]], world=8)
    # 1, 3, 5, 7 are left, at the same distance as the groups that are known
    assert [list(found.members(u, r)) for r in (1, 3) for u in found.of_rank(r)] == [[1, 5], [3, 7]]


@pytest.mark.parametrize(
    "groups",
    [
        [[0, 1], [2, 3], [1, 2]],  # no partition
        [[0, 1], [2, 3]],  # what is left does not come out even
        [[0, 3], [1, 2]],  # two distances
    ],
)
def test_groups_that_do_not_part_the_job_are_left_alone(groups: list[list[int]]) -> None:
    found = table([0, 1, 2, 3], groups, world=5)
    assert found.of_rank(4) == []
