"""Cases that active-only dumps cannot decide are counted as such, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy import sim_mirror, sim_twins, simulated
from benchmarks.accuracy.score import Result, judge
from benchmarks.accuracy.sim_dumps import active_only
from benchmarks.accuracy.simulate import Case, Settings, simulate
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.layout import Layout

ACTIVE = Settings(only_active=True)


def case_of(
    kind: str, seed: int, dp: int = 2, tp: int = 2, pp: int = 2, settings: Settings = ACTIVE
) -> Case:
    return simulate(kind, Layout(dp=dp, pp=pp, tp=tp), seed, settings)


def verdict_on(case: Case, folder: Path) -> Result:
    case.write(folder / "dumps")
    result = Result("simulated", "active-only dumps", case.kind, case.seed, case.name)
    found = diagnose(simulated.capture_of_folder(folder / "dumps"))
    return judge(result, found, simulated.expected(case))


@pytest.mark.parametrize(("kind", "seed", "dp"), [("wrong_dtype", 2, 2), ("wrong_op", 706, 4)])
def test_two_faults_leave_equal_dumps_and_both_ranks_are_named(
    tmp_path: Path, kind: str, seed: int, dp: int
) -> None:
    case = case_of(kind, seed, dp)
    [culprit] = case.truth.ranks
    found = sim_mirror.mirrored(case)
    assert found is not None
    mirror, pair = found
    [other] = set(pair) - {culprit}
    for rank in range(case.layout.world_size):
        ours, theirs = case.exporter.dump(rank), mirror.dump(rank)
        assert active_only(ours) == active_only(theirs)
    # and they are two faults: before, both of them made the call as the other one does now
    assert case.exporter.dump(culprit) != mirror.dump(culprit)
    assert case.exporter.dump(other) != mirror.dump(other)
    result = verdict_on(case, tmp_path)
    assert result.undecidable and result.exact
    assert [ranks for _, ranks in result.named] == [sorted(pair)]


@pytest.mark.parametrize(("kind", "seed", "dp"), [("wrong_dtype", 0, 2), ("wrong_op", 1, 4)])
def test_what_other_ranks_have_pending_decides(
    tmp_path: Path, kind: str, seed: int, dp: int
) -> None:
    case = case_of(kind, seed, dp)
    result = verdict_on(case, tmp_path)
    assert result.exact and not result.undecidable
    assert [ranks for _, ranks in result.named] == [case.truth.ranks]


@pytest.mark.parametrize("kind", ["skipped", "wrong_peer", "missing_send", "in_communication"])
def test_only_one_wrong_signature_of_two_can_be_undecidable(kind: str) -> None:
    layout = Layout(dp=2, pp=4, tp=2)
    assert sim_mirror.either(simulate(kind, layout, 1, ACTIVE)) == []


def test_dumps_with_a_history_are_never_undecidable() -> None:
    case = case_of("wrong_dtype", 2, settings=Settings())
    assert not simulated.expected(case).undecidable


@pytest.mark.parametrize(
    ("seed", "differences"), [(22, {"skipped", "added", "swapped"}), (20, {"swapped"})]
)
def test_a_host_that_stops_after_its_wrong_call_may_have_meant_to_make_the_other(
    seed: int, differences: set[str]
) -> None:
    case = case_of("swapped", seed)
    assert sim_twins.same_evidence(case, sim_twins.of_dumps(case)) == differences


@pytest.mark.parametrize(("seed", "alike"), [(22, True), (20, False)])
def test_another_difference_counts_only_where_it_leaves_the_same(
    tmp_path: Path, seed: int, alike: bool
) -> None:
    case = case_of("swapped", seed)
    case.write(tmp_path / "dumps")
    found = diagnose(simulated.capture_of_folder(tmp_path / "dumps"))
    found.causes[0].difference = "skipped"
    result = judge(Result("", "", case.kind, seed, ""), found, simulated.expected(case))
    assert result.explained is False
    simulated.compare_twins(result, found, case, sim_twins.of_dumps(case))
    assert (result.explained, result.same_evidence) == (alike, alike)


def test_silent_ranks_that_could_each_be_the_culprit_are_a_right_set() -> None:
    """Ranks 4, 24 and 26 are silent, and all others wait for them in one operation; rank 0 is seen."""
    case = case_of("swapped", 30, tp=4, pp=4, settings=Settings(silent=0.1))
    assert case.missing == [4, 24, 26] and case.truth.ranks == [4]
    alike = [{4, 24, 26}, {4, 24}]
    assert all(sim_twins.equally_suspect(case, some, sim_twins.of_memory) for some in alike)
    for named in ({4}, {24, 26}, {0, 4}):
        assert not sim_twins.equally_suspect(case, named, sim_twins.of_memory)


def test_a_silent_rank_beside_a_wrong_type_may_be_the_culprit_of_another_job() -> None:
    """Rank 2 calls with another type; its partner 3 is silent, and so is 10, which does nothing wrong."""
    case = case_of("wrong_dtype", 52, dp=4, settings=Settings(silent=0.1, only_active=True))
    evidence = sim_twins.of_dumps(case)
    assert (case.truth.ranks, case.missing) == ([2], [3, 10])
    assert sim_twins.another_job(case, {3}, evidence)
    assert not sim_twins.another_job(case, {10}, evidence)
