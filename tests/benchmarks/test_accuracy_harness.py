"""The accuracy benchmark's own harness on a few cases: real hangs and simulated ones, each with its
exact culprits.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.accuracy.coordinates import KINDS as REAL_KINDS
from benchmarks.accuracy.coordinates import draw
from benchmarks.accuracy.findings import Findings, Made
from benchmarks.accuracy.score import Expected, Result, Tally, judge
from benchmarks.accuracy.simulate import simulate
from benchmarks.accuracy.simulated import capture_of, capture_of_folder, expected
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import NoRanksFound
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job
from hangdoctor.model.layout import Layout

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(dp=2, pp=2, tp=2)
SIMULATED = (
    "not_entered",
    "dead",
    "skipped",
    "extra",
    "swapped",
    "wrong_op",
    "wrong_dtype",
    "wrong_group",
    "missing_send",
    "missing_recv",
    "in_communication",
    "two_faults",
)


@pytest.mark.parametrize("kind", SIMULATED)
def test_simulated_culprits_from_memory_and_from_files(kind: str, tmp_path: Path) -> None:
    case = simulate(kind, LAYOUT, 1)
    case.write(tmp_path / "dumps")
    for capture in (
        capture_of(case.after, case.before, world=8),
        capture_of_folder(tmp_path / "dumps"),
    ):
        result = judge(
            Result("simulated", "", kind, 1, case.name), diagnose(capture), expected(case)
        )
        assert result.exact and result.kind_right and not result.victim, result


@pytest.fixture(scope="module")
def stem() -> Iterator[object]:
    real = pytest.importorskip("benchmarks.accuracy.real")
    with real.Stem() as running:
        yield running


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "seed"), [("sleep", 0), ("missing_send", 0)])
def test_real_culprits_with_and_without_operations(stem: object, kind: str, seed: int) -> None:
    pytest.importorskip("torch")
    from benchmarks.accuracy.real import run_case

    case = draw(kind, seed)
    results = {r.mode: r for r in run_case(stem, case, probe=True)}  # type: ignore[arg-type]
    for mode in ("stacks only", "black box"):
        assert results[mode].exact and results[mode].kind_right, results[mode]
    assert "dumps only" in results


@pytest.mark.torch
def test_a_job_that_the_capture_does_not_find_counts_as_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = pytest.importorskip("benchmarks.accuracy.real")

    def not_found(*_: object) -> None:
        raise NoRanksFound("no rank processes found on this host")

    monkeypatch.setattr(real, "run_case", not_found)
    monkeypatch.setattr(real, "Stem", contextlib.nullcontext)
    found = real.run_real(["sleep"], [0], lambda _: None)
    assert [(r.mode, r.status) for r in found] == [(m, "not found") for m in real.MODES]
    assert Tally.of(found) == Tally(3, 0.0, 0.0, 0.0)


def test_a_seed_draws_the_same_coordinate_and_every_kind_has_one() -> None:
    assert len(REAL_KINDS) >= 25
    for kind in REAL_KINDS:
        assert draw(kind, 7) == draw(kind, 7)
    assert len({draw("sleep", seed).place for seed in range(10)}) > 5


def verdict(status: str, *causes: tuple[str, list[int]]) -> Diagnosis:
    found = [Cause(kind, ranks, [], 0.9, "") for kind, ranks in causes]  # type: ignore[arg-type]
    return Diagnosis(status, Job("", 8, []), "", found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "exact", "victim", "kind"),
    [
        (verdict("hang", ("order", [3])), True, False, True),
        (verdict("hang", ("dead", [3])), True, False, False),
        (verdict("hang", ("order", [3, 4])), False, True, True),
        (verdict("hang", ("order", [3]), ("stopped", [5])), False, True, False),
        (verdict("hang", ("order", [2, 3])), True, False, True),
        (verdict("unknown"), False, False, False),
    ],
)
def test_what_counts_as_right(said: Diagnosis, exact: bool, victim: bool, kind: bool) -> None:
    truth = Expected([3], ["order"], alternatives=[[2, 3]])
    result = judge(Result("", "", "", 0, ""), said, truth)
    assert (result.exact, result.victim, result.kind_right) == (exact, victim, kind)


def test_a_job_that_does_not_hang_must_not_be_called_hung() -> None:
    truth = Expected([], ["slow"], hang=False, innocent_if_slow=[2])
    right = judge(Result("", "", "", 0, ""), verdict("slow", ("slow", [2])), truth)
    wrong = judge(Result("", "", "", 0, ""), verdict("hang", ("busy", [2])), truth)
    assert right.exact and not right.victim and not wrong.exact and wrong.victim
    assert Tally.of([right, wrong]).exact == 0.5


def test_what_a_run_kept_is_written_with_a_note(tmp_path: Path) -> None:
    made = {"logs": Made("2026-02-03", "hangdoctor 9", "5000", 60.0)}
    kept, output = tmp_path / "kept.json", tmp_path / "ACCURACY.md"
    result = Result("logs", "logs alone", "skip", 5000, "rank 3")
    kept.write_bytes(msgspec.json.encode(Findings([result], made=made)))
    words = ["--render", str(kept), "--output", str(output), "--note", "On a busy machine."]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.accuracy", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "seeds 5000.\nOn a busy machine.\n" in output.read_text()
