"""LateArrivals, heat map, GPU slices and call tracks on made-up histories whose answers are known."""

from __future__ import annotations

import gzip
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from hangdoctor.cli.trace.timeline import export, stragglers
from hangdoctor.errors import BadInput
from hangdoctor.model.calls import CallThread, CallTrace, Event, Function
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from hangdoctor.text.plain import size_words
from hangdoctor.timeline.build import build
from hangdoctor.timeline.hang_end import Hang
from hangdoctor.timeline.heatmap import svg
from hangdoctor.timeline.histories import from_capture
from hangdoctor.timeline.late_arrivals import LateArrivals, analyse
from hangdoctor.timeline.late_table import headline, render
from hangdoctor.timeline.model import RankTrace, Timeline, Trace
from hangdoctor.timeline.pftrace import encode
from hangdoctor.timeline.profiler import nest, tracks_of_folder
from hangdoctor.timeline.tracks import Slice, bytes_of
from tests.support.pf_reading import read

T0 = 1_700_000_000.0
WORLD = [0, 1, 2, 3]
PAIRS = ([0, 1], [2, 3])
Record = tuple[int, list[int], int, str, int, float, float]


def history(world: int, records: list[Record], told: bool = True) -> Timeline:
    """Records: (rank, group, seq, op, step, entered ms, left ms or -1)."""
    ops = [RankOps(r, world) for r in range(world)]
    for rank, group, seq, op, step, entered, left in records:
        uid = group_uid(group)
        if uid not in {g.uid for g in ops[rank].groups}:
            ops[rank].groups.append(Group(uid, group))
        ops[rank].operations.append(
            Operation(
                uid,
                seq,
                op,
                "done" if left >= 0 else "entered",
                entered_s=T0 + entered / 1e3,
                thread=9,
                shapes="[256]",
                dtype="float32",
                left_s=T0 + left / 1e3 if left >= 0 else 0.0,
                iteration=step if told else -1,
            )
        )
    traces = [RankTrace(r, ops[r], "n0", 50 + r, "n0") for r in range(world)]
    return build(Trace(traces, {g.uid: g for o in ops for g in o.groups}, "made-up"))


def late_pair_member(step: int, begin: float, late: float) -> list[Record]:
    """One step of 100 ms: rank 2 comes `late` to its pair, both of that pair so much later to the
    whole.
    """
    records = []
    for pair in PAIRS:
        at = begin + 10 + (late if 2 in pair else 0)
        records += [
            (r, pair, step + 1, "all_reduce", step, begin + 10 + (late if r == 2 else 0), at + 1)
            for r in pair
        ]
        records += [
            (r, WORLD, step + 1, "all_reduce", step, at + 2, begin + 14 + late) for r in pair
        ]
    return records


def test_a_delay_is_counted_once_and_not_blamed_on_who_suffered_it() -> None:
    records = [
        r
        for step in range(4)
        for r in late_pair_member(step, 100.0 * step, 50.0 if step == 2 else 0.0)
    ]
    found = analyse(history(4, records))
    assert [s.last for s in found.steps] == [-1, -1, 2, -1]
    by_rank = {r.rank: r for r in found.ranks}
    assert by_rank[2].held_up_ms == pytest.approx(50, abs=0.01) and by_rank[2].waited_ms < 0.01
    assert by_rank[3].held_up_ms < 0.01 and by_rank[3].waited_ms == pytest.approx(50, abs=0.01)
    assert by_rank[0].waited_ms == pytest.approx(50, abs=0.01)
    assert found.held_up_ms[2][2] == pytest.approx(50, abs=0.01)
    groups = {g.group: g for g in found.groups}
    assert groups["group 0-3"].waited_ms == pytest.approx(100, abs=0.01) and groups[
        "group 2-3"
    ].waited_ms == pytest.approx(50, abs=0.01)
    assert groups["group 0-3"].bytes == 4 * 1024 and groups["group 0-3"].operations == 4
    assert headline(found).startswith("Rank 2 (node n0) made the others wait most: 50 ms")
    assert found.steps[2].waited_ms == pytest.approx(50, abs=0.01)


