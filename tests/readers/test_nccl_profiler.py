"""What the reader makes of files of NCCL's events: true ones, damaged ones, other users' ones, and which operations they say
have not started.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.operations import RankOps
from hangdoctor.probe.nccl import format as fmt
from hangdoctor.readers.nccl_operations import rank_operations
from hangdoctor.readers.nccl_profiler import NcclEvents, read_events
from tests.support.nccl_files import Row, nccl_file

ALL_REDUCE, SEND = 4, 6
SEES = fmt.SEES_KERNELS


def put(tmp_path: Path, data: bytes, name: str = "n-1.nccl") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def read(tmp_path: Path, rows: Sequence[Row], rank: int = 0, **more: int) -> NcclEvents:
    found = read_events(put(tmp_path, nccl_file(rows, rank=rank, **more), f"n-{rank}.nccl"))
    assert found is not None
    return found


def operations(tmp_path: Path, *ranks: Sequence[Row], world: int = 0) -> dict[int, RankOps]:
    """Of ranks 0, 1 ... of one communicator, which is that of the whole job."""
    size = len(ranks)
    events = {r: read(tmp_path, rows, r, ranks=size) for r, rows in enumerate(ranks)}
    return rank_operations(events, world or size)


def states(ops: RankOps) -> list[tuple[int, str]]:
    return [(o.seq, o.state) for o in ops.operations]


DONE, STARTED, ENQUEUED = (2, 2), (2, 0), (0, 0)


def reduce(number: int, kernels: tuple[int, int] = DONE, flags: int = SEES, **more: int) -> Row:
    return Row(number, ALL_REDUCE, fmt.COLLECTIVE, kernels, flags, **more)


# ----------------------------------------------------------------- operations


def test_a_rank_whose_device_has_not_started_what_its_peers_are_in(tmp_path: Path) -> None:
    waiting = [reduce(1), reduce(2), reduce(3, STARTED)]
    held = [reduce(1), reduce(2), reduce(3, ENQUEUED)]
    found = operations(tmp_path, waiting, held)
    assert states(found[0]) == [(1, "done"), (2, "done"), (3, "started")]
    assert states(found[1]) == [(1, "done"), (2, "done"), (3, "entered")]
    assert [g.ranks for g in found[1].groups] == [[0, 1]]
    assert found[0].groups[0].uid == found[1].groups[0].uid == f"{0xAB:016x}"
    assert all(ops.runs_ahead and ops.source == "nccl" for ops in found.values())


def test_without_reports_of_kernels_nothing_is_said(tmp_path: Path) -> None:
    assert operations(tmp_path, [reduce(1, ENQUEUED, 0)], [reduce(1, ENQUEUED, 0)]) == {}


def test_an_operation_that_nccl_may_report_no_kernel_of_is_not_pending(tmp_path: Path) -> None:
    """The first of its kind, as a symmetric kernel, and its peer's has not started either."""
    rows = [reduce(1), reduce(2, ENQUEUED, elements=999)]
    assert operations(tmp_path, rows, rows) == {}
    started = [reduce(1), reduce(2, STARTED, elements=999)]
    assert states(operations(tmp_path, started, rows)[1])[-1] == (2, "entered")


def test_a_later_launch_shows_that_an_earlier_one_is_over(tmp_path: Path) -> None:
    [ops] = operations(tmp_path, [reduce(1, ENQUEUED), reduce(2, STARTED)]).values()
    assert states(ops) == [(1, "done"), (2, "started")]
    [ops] = operations(tmp_path, [reduce(1, (2, 1)), reduce(2, DONE)]).values()
    assert states(ops) == [(1, "done"), (2, "done")], "a report of an end was lost"


def test_operations_of_one_launch_start_together(tmp_path: Path) -> None:
    together = [
        reduce(1, STARTED, begun=100, launched=900),
        reduce(2, ENQUEUED, begun=200, launched=900),
    ]
    [ops] = operations(tmp_path, together).values()
    assert states(ops) == [(1, "started"), (2, "started")]


def test_what_a_graph_runs_counts_like_the_rest(tmp_path: Path) -> None:
    """NCCL reports it each time that the graph runs, not when it is captured."""
    captured = SEES | fmt.CAPTURED
    rows = [reduce(1), reduce(2, DONE, captured), reduce(3, ENQUEUED, captured)]
    [ops] = operations(tmp_path, rows).values()
    assert states(ops) == [(1, "done"), (2, "done"), (3, "entered")]


