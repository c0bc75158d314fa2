"""Flight Recorder dumps: real ones of gloo, made-up ones of NCCL, and folders with rubbish in them."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import RankOps, group_uid
from hangdoctor.readers.flight_recorder import FolderResult, is_dump, read_folder

DATA = Path(__file__).parents[1] / "data" / "flight_recorder"
WORLD = group_uid(range(4))


def key(r: RankOps) -> list[tuple[object, ...]]:
    return [(o.group, o.seq, o.op, o.state, o.shapes, o.dtype) for o in r.operations]


def nccl_entry(n: int, **changes: Any) -> dict[str, Any]:
    entry = {
        "record_id": n,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": n + 1,
        "p2p_seq_id": 0,
        "op_id": n + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_780_000_000_000_000_000 + n,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 1_780_000_000_100_000_000,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
    }
    return entry | changes


def nccl_dump(*entries: dict[str, Any], world: int = 2, **changes: Any) -> dict[str, Any]:
    ranks = "[" + ", ".join(map(str, range(world))) + "]"
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
        "entries": list(entries),
    } | changes


def save(folder: Path, dumps: dict[str, dict[str, Any]]) -> FolderResult:
    for name, dump in dumps.items():
        data = (
            json.dumps(dump).encode() if name.endswith(".json") else pickle.dumps(dump, protocol=2)
        )
        (folder / name).write_bytes(data)
    return read_folder(folder)


# --------------------------------------------------------------------------- real dumps of gloo


def test_gloo_pickle_and_json_say_the_same() -> None:
    a, b = read_folder(DATA / "gloo-pickle"), read_folder(DATA / "gloo-json")
    assert a.world_size == b.world_size == 4
    assert not a.skipped and not a.missing and not b.skipped and not b.missing
    assert [key(a.ops[r]) for r in range(4)] == [key(b.ops[r]) for r in range(4)]
    assert a.ops[0].operations[-1].site == "main (/opt/job/train.py:62)"
    assert b.ops[0].operations[-1].site == ""


def test_gloo_frontier_shows_who_has_not_entered() -> None:
    ops = read_folder(DATA / "gloo-pickle").ops
    for rank in (0, 1, 3):
        last = ops[rank].operations[-1]
        assert (last.group, last.seq, last.op, last.state) == (WORLD, 4, "all_reduce", "entered")
    assert all(o.state == "done" for o in ops[2].operations)
    assert max(o.seq for o in ops[2].operations if o.group == WORLD) == 3
    assert not any(o.runs_ahead for o in ops.values())


def test_gloo_groups_are_found_though_the_dumps_do_not_tell_them() -> None:
    ops = read_folder(DATA / "gloo-pickle").ops
    assert {tuple(g.ranks) for g in ops[2].groups} == {(0, 1, 2, 3), (2, 3), (0, 2)}
    shared = {o.group for o in ops[2].operations} & {o.group for o in ops[0].operations}
    assert shared == {WORLD, group_uid([0, 2])}
    assert any("regular layout" in n for n in ops[2].notes)


def test_gloo_member_without_a_dump_is_still_in_its_groups(tmp_path: Path) -> None:
    shutil.copytree(DATA / "gloo-pickle", tmp_path, dirs_exist_ok=True)
    (tmp_path / "comm_lib_trace_rank_3").unlink()
    result = read_folder(tmp_path, Layout(dp=2, pp=1, tp=2))
    assert result.missing == [3] and sorted(result.ops) == [0, 1, 2]
    assert {tuple(g.ranks) for g in result.ops[1].groups} == {(0, 1, 2, 3), (0, 1), (1, 3)}
    assert {tuple(g.ranks) for g in result.ops[2].groups} == {(0, 1, 2, 3), (2, 3), (0, 2)}


def test_gloo_counts_sends_that_it_does_not_record(tmp_path: Path) -> None:
    dump = pickle.loads((DATA / "gloo-pickle" / "comm_lib_trace_rank_0").read_bytes())
    del dump["entries"][-1]  # as if rank 0 were in its send, before the all_reduce
    dump["pg_status"]["0"]["last_enqueued_collective"] = 7
    result = save(tmp_path, {"trace_0": dump})
    assert any(n.startswith("1 sends or recvs on the whole job") for n in result.ops[0].notes)


# --------------------------------------------------------------------------- NCCL's dumps


def test_nccl_states_and_names(tmp_path: Path) -> None:
    entries = [
        nccl_entry(5),
        nccl_entry(6, profiling_name="nccl:_reduce_scatter_base", state="started"),
        nccl_entry(
            7, profiling_name="nccl:_all_gather_base", state="scheduled", retired=True
        ),  # timed out: not done
    ]
    ops = save(tmp_path, {"nccl_trace_rank_1": nccl_dump(*entries)}).ops[1]
    assert [(o.seq, o.op, o.state) for o in ops.operations] == [
        (6, "all_reduce", "done"),
        (7, "reduce_scatter_tensor", "started"),
        (8, "all_gather_into_tensor", "entered"),
    ]
    assert ops.runs_ahead and ops.overwritten and ops.groups[0].name == "default_pg"


def p2p(n: int, name: str, state: str = "completed", **changes: Any) -> dict[str, Any]:
    return nccl_entry(
        n, profiling_name=name, is_p2p=True, p2p_seq_id=100 + n, state=state, **changes
    )


def test_sends_and_recvs_get_numbers_that_both_sides_share(tmp_path: Path) -> None:
    # The receiver's ring has lost more of the beginning; what completed last on both sides is the
    # same message.
    sender = [p2p(n, "nccl:send 0->1") for n in range(3)] + [p2p(3, "nccl:send 0->1", "scheduled")]
    receiver = [p2p(7, "nccl:recv 1<-0"), p2p(8, "nccl:recv 1<-0", "scheduled")]
    result = save(tmp_path, {"t_0": nccl_dump(*sender), "t_1": nccl_dump(*receiver)})
    pending = {r: [o for o in ops.operations if o.state != "done"] for r, ops in result.ops.items()}
    assert [(o.op, o.peer, o.seq) for o in pending[0]] == [("send", 1, 4)]
    assert [(o.op, o.peer, o.seq) for o in pending[1]] == [("recv", 0, 4)]


def test_a_batch_has_the_state_of_its_end(tmp_path: Path) -> None:
    same = {"p2p_seq_id": 9, "is_p2p": True}
    batch = [
        nccl_entry(0, profiling_name="nccl:send 0->1", state="scheduled", **same),
        nccl_entry(1, profiling_name="nccl:recv 0<-1", state="scheduled", **same),
        nccl_entry(2, profiling_name="nccl:coalesced", state="completed", **same),
        nccl_entry(
            3,
            profiling_name="nccl:all_gather_into_tensor_coalesced",
            state="scheduled",
            collective_seq_id=1,
        ),
        nccl_entry(
            4,
            profiling_name="nccl:all_gather_into_tensor_coalesced",
            state="started",
            collective_seq_id=1,
        ),
    ]
    ops = save(tmp_path, {"t_0": nccl_dump(*batch)}).ops[0].operations
    assert [(o.op, o.state) for o in ops] == [
        ("send", "done"),
        ("recv", "done"),
        ("all_gather_into_tensor", "started"),
    ]


def test_the_end_of_a_batch_of_transfers_is_marked_as_a_collective(tmp_path: Path) -> None:
    """As NCCL of torch 2.11 writes it: is_p2p is false, and the number that of the last collective."""
    at = {"is_p2p": True, "state": "scheduled", "collective_seq_id": 1}
    mark = {"profiling_name": "nccl:coalesced", "collective_seq_id": 1}
    entries = [
        nccl_entry(0, collective_seq_id=1),
        nccl_entry(1, profiling_name="nccl:send 0->1", p2p_seq_id=1, **at),
        nccl_entry(2, p2p_seq_id=1, **mark),
        nccl_entry(3, profiling_name="nccl:recv 0<-1", p2p_seq_id=2, **at),
        nccl_entry(4, p2p_seq_id=2, state="scheduled", **mark),
    ]
    ops = save(tmp_path, {"t_0": nccl_dump(*entries)}).ops[0].operations
    assert [(o.op, o.state) for o in ops] == [
        ("all_reduce", "done"),
        ("send", "done"),
        ("recv", "entered"),
    ]


def test_equal_member_sets_stay_apart(tmp_path: Path) -> None:
    groups = {
        str(n): {"name": str(n), "desc": d, "ranks": "[0, 1]"}
        for n, d in ((0, "default_pg"), (2, "dp"), (10, "cp"))
    }
    entries = [nccl_entry(n, process_group=(g, "x")) for n, g in enumerate(("10", "2", "0"))]
    ops = save(tmp_path, {"t_0": nccl_dump(*entries, pg_config=groups)}).ops[0]
    assert [o.group for o in ops.operations] == [group_uid([0, 1], i) for i in (2, 1, 0)]


def test_dumps_of_the_first_version(tmp_path: Path) -> None:
    """2.0 had one number for all operations, no dtypes, no is_p2p, and the group's name alone."""
    entry = nccl_entry(3, seq_id=4, process_group="0")
    for new in (
        "collective_seq_id",
        "p2p_seq_id",
        "op_id",
        "input_dtypes",
        "output_dtypes",
        "is_p2p",
        "timeout_ms",
    ):
        del entry[new]
    dump = nccl_dump(entry, version="2.0")
    ops = save(tmp_path, {"nccl_trace_rank_0": dump}).ops[0]
    assert [(o.seq, o.op, o.dtype, o.state) for o in ops.operations] == [
        (4, "all_reduce", "", "done")
    ]