def test_a_broadcast_waits_for_its_root_alone_and_a_message_for_its_sender() -> None:
    line = history(
        4,
        [
            (0, WORLD, 1, "broadcast", 0, 40, 41),
            (1, WORLD, 1, "broadcast", 0, 10, 42),
            (2, WORLD, 1, "broadcast", 0, 90, 91),
            (3, WORLD, 1, "broadcast", 0, 41, 42),
        ],
    )
    for lane in line.lanes:
        lane.trace.ops.operations[0].root = 0
    found = analyse(line)
    assert [r.held_up_ms for r in found.ranks] == pytest.approx([30, 0, 0, 0], abs=0.01)
    line = history(2, [(0, [0, 1], 1, "send", 0, 70, 71), (1, [0, 1], 1, "recv", 0, 20, 72)])
    line.lanes[0].trace.ops.operations[0].peer, line.lanes[1].trace.ops.operations[0].peer = 1, 0
    found = analyse(build(line.trace))
    assert [r.held_up_ms for r in found.ranks] == pytest.approx([50, 0], abs=0.01)


def test_without_iterations_a_step_is_an_operation_of_the_widest_group() -> None:
    records = [
        (r, WORLD, 1, "barrier", 0, -9.0, -8.0) for r in WORLD
    ]  # of the set-up: the most frequent one counts
    records += [
        (r, WORLD, n + 2, "all_reduce", 0, 10.0 * n + r, 10.0 * n + 5)
        for n in range(5)
        for r in WORLD
    ]
    found = analyse(history(4, records, told=False))
    assert [s.step for s in found.steps] == [2, 3, 4, 5, 6]
    assert all(s.last == 3 for s in found.steps) and any(
        "iteration" in note for note in found.notes
    )


def test_nothing_to_say_is_said_without_a_culprit() -> None:
    even = [(r, [0, 1], 1, "all_reduce", 0, 1, 2) for r in (0, 1)]
    found = analyse(
        history(
            2,
            [*even, (0, [0, 1], 2, "all_reduce", 0, 1, 2), (1, [0, 1], 2, "all_reduce", 0, 1, -1)],
        )
    )
    assert "no rank made the others wait" in headline(found) and "unfinished" in found.notes[0]
    assert ElementTree.fromstring(svg(found)).tag.endswith("svg")


def ends_in(open_: list[Record], beat_ms: float) -> Timeline:
    """Steps in which rank 0 comes 5 ms late, then `open_`; ranks live on, which their heartbeats
    show, until `beat_ms`.
    """
    records = [
        (r, WORLD, n + 1, "all_reduce", n, 10.0 * n + 5 * (r == 0), 10.0 * n + 6)
        for n in range(4)
        for r in WORLD
    ]
    line = history(4, records + open_)
    for trace in line.trace.ranks:
        trace.ops.heartbeat_s = T0 + beat_ms / 1e3
    return build(line.trace)


def shown(found: LateArrivals) -> list[str]:
    out = io.StringIO()
    render(found, Console(file=out, width=140, color_system=None))
    return out.getvalue().splitlines()


def test_a_job_that_hangs_at_its_end_says_so_before_the_ranking() -> None:
    stuck = [(r, WORLD, 5, "all_gather_object", 4, 40.0, -1.0) for r in (0, 1, 2)]
    found = analyse(ends_in(stuck, 40.0 + 112_000))
    assert found.hang == Hang(
        op="all_gather_object",
        seq=5,
        group="group 0-3",
        ranks=[0, 1, 2],
        missing=[3],
        unseen=[],
        for_ms=112_000.0,
    )
    lines = shown(found)
    assert (
        lines[0]
        == "The job hangs at the end: ranks 0-2 have been in all_gather_object #5 of group 0-3 for 112 s; rank 3 never entered it."
    )
    assert "The table is about the steps that finished before" in lines[1] and lines[2].startswith(
        "Rank 0 (node n0) made the others wait most"
    )


