"""Each field of a Flight Recorder dump, as it is meant and as a damaged or foreign file has it."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.layout import Layout
from hangdoctor.readers import flight_recorder_format as fr_format
from hangdoctor.readers import flight_recorder_groups as fr_groups
from hangdoctor.readers.flight_recorder import _world_shown, convert, read_folder
from hangdoctor.readers.flight_recorder_entry import Entry
from hangdoctor.readers.flight_recorder_format import creation_order

T0 = 1_780_000_000_000_000_000
GLOO = {
    "process_group": ["0", "default_pg"],
    "pg_id": 0,
    "collective_seq_id": 1,
    "profiling_name": "gloo:all_reduce",
    "state": "scheduled",
}


def dump_of(*rows: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(
        {"version": "2.10", "entries": list(rows), "padding": "x" * 5000} | more
    ).encode()


def entry(**fields: Any) -> Entry:
    [found] = fr_format.parse(dump_of(GLOO | fields)).entries
    return found


def test_what_is_left_out_is_nothing() -> None:
    bare = entry()
    assert bare == Entry(
        "0",
        1,
        "all_reduce",
        "entered",
        p2p=False,
        p2p_seq=0,
        peer=-1,
        shapes="",
        dtype="",
        site="",
        thread=0,
        entered_ns=0,
        left_ns=0,
        size=0,
        coalesced=False,
    )
    dump = fr_format.parse(dump_of())
    assert (
        dump
        == fr_format.Dump(
            version="2.10",
            entries=[],
            members={},
            names={},
            backend="",
            overwritten=False,
            unnamed=[],
            groups_seen=0,
            hidden_p2p={},
        )
        and dump.newest_ns == 0
    )
    assert fr_format.Dump("2", [], {}, {}) == fr_format.Dump(
        version="2",
        entries=[],
        members={},
        names={},
        backend="",
        overwritten=False,
        unnamed=[],
        groups_seen=0,
        hidden_p2p={},
    )
    assert Entry("g", 1, "x", "done") == Entry(
        "g",
        1,
        "x",
        "done",
        p2p=False,
        p2p_seq=0,
        peer=-1,
        shapes="",
        dtype="",
        site="",
        thread=0,
        entered_ns=0,
        left_ns=0,
        size=0,
        coalesced=False,
    )


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"state": "completed"}, "done"),
        ({"retired": True}, "done"),
        ({"retired": 1}, "entered"),
        ({"state": "started"}, "started"),
        ({"profiling_name": "nccl:all_reduce", "retired": True}, "entered"),
        ({"state": ["completed"]}, "entered"),
    ],
)
def test_states(fields: dict[str, Any], state: str) -> None:
    assert entry(**fields).state == state


@pytest.mark.parametrize(
    ("fields", "shapes", "dtype"),
    [
        (
            {"input_sizes": [[4, 8], [2]], "input_dtypes": ["Float", "Float"]},
            "[4, 8],[2]",
            "float32",
        ),
        (
            {"input_sizes": [[4], 7, [[1], "3"]], "input_dtypes": ["Float", "Half"]},
            "[4],[0, 3]",
            "float32,float16",
        ),
        ({"input_sizes": "[4]", "input_dtypes": "Float"}, "", ""),
        ({"input_sizes": [[]], "input_dtypes": []}, "[]", ""),
        (
            {"input_sizes": [list(range(70))], "input_dtypes": ["Mine"]},
            str(list(range(64))),
            "Mine",
        ),
    ],
)
def test_shapes_and_dtypes(fields: dict[str, Any], shapes: str, dtype: str) -> None:
    found = entry(**fields)
    assert (found.shapes, found.dtype) == (shapes, dtype)


@pytest.mark.parametrize(
    ("inputs", "outputs", "size"),
    [
        ([[4]], [[6, 4]], 6),
        ([[4], [9, 9]], [[6, 4], [7]], 6),
        ([[4]], [[4]], 0),
        ([[4]], [[2, 2, 4]], 0),
        ([[]], [[6]], 6),
        ([4], [[6, 4]], 0),
        ([[4]], [7], 0),
        ([], [[6]], 0),
        ([[4]], None, 0),
    ],
)
def test_the_size_of_a_group_by_its_all_gather(inputs: Any, outputs: Any, size: int) -> None:
    sizes = {"input_sizes": inputs, "output_sizes": outputs}
    assert entry(profiling_name="gloo:all_gather", **sizes).size == size
    assert entry(**sizes).size == 0


def test_numbers_that_fit_and_others() -> None:
    top = (1 << 63) - 1
    assert entry(time_created_ns=top).entered_ns == top
    for wrong in (1 << 63, 1e30, "x", None, [1]):
        assert entry(time_created_ns=wrong).entered_ns == 0
    assert (
        entry(time_created_ns=2.9, thread_id="77").entered_ns == 2
        and entry(thread_id="77").thread == 77
    )
    newest = fr_format.parse(
        dump_of(
            GLOO | {"time_created_ns": 5, "time_discovered_completed_ns": 9},
            GLOO | {"time_created_ns": 7},
        )
    ).newest_ns
    assert newest == 9


def test_names_of_groups_and_operations() -> None:
    assert entry(process_group=["7"]).group == "7" and entry(process_group="8").group == "8"
    assert entry(process_group=None, pg_id=3).group == "3" and entry(process_group=[]).group == "0"
    assert entry(collective_seq_id=None).seq == 0
    row = {k: v for k, v in GLOO.items() if k != "collective_seq_id"}
    assert fr_format.parse(dump_of(row | {"seq_id": 4})).entries[0].seq == 4
    dump = fr_format.parse(
        dump_of(
            GLOO | {"process_group": ["1", "mine"]}, GLOO | {"process_group": ["2", "undefined"]}
        )
    )
    assert dump.names == {"1": "mine"}


def test_so_are_decorators_and_thin_layers_around_its_calls() -> None:
    """torch's deprecated functions have one of typing_extensions around them."""
    around = [
        "/v/site-packages/typing_extensions.py",
        "/v/site-packages/deepspeed/comm/torch.py",
        "/v/site-packages/deepspeed/utils/nvtx.py",
        "/usr/lib/python3.11/contextlib.py",
        "/usr/lib/python3.11/functools.py",
    ]
    frames = [{"name": "wrapper", "filename": file, "line": 3140} for file in around]
    mine = {"name": "reduce", "filename": "/v/site-packages/deepspeed/runtime/z.py", "line": 23}
    own = {"name": "step", "filename": "/app/functools_of_mine.py", "line": 7}
    assert entry(frames=[*frames, mine]).site == f"reduce ({mine['filename']}:23)"
    assert entry(frames=[*frames, own]).site == "step (/app/functools_of_mine.py:7)"
    assert entry(frames=frames).site == f"wrapper ({around[0]}:3140)"


