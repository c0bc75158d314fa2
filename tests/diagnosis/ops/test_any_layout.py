"""Jobs whose ranks are numbered in other orders than Megatron's default."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.sim_layout import Mesh, draw_mesh
from benchmarks.accuracy.simulate import Settings, simulate
from benchmarks.accuracy.simulated import capture_of, capture_of_folder
from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.ops import OpsEvidence
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.model.diagnosis import Cause

# TP2 PP2 DP4 with the ranks in the order dp, pp, tp.
BY_REPLICA = Mesh(order=("dp", "pp", "tp", "cp"), tp=2, pp=2, dp=4)
ORDERS = [
    BY_REPLICA,
    Mesh(order=("tp", "cp", "pp", "dp"), tp=2, pp=2, dp=4),  # picotron: replicas outermost
    Mesh(order=("pp", "tp", "dp", "cp"), tp=4, pp=3, dp=2, names="none", transfers="world"),
    Mesh(order=("cp", "dp", "tp", "pp"), tp=2, cp=2, dp=4, pp=2, ep=2, names="mesh"),
    Mesh(order=("tp", "dp", "pp", "cp"), tp=2, dp=8, shard=4, pp=2, names="none", schedule="gpipe"),
]


def cause_of(kind: str, mesh: Mesh, seed: int) -> tuple[Cause, list[int], str]:
    """The only cause that is found, the culprits, and what the fault was."""
    case = simulate(kind, mesh, seed, Settings())
    diagnosis = diagnose(capture_of(case.after, case.before, world=mesh.world_size))
    assert len(diagnosis.causes) == 1, (case.truth.detail, diagnosis.summary)
    return diagnosis.causes[0], case.truth.ranks, case.truth.detail


@pytest.mark.parametrize("mesh", ORDERS, ids=str)
@pytest.mark.parametrize(
    ("kind", "difference"),
    [
        ("skipped", "skipped"),
        ("extra", "added"),
        ("wrong_shape", "size"),
        ("wrong_dtype", "type"),
        ("wrong_op", "operation"),
        ("wrong_group", "group"),
        ("missing_send", "skipped"),
        ("not_entered", None),
    ],
)
def test_one_rank_alone_is_named_and_what_it_did(
    mesh: Mesh, kind: str, difference: str | None
) -> None:
    cause, culprits, fault = cause_of(kind, mesh, seed=3)
    assert cause.ranks == culprits, (fault, cause.summary)
    assert cause.difference == difference, (fault, cause.summary)


def test_a_skipped_gradient_reduction_does_not_make_a_column_guilty() -> None:
    """One rank leaves out what it shares with its replicas; its stage waits behind it in transfers."""
    for seed in range(8):
        cause, culprits, fault = cause_of("skipped", BY_REPLICA, seed)
        assert cause.ranks == culprits, (fault, cause.summary)
        assert "same role" not in cause.summary or len(cause.ranks) == 1


def test_a_swap_is_told_from_a_call_too_many() -> None:
    mesh = Mesh(order=("dp", "tp", "pp", "cp"), tp=4, pp=2, dp=2)
    said = {seed: cause_of("swapped", mesh, seed) for seed in range(6)}
    assert all(cause.ranks == culprits for cause, culprits, _ in said.values())
    swapped = [cause.summary for cause, _, _ in said.values() if cause.difference == "swapped"]
    assert swapped and all(" before " in text and " after it" in text for text in swapped)


def test_the_sentence_names_the_groups_and_peers_of_the_culprit_itself() -> None:
    cause, (rank,), fault = cause_of("missing_recv", BY_REPLICA, seed=2)
    stage = BY_REPLICA.coordinates(rank)["pp"]
    column = next(ranks for ranks in BY_REPLICA.groups("pp") if rank in ranks)
    assert f"Rank {rank} skipped recv" in cause.summary, (fault, cause.summary)
    assert f"from rank {column[1 - stage]} " in cause.summary


def test_programs_follow_from_the_groups() -> None:
    """The same stage in all replicas; in one tensor parallel group, too, but less alike."""
    mesh = Mesh(order=("dp", "pp", "tp", "cp"), tp=2, pp=4, dp=4, names="none", transfers="world")
    case = simulate("not_entered", mesh, 1, Settings())
    scene = Scene(
        OpsEvidence(ops={o.rank: o for o in case.after}, world_size=mesh.world_size), set()
    )
    for rank in range(mesh.world_size):
        stage = mesh.coordinates(rank)["pp"]
        assert {mesh.coordinates(r)["pp"] for r in scene.programs.like(rank)} == {stage}
        assert stage not in {mesh.coordinates(r)["pp"] for r in scene.programs.others(rank)}


def test_random_layouts_repeat() -> None:
    assert draw_mesh(7) == draw_mesh(7)
    assert len({str(draw_mesh(seed)) for seed in range(50)}) > 40


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        # the records begin after the transfer that was left out: only its number shows it
        ("missing_recv", 3033),
        ("missing_recv", 3052),
        ("missing_send", 3143),
        # the culprit's own records no longer hold where its device is, but what it has called
        ("missing_recv", 3120),
    ],
)
@pytest.mark.parametrize("files", [False, True])
def test_a_transfer_left_out_of_an_interleaved_pipeline(
    tmp_path: Path, kind: str, seed: int, files: bool
) -> None:
    mesh = draw_mesh(seed)
    assert mesh.schedule == "interleaved"
    case = simulate(kind, mesh, seed, Settings())
    capture = capture_of(case.after, case.before, world=mesh.world_size)
    if files:
        case.write(tmp_path / "dumps")
        capture = capture_of_folder(tmp_path / "dumps")
    found = diagnose(capture)
    assert [c.ranks for c in found.causes] == [case.truth.ranks], found.summary
    assert found.causes[0].difference == "skipped"


@pytest.mark.parametrize(
    ("drawn", "seed", "says", "line"),
    [
        (2036, 2038, "entered send #6013 to rank 4", "schedule.py:59"),
        (2111, 2112, "chose the wrong rank before the records start", "schedule.py:61"),
    ],
    ids=["in the records", "before the records"],
)
def test_a_send_to_the_wrong_stage_of_an_interleaved_pipeline(
    drawn: int, seed: int, says: str, line: str
) -> None:
    cause, culprits, fault = cause_of("wrong_peer", draw_mesh(drawn, 64), seed)
    assert (cause.ranks, cause.difference) == (culprits, "peer"), (fault, cause.summary)
    assert says in cause.summary and f"chooses the other rank at {line}" in cause.advice