def test_an_operation_under_way_is_no_hang() -> None:
    under_way = [(r, WORLD, 5, "all_reduce", 4, 40.0, -1.0) for r in (0, 1, 2)]
    assert analyse(ends_in(under_way, 40.0 + 5000)).hang is None
    slow = [(r, WORLD, 5, "all_reduce", 4, 40.0, 20_000.0) for r in WORLD] + [
        (0, WORLD, 6, "all_reduce", 5, 20_001.0, -1.0)
    ]
    assert analyse(ends_in(slow, 20_001.0 + 30_000)).hang is None, "waits of 20 s are usual here"
    assert analyse(ends_in(slow, 20_001.0 + 50_000)).hang is not None
    line = ends_in(under_way, 40.0 + 50_000)
    for lane in line.lanes[:3]:
        op = lane.trace.ops.operations[-1]
        op.state, op.asynchronous = "started", True
        lane.trace.ops.operations.append(
            msgspec.structs.replace(op, seq=6, state="done", entered_s=T0 + 40, left_s=T0 + 50)
        )
    assert analyse(build(line.trace)).hang is None, (
        "a handle that nobody waits for, and the ranks went on"
    )


def test_of_several_unfinished_operations_the_one_is_named_whose_missing_rank_waits_nowhere() -> (
    None
):
    stuck = [(r, WORLD, 5, "all_reduce", 4, 40.0, -1.0) for r in (0, 1)] + [
        (2, [2, 3], 1, "barrier", 4, 41.0, -1.0)
    ]
    hang = analyse(ends_in(stuck, 60_000.0)).hang
    assert hang is not None and (hang.op, hang.ranks, hang.missing, hang.others) == (
        "all_reduce",
        [0, 1],
        [2, 3],
        1,
    )
    stuck = [(r, WORLD, 5, "all_reduce", 4, 40.0, -1.0) for r in (0, 1, 3)] + [
        (2, [2, 4], 1, "barrier", 4, 41.0, -1.0)
    ]
    hang = analyse(ends_in(stuck, 60_000.0)).hang
    assert hang is not None and (hang.op, hang.missing, hang.unseen) == ("barrier", [], [4])
    assert "rank 4 left no record. 1 other operation is unfinished, too." in hang.words()


def test_sizes_are_shown_as_they_are() -> None:
    told = [size_words(n) for n in (0, 812, 1000, 4200, 1_900_000, 42_100_000, 3_500_000_000, 2e13)]
    assert told == ["0 B", "812 B", "1.0 kB", "4.2 kB", "1.9 MB", "42 MB", "3.5 GB", "20.0 TB"]


def test_a_recorder_that_keeps_no_ends_is_not_taken_for_calm_nor_for_a_hang() -> None:
    """As Flight Recorder dumps of gloo: finished operations without an end, from an unknown node."""
    line = history(
        2,
        [
            (r, [0, 1], n + 1, "all_reduce", n, 10 * n + 9 * r, 10 * n + 9)
            for n in range(3)
            for r in (0, 1)
        ],
    )
    ranks = []
    for lane in line.lanes:
        for op in lane.trace.ops.operations:
            op.left_s = 0.0
        lane.trace.ops.operations[-1].state = "entered"
        ranks.append(RankCapture(pid=0, rank=lane.trace.rank, ops=lane.trace.ops))
    line = build(from_capture(JobCapture("files", [NodeCapture("", ranks=ranks)])))
    found = analyse(line)
    assert "nothing to compare" in headline(found) and any(
        "have no recorded end" in n for n in found.notes
    )
    assert [c.clock for c in line.clocks] == ["rank 0", "rank 1"] and line.clocks[
        1
    ].bound_ns is None
    told = [s for s in read(b"".join(encode(line))).operations(0)]
    assert [s.end >= 0 for s in told] == [True, True, False] and "outcome" in told[0].facts