def test_frames_of_torch_are_passed_over() -> None:
    torch, mine = (
        {"name": n, "filename": f, "line": 7}
        for n, f in (("a", "/x/torch/nn/m.py"), ("b", "/app/t.py"))
    )
    assert entry(frames=[torch, 3, mine]).site == "b (/app/t.py:7)"
    assert entry(frames=[torch, torch | {"name": "c"}]).site == "a (/x/torch/nn/m.py:7)"
    assert (
        entry(frames="x").site == ""
        and entry(frames=[torch] * 300 + [mine]).site == "a (/x/torch/nn/m.py:7)"
    )


def test_members_of_groups() -> None:
    config = {
        "0": {"ranks": "[2, 0, 1]", "desc": "default_pg"},
        "1": {"ranks": [3, 1, 1], "desc": "x"},
        "": {"ranks": "[0, 5]", "desc": ""},
        "2": {"ranks": [], "desc": "none"},
        "3": 7,
        "4": {"desc": "y"},
    }
    dump = fr_format.parse(dump_of(pg_config=config, pg_status={str(n): {} for n in range(6)}))
    assert dump.members == {"0": [0, 1, 2], "1": [1, 3]} and dump.unnamed == [0, 5]
    assert (
        dump.names == {"0": "default_pg", "1": "x", "2": "none", "4": "y"} and dump.groups_seen == 6
    )
    assert fr_format.parse(dump_of(pg_config=[1])).members == {}
    for ranks in ([-1, 2], [2_000_000]):
        with pytest.raises(BadInput, match="a job has at most"):
            fr_format.parse(dump_of(pg_config={"0": {"ranks": ranks}}))
    assert fr_format.parse(dump_of(pg_config={"0": {"ranks": [1_999_999]}})).members == {
        "0": [1_999_999]
    }


