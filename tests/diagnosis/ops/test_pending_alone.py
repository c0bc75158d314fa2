"""Verdicts from dumps that hold pending operations alone: who differs from ranks with the same role.

Each case is one that earlier versions answered with a whole ring of ranks that wait for one another.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.simulate import Settings, simulate
from benchmarks.accuracy.simulated import capture_of_folder
from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.ops.group_members import Role
from hangdoctor.diagnosis.ops.pending import Pending, have_in_common, inversion_of
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.layout import Layout

SMALL, PIPELINE, LARGE = (
    Layout(dp=2, pp=2, tp=2),
    Layout(dp=2, pp=4, tp=4),
    Layout(dp=4, pp=4, tp=8),
)
TP: Role = (4, 1, "tp", 0)
WORLD: Role = (8, 1, "world", 0)


def verdict_on(folder: Path, kind: str, layout: Layout, seed: int) -> tuple[Diagnosis, list[int]]:
    case = simulate(kind, layout, seed, Settings(only_active=True), in_memory=False)
    case.write(folder / "dumps")
    return diagnose(capture_of_folder(folder / "dumps")), case.truth.ranks


@pytest.mark.parametrize(
    ("kind", "layout", "seed"),
    [
        # ranks of other replicas have nothing in common with it: they have no say
        ("missing_recv", PIPELINE, 2),
        # those that have are not the first six of its role
        ("missing_recv", LARGE, 0),
        # two ranks wait for a transfer with it that it has not called
        ("wrong_peer", PIPELINE, 0),
        ("wrong_peer", PIPELINE, 1),
        # a reduction of gradients beside it is no barrier
        ("wrong_peer", PIPELINE, 701),
        # its wrong send was taken for the one that was to come
        ("wrong_peer", LARGE, 703),
        # it sends from a line that sends the other way everywhere else
        ("wrong_peer", PIPELINE, 49),
        # no pending call of ranks with its role can be compared, but their counts can
        ("extra", SMALL, 707),
        # two lines under one number: ranks at the other one's place agree with that
        ("skipped", Layout(dp=4, pp=2, tp=2), 900),
    ],
)
def test_the_rank_that_differs_is_named_and_not_the_ring(
    tmp_path: Path, kind: str, layout: Layout, seed: int
) -> None:
    verdict, culprits = verdict_on(tmp_path, kind, layout, seed)
    assert [c.ranks for c in verdict.causes] == [culprits]


def test_a_call_too_many_is_the_one_with_the_number_of_another_call(tmp_path: Path) -> None:
    verdict, _ = verdict_on(tmp_path, "extra", SMALL, 47)
    said = "Rank 4 made one call too many, broadcast #17019"
    assert verdict.summary.startswith(said), verdict.summary


def test_a_line_that_sends_elsewhere_on_all_other_ranks(tmp_path: Path) -> None:
    silent = Settings(only_active=True, silent=0.1)
    case = simulate("wrong_peer", PIPELINE, 46, silent, in_memory=False)
    case.write(tmp_path / "dumps")
    verdict = diagnose(capture_of_folder(tmp_path / "dumps"))
    said = "Rank 8 entered send #1 to rank 24 (schedule.py:61), where calls of that line are with rank 16."
    assert verdict.summary.startswith(said), verdict.summary


def test_the_send_to_another_rank_is_said(tmp_path: Path) -> None:
    verdict, _ = verdict_on(tmp_path, "wrong_peer", PIPELINE, 1)
    said = "Rank 0 entered send #1 to rank 16 (schedule.py:61) where rank 1, which has the same role, entered send #1 to rank 8."
    assert verdict.summary.startswith(said)
    assert verdict.causes[0].difference == "peer"


@pytest.mark.parametrize(
    ("kind", "layout", "seed", "difference"),
    [
        # the swapped calls are pending at one place of both ranks
        ("swapped", SMALL, 20, "swapped"),
        ("swapped", PIPELINE, 20, "swapped"),
        # one number of the group means another line to the other rank: no shift of its calls
        ("wrong_group", SMALL, 20, "group"),
        # the rank that is compared has no call of that line pending, but others around it have
        ("wrong_group", SMALL, 21, "group"),
        ("wrong_group", LARGE, 20, "group"),
        ("extra", Layout(dp=4, pp=2, tp=2), 22, "added"),
        # the wrong send has ended: its peer took it for the one that was to come
        ("wrong_peer", LARGE, 20, "peer"),
    ],
)
def test_how_the_calls_differ_is_said(
    tmp_path: Path, kind: str, layout: Layout, seed: int, difference: str
) -> None:
    verdict, culprits = verdict_on(tmp_path, kind, layout, seed)
    assert [(c.ranks, c.difference) for c in verdict.causes] == [(culprits, difference)]


def test_ranks_without_a_dump_around_the_ring_are_passed_over(tmp_path: Path) -> None:
    settings = Settings(only_active=True, silent=0.1)
    case = simulate("wrong_peer", LARGE, 0, settings, in_memory=False)
    case.write(tmp_path / "dumps")
    verdict = diagnose(capture_of_folder(tmp_path / "dumps"))
    assert [c.ranks for c in verdict.causes] == [case.truth.ranks]


def pending(places: list[int], numbers: list[int], role: Role, **completed: int) -> Pending:
    done = {TP: completed.get("tp", 0), WORLD: completed.get("world", 0)}
    roles = [role] * len(places)
    calls = [("all_reduce", "")] * len(places)
    p2p = [False] * len(places)
    return Pending(places, numbers, roles, calls, p2p=p2p, completed=done)


def test_one_has_more_of_one_group_and_the_other_more_of_another() -> None:
    early = pending([90], [5], WORLD, tp=30, world=4)
    late = pending([120], [52], TP, tp=51, world=4)
    found = inversion_of(early, late)
    assert found is not None and found.mine == 0 and found.extra
    assert not have_in_common(early, late)


def test_one_that_is_merely_behind_is_no_inversion() -> None:
    behind = pending([90], [31], TP, tp=30, world=4)
    ahead = pending([120], [5], WORLD, tp=51, world=4)
    assert inversion_of(behind, ahead) is None
    assert inversion_of(ahead, behind) is None
