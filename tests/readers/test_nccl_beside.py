"""Which files of NCCL's events are put beside which ranks' boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from hangdoctor.model.capture import RankCapture
from hangdoctor.model.operations import RankOps
from hangdoctor.probe.identity import host, process_name
from hangdoctor.probe.nccl import format as fmt
from hangdoctor.readers import nccl_beside
from hangdoctor.readers.box_header import BlackBox
from tests.support.nccl_files import Row, nccl_file

SEES = fmt.SEES_KERNELS
DONE = Row(1, 4, fmt.COLLECTIVE, (2, 2), SEES)
STARTED = Row(2, 4, fmt.COLLECTIVE, (2, 0), SEES)
PENDING = Row(2, 4, fmt.COLLECTIVE, (0, 0), SEES)


def box(path: Path, pid: int, rank: int) -> BlackBox:
    return BlackBox(
        str(path), pid, rank, 2, "n", "job", "live", "running", 0.0, 0.0, owner=os.geteuid()
    )


def two(tmp_path: Path, *pids: int) -> list[tuple[RankCapture, BlackBox]]:
    """Two ranks with boxes; rank 1 has enqueued what rank 0 has started."""
    found = []
    for rank, (row, pid) in enumerate(zip((STARTED, PENDING), pids, strict=True)):
        data = nccl_file([DONE, row], rank=rank, ranks=2)
        (tmp_path / f"n-{rank}.nccl").write_bytes(data)
        ops = RankOps(rank, 2)
        capture = RankCapture(pid=pid, rank=rank, world_size=2, ops=ops, ops_before=ops)
        found.append((capture, box(tmp_path / f"n-{rank}.blackbox", pid, rank)))
    return found


def attach(boxes: Sequence[tuple[RankCapture, BlackBox]], first: bool = False) -> list[str]:
    ranks = [rank for rank, _ in boxes]
    return nccl_beside.attach(ranks, boxes, {}, {}, first)


def last_state(ops: RankOps | None) -> str:
    assert ops is not None
    return ops.operations[-1].state


def test_both_samples_get_what_lies_beside_the_boxes(tmp_path: Path) -> None:
    boxes = two(tmp_path, os.getpid(), os.getpid())
    ranks = [rank for rank, _ in boxes]
    assert attach(boxes, first=True) == []
    assert [last_state(r.recorded_before) for r in ranks] == ["started", "entered"]
    assert [r.recorded for r in ranks] == [None, None]
    assert attach(boxes) == []
    assert [last_state(r.recorded) for r in ranks] == ["started", "entered"]
    assert all(r.ops is not None and r.ops.operations == [] for r in ranks), "the box stays"


def test_torchs_own_recorder_comes_first(tmp_path: Path) -> None:
    boxes = two(tmp_path, os.getpid(), os.getpid())
    boxes[0][0].recorded = RankOps(0, 2, source="flight_recorder")
    assert attach(boxes) == []
    theirs = boxes[0][0].recorded
    assert (theirs.source, theirs.operations, theirs.sees_starts) == ("flight_recorder", [], True)
    assert boxes[1][0].recorded is None


def test_a_file_of_an_earlier_process_is_not_this_ones(tmp_path: Path) -> None:
    boxes = two(tmp_path, os.getpid(), os.getppid())
    attach(boxes)
    assert boxes[1][0].recorded is None


def test_a_damaged_file_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    boxes = two(tmp_path, os.getpid(), os.getpid())
    (tmp_path / "n-1.nccl").write_bytes(b"nonsense")
    [note] = attach(boxes)
    assert note.startswith("rank 1: NCCL's events cannot be read") and "n-1.nccl" in note
    assert last_state(boxes[0][0].recorded) == "started"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_left_out(tmp_path: Path) -> None:
    boxes = two(tmp_path, os.getpid(), os.getpid())
    os.chown(tmp_path / "n-1.nccl", 12345, -1)
    [note] = attach(boxes)
    assert "belongs to user 12345" in note and boxes[1][0].recorded is None


def test_a_program_without_a_box_has_them_in_its_folder(tmp_path: Path) -> None:
    rank = RankCapture(pid=os.getpid(), rank=0, world_size=1)
    name = f"{host()}-{process_name(os.getpid())}.nccl"
    (tmp_path / name).write_bytes(nccl_file([DONE, STARTED]))
    named = {os.getpid(): str(tmp_path)}
    nccl_beside.attach([rank], [], named, {}, first=False)
    assert rank.ops is None, "whose process it is must be known"
    nccl_beside.attach([rank], [], named, {os.getpid(): {os.geteuid()}}, first=False)
    assert last_state(rank.ops) == "started" and rank.recorded is None