@pytest.mark.parametrize("version", ["2.1", "2.4", "2.7", "2.10", "2.17"])
def test_minor_versions_are_read(tmp_path: Path, version: str) -> None:
    assert save(tmp_path, {"t_0": nccl_dump(nccl_entry(0), version=version)}).ops[0].operations


def test_a_json_dump_without_operations_has_no_entries(tmp_path: Path) -> None:
    dump = nccl_dump()
    del dump["entries"]
    result = save(tmp_path, {"trace_0.json": dump})
    assert result.ops[0].operations == [] and result.world_size == 2


# --------------------------------------------------------------------------- folders


def test_whatever_is_no_dump_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    late = 1_780_000_500_000_000_000
    good = nccl_dump(nccl_entry(0, time_created_ns=late), world=16)
    for rank in range(8):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(good, protocol=2))
    data = pickle.dumps(good, protocol=2)
    wrong = {
        "nccl_trace_rank_8": data[:-40],
        "nccl_trace_rank_9": b"",
        "nccl_trace_rank_10": b"\0" * 100,
        "nccl_trace_rank_11.json": b'{"version": "2.10", "entries": [',
        "nccl_trace_rank_12": pickle.dumps(nccl_dump(nccl_entry(0), world=4), protocol=2),
        "nccl_trace_rank_99": data,
        "nccl_trace_rank_13": pickle.dumps(
            nccl_dump(
                nccl_entry(0, time_created_ns=late - int(9e13), time_discovered_completed_ns=0),
                world=16,
            ),
            2,
        ),
        "nccl_trace_rank_14": pickle.dumps({"version": "1.5", "entries": []}, protocol=2),
        "nccl_trace_rank_15": pickle.dumps({"entries": [os.getcwd]}, protocol=2),
        "comm_lib_trace_rank_3": pickle.dumps(nccl_dump(nccl_entry(0), world=16), protocol=2),
        "notes.txt": b"hello",
        "job-42": b"Traceback (most recent call last):",
    }
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "nccl_trace_rank_7.bin")
    result = read_folder(tmp_path)
    assert sorted(result.ops) == list(range(8))
    assert result.world_size == 16 and result.missing == list(range(8, 16))
    why = {Path(f).name: w for f, w in result.skipped}
    assert set(why) == {*wrong, "nccl_trace_rank_7.bin"}
    for name, reason in {
        "nccl_trace_rank_8": "truncated",
        "nccl_trace_rank_9": "empty",
        "nccl_trace_rank_10": "empty",
        "nccl_trace_rank_11.json": "truncated",
        "nccl_trace_rank_12": "it has 4 ranks",
        "nccl_trace_rank_99": "so no rank 99",
        "nccl_trace_rank_13": "25 hours",
        "nccl_trace_rank_14": "version 1.5",
        "nccl_trace_rank_15": "posix getcwd",
        "comm_lib_trace_rank_3": "another dump of rank 3",
        "notes.txt": "name does not end in a rank",
        "job-42": "neither a pickle nor JSON",
        "nccl_trace_rank_7.bin": "not a regular file",
    }.items():
        assert reason in why[name], (name, why[name])