def test_more_members_than_bytes() -> None:
    text = ",".join(map(str, range(10)))
    short = b'{"version":"2.1","pg_config":{"a":{"ranks":"%s"}}}' % text.encode()
    assert fr_format.parse(short).members == {"a": list(range(10))}
    lists = {"a": list(range(len(short)))}
    fr_format._check_members(lists, len(short))
    with pytest.raises(BadInput, match="more members than fit into the file"):
        fr_format._check_members(lists, len(short) - 1)
    shared = list(range(10))
    fr_format._check_members({"a": shared, "b": shared, "c": []}, 10)


@pytest.mark.parametrize(
    ("status", "hidden"),
    [
        ({"0": {"last_enqueued_collective": 7}}, {"0": 2}),
        ({"0": {"last_enqueued_collective": 5}}, {}),
        ({"0": 7}, {}),
        ({}, {}),
        ([], {}),
    ],
)
def test_sends_that_gloo_counts_and_does_not_record(status: Any, hidden: dict[str, int]) -> None:
    assert fr_format.parse(dump_of(GLOO | {"op_id": 5}, pg_status=status)).hidden_p2p == hidden
    nccl = GLOO | {"op_id": 5, "profiling_name": "nccl:all_reduce"}
    assert fr_format.parse(dump_of(nccl, pg_status=status)).hidden_p2p == {}
    for op_id, after in ((0, {}), (1, {"0": 2})):
        few = dump_of(GLOO | {"op_id": op_id}, pg_status={"0": {"last_enqueued_collective": 3}})
        assert fr_format.parse(few).hidden_p2p == after


