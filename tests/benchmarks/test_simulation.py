"""The simulated NCCL jobs: the same for the same seed, stuck only where something forbids going on,
and readable.
"""

import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from benchmarks.accuracy.sim_program import iteration
from benchmarks.accuracy.simulate import KINDS, MOVING, Case, Settings, simulate
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Operation, RankOps
from hangdoctor.readers.flight_recorder import read_folder

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(dp=2, pp=4, tp=2)
HANGS = sorted(set(KINDS) - set(MOVING))
# In memory, only a dead rank's evidence is gone; everything else is there, starts included.
FULL = Settings(timing=True, ring=1000)


def fingerprint(case: Case) -> str:
    return hashlib.blake2b(
        msgspec.json.encode([case.truth, case.before, case.after, case.missing])
    ).hexdigest()


def test_same_seed_same_case_in_another_process() -> None:
    code = (
        "from tests.benchmarks.test_simulation import *; "
        "print(*(fingerprint(simulate(k, LAYOUT, 5, Settings(silent=0.2))) for k in sorted(KINDS)))"
    )
    environ = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert other.returncode == 0, other.stderr
    mine = [fingerprint(simulate(k, LAYOUT, 5, Settings(silent=0.2))) for k in sorted(KINDS)]
    assert mine == other.stdout.split()
    assert len({fingerprint(simulate("not_entered", LAYOUT, seed)) for seed in range(8)}) > 4


def test_programs_of_one_iteration_match_each_other() -> None:
    """As many sends as recvs between neighbours, and stages in the order of 1F1B."""
    steps = [iteration(LAYOUT, stage, 6) for stage in range(4)]
    for stage in range(3):
        down = sum(s.op == "send" and s.hop == 1 for s in steps[stage])
        assert down == sum(s.op == "recv" and s.hop == -1 for s in steps[stage + 1]) == 6
        up = sum(s.op == "send" and s.hop == -1 for s in steps[stage + 1])
        assert up == sum(s.op == "recv" and s.hop == 1 for s in steps[stage]) == 6
    order = "".join(s.site[0] for s in steps[1] if s.axis == "tp" and s.op == "all_reduce")[::2]
    assert order == "ff" + "fb" * 4 + "bb"


@pytest.mark.parametrize(
    "layout", [Layout(1, 1, 1), Layout(2, 1, 1), Layout(1, 5, 3), Layout(3, 2, 1)]
)
def test_a_job_without_a_fault_runs_to_its_end(layout: Layout) -> None:
    case = simulate("healthy", layout, 0, FULL)
    simulation = case.exporter.snapshot.simulation
    assert not simulation.hung
    assert all(end < 1e9 for ends in simulation.ends for end in ends)


@pytest.mark.parametrize("kind", HANGS)
@pytest.mark.parametrize("seed", range(3))
def test_no_rank_waits_for_what_is_there(kind: str, seed: int) -> None:
    """No started operation could complete; and in every job that hangs, something has been started."""
    case = simulate(kind, LAYOUT, seed, FULL)
    assert case.before is case.after
    groups = {g.uid: g.ranks for r in case.after for g in r.groups}
    meetings: dict[object, list[tuple[int, Operation]]] = defaultdict(list)
    for r in case.after:
        for op in r.operations:
            if op.state == "started":
                meetings[meeting(r, op)].append((r.rank, op))
    assert meetings
    for (uid, *_), there in meetings.items():
        if there[0][1].op in ("send", "recv"):
            assert len(there) == 1
            continue
        everybody = {rank for rank, _ in there} == set(groups[uid])
        agreed = len({op.signature() for _, op in there}) == 1
        if kind == "in_communication" and everybody and agreed:
            assert set(case.truth.ranks) == set(groups[uid])
            continue
        assert not (everybody and agreed), (kind, there)


def meeting(r: RankOps, op: Operation) -> tuple[object, ...]:
    if op.op in ("send", "recv"):
        ends = (r.rank, op.peer) if op.op == "send" else (op.peer, r.rank)
        return (op.group, *ends, op.seq)
    return (op.group, op.seq)


@pytest.mark.parametrize("seed", range(4))
def test_two_faults_both_show(seed: int) -> None:
    """Each culprit has done all that it was given, so that neither merely waits for the other."""
    case = simulate("two_faults", LAYOUT, seed, FULL)
    assert len(case.truth.ranks) == 2
    by_rank = {r.rank: r for r in case.after}
    for rank in case.truth.ranks:
        assert all(op.state == "done" for op in by_rank[rank].operations)


def test_hosts_run_ahead_of_their_devices() -> None:
    case = simulate("not_entered", LAYOUT, 1)
    ahead = [sum(op.state != "done" for op in r.operations) for r in case.after]
    assert max(ahead) > 3 and len(set(ahead)) > 2
    assert all(r.runs_ahead and r.overwritten and len(r.operations) <= 50 for r in case.after)


@pytest.mark.parametrize("kind", MOVING)
def test_a_moving_job_moves_on_every_rank(kind: str) -> None:
    case = simulate(kind, LAYOUT, 2)
    for before, after in zip(case.before, case.after, strict=True):
        assert before.rank == after.rank and last_done(after) > last_done(before)


def last_done(r: RankOps) -> float:
    return max(op.left_s for op in r.operations)


def test_silent_ranks_leave_nothing_and_widen_the_truth_only_if_guilty() -> None:
    cases = [simulate("not_entered", LAYOUT, seed, Settings(silent=0.25)) for seed in range(20)]
    for case in cases:
        assert len(case.missing) == 4
        assert {r.rank for r in case.after} == set(range(16)) - set(case.missing)
        guilty_and_silent = set(case.truth.ranks) & set(case.missing)
        assert bool(case.truth.alternatives) <= bool(guilty_and_silent)
    assert any(c.truth.alternatives for c in cases) and any(not c.truth.alternatives for c in cases)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_dumps_say_what_memory_says(form: str, tmp_path: Path) -> None:
    case = simulate("missing_send", LAYOUT, 3, Settings(silent=0.1, timing=True))
    case.write(tmp_path / "dumps", form)
    result = read_folder(tmp_path / "dumps")
    assert result.missing == case.missing and not result.skipped
    for wanted in case.after:
        got = result.ops[wanted.rank]
        assert [comparable(o) for o in got.operations] == [comparable(o) for o in wanted.operations]
        assert {g.uid: g.ranks for g in got.groups} == {g.uid: g.ranks for g in wanted.groups}
        assert got.overwritten and got.runs_ahead


def comparable(o: Operation) -> tuple[object, ...]:
    """Without what a recorder does not keep, and the numbers of sends and recvs, which a short ring
    shifts.
    """
    seq = 0 if o.op in ("send", "recv") else o.seq
    return (o.group, seq, o.op, o.state, o.peer, o.shapes, o.dtype)


def test_a_thousand_ranks_are_quick_and_small() -> None:
    case = simulate("skipped", Layout(dp=16, pp=8, tp=8), 1)
    assert len(case.after) == 1024 and all(len(r.operations) == 50 for r in case.after)
    # One list of members for all ranks of a group, or 16,384 of them would not fit.
    assert len({id(r.groups[0].ranks) for r in case.after}) == 1


def test_impossible_places_are_refused() -> None:
    with pytest.raises(ValueError, match="does not hang a job"):
        simulate("missing_send", Layout(dp=4, pp=1, tp=2), 0)
    with pytest.raises(ValueError, match="there are dead,"):
        simulate("gremlins", LAYOUT, 0)
