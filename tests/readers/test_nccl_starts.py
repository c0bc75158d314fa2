"""What NCCL has seen start, marked in torch's records of the same rank."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture
from hangdoctor.model.operations import Group, Operation, RankOps
from hangdoctor.probe.nccl import format as fmt
from hangdoctor.readers import nccl_profiler, nccl_starts
from tests.support.captures import C10D, MAIN, stack, still
from tests.support.nccl_files import Row, nccl_file

ALL_REDUCE = fmt.OPS.index("all_reduce")
SEES = fmt.SEES_KERNELS
FIRST = Row(1, ALL_REDUCE, fmt.COLLECTIVE, (2, 2), SEES)


def events(path: Path, kernels: tuple[int, int], rank: int) -> nccl_profiler.NcclEvents:
    rows = [FIRST, Row(2, ALL_REDUCE, fmt.COLLECTIVE, kernels, SEES)]
    path.write_bytes(nccl_file(rows, rank=rank, ranks=2))
    found = nccl_profiler.read_events(path)
    assert found is not None
    return found


def records(rank: int, found: nccl_profiler.NcclEvents, op: str = "all_reduce") -> RankOps:
    """As torch has them: the second operation was enqueued just before NCCL heard of it."""
    first, second = (r.begun_ns / 1e9 - 1e-4 for r in found.records)
    operations = [
        Operation("g", 1, "all_reduce", "done", entered_s=first, left_s=first + 1e-3),
        Operation("g", 2, op, "entered", entered_s=second),
    ]
    groups = [Group("g", [0, 1], "dp")]
    return RankOps(rank, 2, "flight_recorder", groups, operations, runs_ahead=True)


def states(ops: RankOps) -> list[str]:
    return [operation.state for operation in ops.operations]


def test_the_rank_whose_device_has_not_begun_is_named(tmp_path: Path) -> None:
    found = {0: events(tmp_path / "0.nccl", (2, 0), 0), 1: events(tmp_path / "1.nccl", (0, 0), 1)}
    recorded = {rank: records(rank, of) for rank, of in found.items()}
    told = nccl_starts.told(recorded, found)
    assert [states(told[r]) for r in (0, 1)] == [["done", "started"], ["done", "entered"]]
    assert all(ops.sees_starts for ops in told.values())

    waits = stack(("all_reduce", C10D, 9), ("step", "/app/train.py", 31), MAIN)
    ranks = [still(r, waits, world_size=2, ops=told[r], ops_before=told[r]) for r in (0, 1)]
    diagnosis = diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 2, taken=1.0))
    assert [(c.kind, c.ranks) for c in diagnosis.causes] == [("device_wait", [1])]
    assert (
        "enqueued all_reduce #2 of DP group 0-1, but its GPU has not started it"
        in diagnosis.summary
    )


def test_records_without_an_event_are_left_alone(tmp_path: Path) -> None:
    found = {0: events(tmp_path / "0.nccl", (2, 0), 0)}
    recorded = {0: records(0, found[0], op="all_to_all_single")}
    assert nccl_starts.told(recorded, found) == {}


def test_a_rank_without_events_is_not_said_to_have_started_nothing(tmp_path: Path) -> None:
    """Its node may have no plugin: what it has enqueued it may well be at."""
    found = {0: events(tmp_path / "0.nccl", (2, 0), 0)}
    told = nccl_starts.told({0: records(0, found[0])}, found)
    other = records(1, found[0])
    waits = stack(("all_reduce", C10D, 9), ("step", "/app/train.py", 31), MAIN)
    ops = {0: told[0], 1: other}
    ranks = [still(r, waits, world_size=2, ops=ops[r], ops_before=ops[r]) for r in (0, 1)]
    diagnosis = diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 2, taken=1.0))
    assert ("device_wait", [1]) not in [(c.kind, c.ranks) for c in diagnosis.causes]
