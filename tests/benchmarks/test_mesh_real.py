"""Real jobs in layouts drawn at random: what is drawn, and that one of them is named."""

from __future__ import annotations

import random
import traceback

import pytest

from benchmarks.accuracy.sim_layout import draw_mesh

mesh_real = pytest.importorskip("benchmarks.accuracy.mesh_real")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
SEED = 500  # two context parallel ranks, four replicas


def drawn(kind: str, seed: int = SEED) -> object:
    found = mesh_real.draw(kind, draw_mesh(seed, mesh_real.MOST), random.Random(seed))
    assert found is not None
    return found


def test_only_the_culprits_have_programs_of_their_own() -> None:
    skipped = drawn("skipped")
    [(rank, changed)] = skipped.changed.items()  # type: ignore[attr-defined]
    assert [int(rank)] == skipped.placed.ranks and changed["how"] == ""  # type: ignore[attr-defined]
    asleep = drawn("not_entered")
    [mine] = asleep.changed.values()  # type: ignore[attr-defined]
    assert mine["how"] == "sleep" and 0 <= mine["strikes"] < len(mine["steps"])


def test_a_step_is_called_from_its_own_function_and_line() -> None:
    from benchmarks.accuracy.mesh_job import at_site

    seen: list[traceback.FrameSummary] = []
    at_site("forward (attention.py:31)")(lambda: seen.extend(traceback.extract_stack()))
    assert any((f.name, f.filename, f.lineno) == ("forward", "/job/attention.py", 31) for f in seen)


def test_a_skipped_call_of_a_real_job_is_named() -> None:
    from benchmarks.accuracy.real import Stem

    mesh = draw_mesh(SEED, mesh_real.MOST)
    with Stem(mesh.world_size, arguments=()) as stem:
        result = mesh_real._run_one(stem, "skipped", mesh, SEED)
    assert result is not None and result.exact and result.kind_right, result