def test_sends_go_to_global_ranks_where_all_members_are_known(tmp_path: Path) -> None:
    row = Row(1, SEND, fmt.SEND, DONE, SEES, peer=1)
    [ops] = operations(tmp_path, [row]).values()
    assert ops.operations == [], "there is no rank 1 in a communicator of one"
    found = operations(tmp_path, [row], [reduce(1)])
    assert [(o.op, o.peer) for o in found[0].operations] == [("send", 1)]
    # Two of a job of eight: which ranks the other members are is not known on this node.
    events = {4: read(tmp_path, [row, reduce(1)], 0, ranks=3)}
    [ops] = rank_operations(events, 8).values()
    assert [o.op for o in ops.operations] == ["all_reduce"] and ops.groups[0].ranks == []


def test_of_many_the_newest_and_the_pending_are_read(tmp_path: Path) -> None:
    rows = [reduce(1, ENQUEUED)] + [reduce(n) for n in range(2, 50)]
    path = put(tmp_path, nccl_file(rows))
    some, every = read_events(path, last=3), read_events(path)
    assert some is not None and [r.number for r in some.records] == [1, 47, 48, 49]
    assert every is not None and len(every.records) == 49


def test_communicators_that_are_gone_hold_nothing(tmp_path: Path) -> None:
    events = {0: read(tmp_path, [reduce(1), reduce(2, STARTED)], state=fmt.ENDED)}
    assert rank_operations(events, 1) == {}


def test_a_full_ring_of_pending_operations_takes_no_time(tmp_path: Path) -> None:
    rows = [reduce(1, DONE)] + [reduce(n, ENQUEUED) for n in range(2, 8000)]
    [ops] = operations(tmp_path, rows).values()
    assert len(ops.operations) == len(rows) and ops.operations[-1].state == "entered"


# ----------------------------------------------------------------- damaged and hostile files


GOOD = nccl_file([reduce(1), reduce(2, STARTED)])


def spoilt(at: int, how: str, *values: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(how, data, at, *values)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:100],
        GOOD[:-200],
        b"HDBLKBOX" + GOOD[8:],
        spoilt(fmt.H_VERSION[0], "<I", 2),
        spoilt(fmt.H_RING[0], "<2I", 4096, 0),
        spoilt(fmt.H_RING[0], "<2I", 0xFFFFFFF0, 8192),
        spoilt(fmt.H_RING[0], "<2I", 4096, 0xFFFFFFFF),
        spoilt(fmt.H_RING[0], "<2I", 8, 8),
        spoilt(fmt.H_COMMS[0], "<2I", 4096, 0xFFFFFFFF),
        spoilt(4096 + 8, "<I", 3_000_000),  # ranks of a communicator
        spoilt(4096 + 16, "<i", 77),  # a rank beyond them
        spoilt(4096 + 16, "<i", -5),
    ],
    ids=range(13),
)
def test_what_is_no_such_file_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path, data)
    with pytest.raises(BadInput, match=str(path)):
        read_events(path)


def test_records_that_do_not_fit_are_left_out_and_counted(tmp_path: Path) -> None:
    begin = struct.unpack_from("<I", GOOD, fmt.H_RING[0])[0] + fmt.RECORD.size
    for at, how, value in (
        (0, "<Q", 99),  # a serial number that is not of this slot
        (124, "<I", 7),  # torn
        (84, "<i", -9),  # a peer
        (88, "<B", 9),  # a kind
    ):
        found = read_events(put(tmp_path, spoilt(begin + at, how, value)))
        assert found is not None and [r.serial for r in found.records] == [2], (at, value)
        assert found.torn == 1


def test_an_unknown_operation_or_type_has_no_name_of_ours(tmp_path: Path) -> None:
    row = Row(1, 200, fmt.COLLECTIVE, DONE, SEES, datatype=99)
    [ops] = operations(tmp_path, [row]).values()
    assert [(o.op, o.dtype) for o in ops.operations] == [("nccl_operation", "")]


def test_a_name_is_made_fit_to_be_shown(tmp_path: Path) -> None:
    path = put(tmp_path, nccl_file([reduce(1)], name=b"\x1b[31mevil\xff"))
    found = read_events(path)
    assert found is not None
    [communicator] = found.communicators.values()
    assert "\x1b" not in communicator.name and "evil" in communicator.name


def test_no_file_is_no_error_and_a_folder_or_fifo_is_no_file(tmp_path: Path) -> None:
    assert read_events(tmp_path / "none.nccl") is None
    os.mkfifo(tmp_path / "fifo.nccl")
    (tmp_path / "folder.nccl").mkdir()
    for name in ("fifo.nccl", "folder.nccl"):
        with pytest.raises(BadInput):
            read_events(tmp_path / name)


def test_another_users_file_is_not_believed(tmp_path: Path) -> None:
    path = put(tmp_path, GOOD)
    assert read_events(path, {os.geteuid()}) is not None
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)
    with pytest.raises(BadInput, match="belongs to user 12345"):
        read_events(path, {os.geteuid()})
    (tmp_path / "link.nccl").symlink_to(path)
    with pytest.raises(BadInput):
        read_events(tmp_path / "link.nccl", {12345})