def test_a_thousand_ranks_fit_into_one_picture() -> None:
    world = list(range(1024))
    records = [
        (r, world, n + 1, "all_reduce", n, 10.0 * n + (5 if r == 700 else 0), 10.0 * n + 6)
        for n in range(300)
        for r in world
        if n % 30 == 0
    ]
    found = analyse(history(1024, records))
    found.steps = found.steps * 30  # 300 steps
    found.held_up_ms = [row * 30 for row in found.held_up_ms]
    picture = svg(found)
    root = ElementTree.fromstring(picture)
    height, width = float(root.attrib["height"]), float(root.attrib["width"])
    assert width <= 1200 and height <= 1100 and len(picture) < 500_000
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert (
            0 <= float(text.attrib.get("x", "0")) <= width
            and 0 <= float(text.attrib.get("y", "0")) <= height
        )
    assert "1024 ranks in 128 rows" in picture.decode()


def test_bytes_of_an_operation() -> None:
    assert bytes_of(Operation("g", 1, "x", shapes="[4096, 1024],[2]", dtype="bfloat16")) == 2 * (
        4096 * 1024 + 2
    )
    assert bytes_of(Operation("g", 1, "x", shapes="[]", dtype="torch.float64")) == 8
    assert (
        bytes_of(Operation("g", 1, "x", shapes="", dtype="float32"))
        == bytes_of(Operation("g", 1, "x", shapes="[2]"))
        == 0
    )


# --------------------------------------------------------------------------- torch.profiler


def kineto(rank: int | None, base: int, events: list[dict[str, object]]) -> dict[str, object]:
    info = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
    )
    return {"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events} | info


def kernel(name: str, ts: float, dur: float, stream: int, cat: str = "kernel") -> dict[str, object]:
    args = {"device": 0, "stream": stream, "correlation": 11, "grid": [8, 1, 1]}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def test_gpu_slices_get_a_track_for_each_stream_on_the_ranks_clock(tmp_path: Path) -> None:
    line = history(
        2,
        [
            (r, [0, 1], n + 1, "all_reduce", n, 10 * n + r, 10 * n + 5)
            for n in range(3)
            for r in (0, 1)
        ],
    )
    base = int(T0) * 10**9 - 5 * 10**9  # ts counts from there, in microseconds
    events = [
        kernel("gemm", 5_000_000 + 2_000, 900, 7),
        kernel("ncclAllReduce", 5_000_000 - 1_000, 3_000, 20),
        kernel("Memcpy HtoD", 5_000_000 + 100, 5, 7, "gpu_memcpy"),
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    ]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(kineto(0, base, events)))
    (tmp_path / "b.pt.trace.json.gz").write_bytes(
        gzip.compress(json.dumps(kineto(5, base, events)).encode())
    )
    (tmp_path / "c.pt.trace.json").write_text(json.dumps(kineto(1, base + 7200 * 10**9, events)))
    more, notes = tracks_of_folder(tmp_path, line)
    assert [t.name for t in more[0]] == ["GPU 0 stream 7", "GPU 0 stream 20"] and list(more) == [0]
    assert sorted(n.partition(":")[0] for n in notes) == ["b.pt.trace.json.gz", "c.pt.trace.json"]
    found = read(b"".join(encode(line, more=more)))
    tracks = found.rank(0)
    assert [s.name for s in tracks["GPU 0 stream 7"]] == ["Memcpy HtoD", "gemm"]
    [nccl] = tracks["GPU 0 stream 20"]
    first = found.operations(0)[0]
    assert first.begin - nccl.begin == pytest.approx(
        1_000_000, abs=500
    )  # the axis moved back to where the kernel begins
    assert (
        nccl.end - nccl.begin == 3_000_000
        and nccl.facts["grid"] == "[8, 1, 1]"
        and nccl.facts["correlation"] == 11
    )
    (tmp_path / "d.json").write_text('{"traceEvents": [{"ph": "X", ')
    with pytest.raises(BadInput, match=r"d\.json"):
        tracks_of_folder(tmp_path, line)
    with pytest.raises(BadInput, match=r"has no \.json"):
        tracks_of_folder(tmp_path / "nothing", line)