def test_strange_values_do_not_break_the_reader(tmp_path: Path) -> None:
    nested: Any = [1]
    for _ in range(50):
        nested = [nested, nested]  # 2**50 numbers when written out
    strange = nccl_entry(
        0,
        input_sizes=[nested, "x", None],
        input_dtypes=7,
        frames=["x", {"line": "y"}],
        thread_id=[],
    )
    result = save(
        tmp_path, {"t_0": nccl_dump(strange, pg_config=[1], pg_status="no"), "t_1": nccl_dump(5)}
    )
    assert result.ops[0].operations[0].shapes == "[0, 0]"
    assert "an entry is not a record" in result.skipped[0][1]


def test_dumps_are_known_by_name_and_first_bytes(tmp_path: Path) -> None:
    files = [*(DATA / "gloo-pickle").iterdir(), *(DATA / "gloo-json").iterdir()]
    assert len(files) == 8 and all(is_dump(f) for f in files)
    (tmp_path / "trace-node1").write_text('{"stacks": []}')
    (tmp_path / "bundle_1.json").write_text('{"ranks": []}')
    os.mkfifo(tmp_path / "comm_lib_trace_rank_0")
    assert not any(is_dump(f) for f in [*tmp_path.iterdir(), tmp_path / "none_1"])


def test_no_folder() -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_folder(Path("/nowhere/at/all"))