@pytest.mark.parametrize("number", [{"record_id": 0}, {"record_id": 1}, {"id": 1}])
def test_the_ring_has_lost_its_beginning(number: dict[str, int]) -> None:
    assert fr_format.parse(dump_of(GLOO | number, GLOO | {"record_id": 9})).overwritten is (
        1 in number.values()
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b" \n\0", "empty"),
        (b"hello", "neither a pickle nor JSON"),
        (b"{", "damaged or truncated JSON"),
        (b'{"version": "2.1"}', "no version"),
        (b'{"entries": []}', "no version"),
        (b'{"version": "1.9", "entries": []}', "version 1.9"),
        (b'{"version": "22", "entries": []}', "versions 2.x"),
        (b'{"version": "2.1", "entries": {"a": 1}}', "not a list"),
        (b'{"version": "2.1", "entries": [7]}', "an entry is not a record"),
    ],
)
def test_what_is_no_dump(data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        fr_format.parse(data)
    assert gc.isenabled()


def test_the_collector_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        fr_format.parse(dump_of())
        assert not gc.isenabled()
    finally:
        gc.enable()


# --------------------------------------------------------------------------- folders of dumps


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path


def put(folder: Path, rank: int, world: int = 3, seconds: float = 0.0, **fields: Any) -> None:
    ranks = str(list(range(world)))
    row = GLOO | {"time_created_ns": T0 + int(seconds * 1e9)} | fields
    (folder / f"trace_rank_{rank}").write_bytes(
        dump_of(row, pg_config={"0": {"ranks": ranks, "desc": "default_pg"}})
    )


def test_dumps_of_other_jobs_are_set_apart(folder: Path) -> None:
    for rank, hours in ((0, 0.0), (1, 1.0), (2, 100.0)):
        put(folder, rank, seconds=hours * 3600)
    put(folder, 3, seconds=2 * 3600)
    put(folder, 4, world=5, seconds=3 * 3600)
    result = read_folder(folder)
    assert sorted(result.ops) == [0, 1] and result.world_size == 3 and result.missing == [2]
    whys = {Path(path).name: why for path, why in result.skipped}
    assert whys["trace_rank_3"] == "a dump of another job: this job has 3 ranks, so no rank 3"
    assert whys["trace_rank_4"] == "a dump of another job: it has 5 ranks, this job has 3"
    assert (
        whys["trace_rank_2"]
        == "a dump of another job: its last operation is 98 hours away from the others"
    )


def parts(*rows: dict[str, Any]) -> list[tuple[str, str, str, str, int]]:
    dump = fr_format.parse(dump_of(*rows))
    return [
        (o.op, o.state, o.shapes, o.dtype, int(o.left_s))
        for o in convert({0: dump}).ops[0].operations
    ]


def test_a_batch_has_the_state_of_its_end() -> None:
    nccl = GLOO | {
        "profiling_name": "nccl:_broadcast_oop",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
    }
    mark = GLOO | {
        "profiling_name": "nccl:coalesced",
        "state": "completed",
        "time_discovered_completed_ns": 9_000_000_000,
    }
    two = [nccl, nccl | {"input_sizes": [[5]], "input_dtypes": ["Half"]}]
    assert parts(*two, mark) == [("broadcast", "done", "[4],[5]", "float32,float16", 9)]
    assert parts(*two) == [("broadcast", "entered", "[4],[5]", "float32,float16", 0)]
    assert [p[1] for p in parts(mark)] == ["done"]
    sends = [
        GLOO | {"profiling_name": f"nccl:send 0->{n}", "is_p2p": True, "p2p_seq_id": 3}
        for n in (1, 2)
    ]
    assert [p[:2] for p in parts(*sends, mark | {"is_p2p": True, "p2p_seq_id": 3})] == [
        ("send", "done")
    ] * 2


def test_members_that_no_dump_shows() -> None:
    def dumps(*holders: int, size: int = 0) -> dict[int, fr_format.Dump]:
        row = {"process_group": ["1", "x"]} | (
            {"profiling_name": "gloo:all_gather", "input_sizes": [[4]], "output_sizes": [[size, 4]]}
            if size
            else {}
        )
        return {
            r: fr_format.parse(
                dump_of(GLOO, *([GLOO | row] if r in holders else []), pg_status={"0": {}, "1": {}})
            )
            for r in range(8)
        }

    def found(
        of: dict[int, fr_format.Dump], rank: int, layout: Layout | None = None
    ) -> tuple[list[int], str]:
        membership = fr_groups.Membership(of, 8, layout)
        return membership.groups[rank]["1"].ranks, membership.how[rank].get("1", "")

    assert found(dumps(1, 6), 1) == ([1, 6], "from the ranks whose dumps mention it")
    assert found(dumps(1, 6, size=3), 6) == (
        [1, 6],
        "from the ranks whose dumps mention it; it has 3 members, so 1 are unknown",
    )
    assert found(dumps(1, 6, size=2), 6)[1] == "from the ranks whose dumps mention it"
    layout = Layout(dp=2, pp=2, tp=2)
    assert found(dumps(4, 5), 4, layout) == ([4, 5], "from the job's layout")
    assert found(dumps(4, size=2), 4, layout) == (
        [4, 5],
        "from the job's layout, one of 3 that fit",
    )
    assert found(dumps(4, 5, size=4), 4, layout) == (
        [0, 1, 4, 5],
        "from the job's layout, one of 2 that fit",
    )
    assert creation_order("9" * 9) < creation_order("9" * 10) < creation_order("x")
    assert creation_order("\u00b2")[0] == 1, "a digit to Python that is no number"
    assert creation_order("10") > creation_order("9")


def test_a_group_that_the_program_made_twice_is_no_wider_one() -> None:
    """A metric's own group of the data parallel ranks, of which rank 4 has not used any yet."""
    of = {
        rank: fr_format.parse(
            dump_of(
                GLOO | {"process_group": [str(5 + rank % 2), "mesh_dp"]},
                *([GLOO | {"process_group": ["9", "metrics"]}] if rank in (0, 2) else []),
                pg_status={str(5 + rank % 2): {}} | ({"9": {}} if rank in (0, 2) else {}),
            )
        )
        for rank in range(6)
    }
    membership = fr_groups.Membership(of, 6, Layout(dp=3, pp=1, tp=2))
    assert membership.groups[2]["5"].ranks == [0, 2, 4]
    assert membership.groups[2]["9"].ranks == [0, 2, 4]
    assert membership.how[2]["9"] == "from the job's layout, as another group of them has"


def test_a_told_layout_that_two_groups_of_one_kind_contradict_is_not_taken() -> None:
    """Its flags name no pipeline, so that it has data parallel groups of four; two of two are seen."""
    pairs = {0: "5", 2: "5", 1: "6", 3: "6", 4: "7", 6: "7", 5: "8", 7: "8"}
    of = {
        rank: fr_format.parse(
            dump_of(
                GLOO | {"process_group": [name, "dp"]},
                GLOO | {"process_group": [str(1 + rank // 2), "tp"]},
                pg_status={name: {}, str(1 + rank // 2): {}},
            )
        )
        for rank, name in pairs.items()
    }
    membership = fr_groups.Membership(of, 8, Layout(dp=4, pp=1, tp=2))
    assert [membership.groups[rank][pairs[rank]].ranks for rank in (0, 5)] == [[0, 2], [5, 7]]
    assert membership.groups[4]["3"].ranks == [4, 5]


def test_the_layout_that_alone_explains_the_groups() -> None:
    layout = Layout(dp=2, pp=2, tp=2)
    groups = [g for axis in ("tp", "dp", "pp") for g in layout.groups(axis)]
    assert fr_groups.infer_layout(groups, 8) == layout
    assert fr_groups.infer_layout([], 8) is None and fr_groups.infer_layout([[0, 3]], 8) is None
    assert fr_groups.infer_layout([[0, 1], [2, 3], [4, 5], [6, 7]], 8) is None, (
        "what is beyond the pairs is not known"
    )


@pytest.mark.parametrize(
    ("members", "names", "unnamed", "size"),
    [
        ({}, {}, [], 3),  # by the dump's own rank
        ({"1": [0, 5]}, {}, [], 6),
        ({"1": []}, {}, [0, 1, 7], 8),
        ({"0": [0, 1, 2, 3]}, {"0": "default_pg"}, [], 4),
    ],
)
def test_the_world_is_as_large_as_what_the_dumps_mention(
    members: dict[str, list[int]], names: dict[str, str], unnamed: list[int], size: int
) -> None:
    dump = fr_format.Dump("2.10", [], members, names, unnamed=unnamed)
    assert _world_shown({2: dump}) == size
    assert _world_shown({}) == 0


@pytest.mark.parametrize(
    ("states", "enqueued", "completed", "whole", "active"),
    [
        ({5: "started", 6: "scheduled"}, 6, 4, True, True),
        ({5: "started"}, 6, 5, True, True),  # ended, though the entry was written before
        ({6: "started"}, 6, 4, False, False),  # the fifth is pending, and not among them
        ({}, 6, 4, False, False),
        ({}, 4, 4, True, True),  # nothing is pending
        ({5: "started"}, 5, 0, False, False),
        ({1: "started"}, 1, 0, True, False),  # before the first one had ended
        ({4: "completed", 5: "started"}, 5, 4, True, False),  # what has completed is there, too
        ({5: "started"}, 5, -1, False, False),  # as before the first
    ],
)
def test_whether_all_that_is_pending_is_among_the_entries(
    states: dict[int, str], enqueued: int, completed: int, whole: bool, active: bool
) -> None:
    rows = [
        GLOO | {"profiling_name": "nccl:all_reduce", "collective_seq_id": n, "state": state}
        for n, state in states.items()
    ]
    last = {"last_enqueued_collective": enqueued, "last_completed_collective": completed}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    dump = fr_format.parse(dump_of(*rows, pg_config=config, pg_status={"0": last}))
    assert dump.completed == {"0": max(0, completed)}
    assert (dump.pending_whole, dump.only_active) == (whole, active)