def test_slices_nest_and_what_overlaps_is_cut() -> None:
    outer = nest(
        [Slice("b", 2, 4, ""), Slice("a", 0, 10, ""), Slice("c", 3, 12, ""), Slice("d", 10, 11, "")]
    )
    assert [(s.name, [i.name for i in s.inner]) for s in outer] == [("a", ["b"]), ("d", [])]
    assert [(i.name, i.end) for i in outer[0].inner[0].inner] == [("c", 4)]


# --------------------------------------------------------------------------- Python calls


def test_calls_nest_and_those_that_never_returned_stay_open() -> None:
    line = history(1, [(0, [0], 1, "all_reduce", 0, 0, 90)])
    functions = [
        Function(n, f"/job/{n}.py", i + 1, n)
        for i, n in enumerate(["main", "step", "load", "helper"])
    ]
    threads = [CallThread(50, "MainThread"), CallThread(51, "Loader")]
    said = [
        (0, "return", 3, 0),
        (1, "call", 1, 0),
        (2, "call", 2, 0),
        (2, "open", 0, 1),
        (3, "return", 2, 0),
        (4, "call", 2, 0),
        (5, "exception", 2, 0),
        (6, "call", 3, 0),
        (7, "call", 2, 1),
    ]
    calls = CallTrace(0, 50, "tracing", base_ns=int(T0 * 1e9), functions=functions, threads=threads)
    calls.events = [
        Event(at * 1_000_000, kind, function, thread) for at, kind, function, thread in said
    ]  # type: ignore[arg-type]
    line.lanes[0].trace.calls = calls
    tracks = read(b"".join(encode(line))).rank(0)
    main = [
        (
            s.name,
            s.depth,
            (s.begin - 1) // 1_000_000,
            (s.end - 1) // 1_000_000 if s.end > 0 else None,
        )
        for s in tracks["calls, MainThread"]
    ]
    assert main == [
        ("helper", 0, 0, 0),
        ("step", 0, 1, None),
        ("load", 1, 2, 3),
        ("load", 1, 4, 5),
        ("helper", 1, 6, None),
    ]
    raised = [s.facts.get("left by") for s in tracks["calls, MainThread"]]
    assert raised == [None, None, None, "an exception", None]
    assert [(s.name, s.depth, s.end) for s in tracks["calls, Loader"]] == [
        ("main", 0, -1),
        ("load", 1, -1),
    ]
    assert tracks["calls, MainThread"][1].place == ("step", "/job/step.py", 2)
    calls.state = "stopped"  # how they went on is not known: nothing stays open
    assert all(s.end > 0 for s in read(b"".join(encode(line))).rank(0)["calls, MainThread"])
    assert "calls, MainThread" not in read(b"".join(encode(line, calls=0))).rank(0)


def test_tracing_that_was_switched_on_again_does_not_join_what_is_unrelated() -> None:
    line = history(1, [(0, [0], 1, "all_reduce", 0, 0, 90)])
    calls = CallTrace(
        0,
        50,
        "tracing",
        base_ns=int(T0 * 1e9),
        functions=[Function("f", "f.py", 1)],
        threads=[CallThread(50)],
    )
    calls.events = [Event(0, "call", 0, 0), Event(5, "begin", 0, 0), Event(9, "call", 0, 0)]
    line.lanes[0].trace.calls = calls
    assert [s.depth for s in read(b"".join(encode(line))).rank(0)["calls, thread 50"]] == [0, 0]


def test_the_flags_of_the_commands_neither_appear_nor_vanish_unnoticed() -> None:
    flags = {
        c.name: {o for p in c.params for o in p.opts if o.startswith("--")}
        for c in (export, stragglers)
    }
    assert flags["export"] == {"--out", "--torch-profiler", "--calls", "--job", "--quiet"}
    assert flags["stragglers"] == {"--json", "--svg", "--job", "--no-color"}
