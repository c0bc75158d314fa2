"""A few bytes that stand for millions of ranks, hosts or bytes, numbers without end, long lines:
named, left out, never a traceback.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput
from hangdoctor.launchers import gather
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.layout import guess_layout
from hangdoctor.model.operations import Group, RankOps
from hangdoctor.preflight import gpu as preflight_gpu
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.readers import (
    blackbox,
    discover,
    lost_ranks,
    offline,
    pyspy_frames,
    pyspy_ranks,
    pyspy_text,
    rank_environment,
    ras_reader,
    safe_pickle,
)
from hangdoctor.readers import (
    flight_recorder_format as fr_format,
)
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.readers.calls import CallsReader
from hangdoctor.storage import bundle, operations_codec
from hangdoctor.text import ranges
from hangdoctor.timeline import profiler, tracks
from hangdoctor.transport import capture_codec, messages
from hangdoctor.transport import stdout_frame as wire
from hangdoctor.transport.capture_codec import pack_capture, unpack_capture
from tests.support.confined import confined

LONG = "9" * 5000


def box_of(folder: Path, members: str = "0-3", groups: int = 1, world: int = 4) -> Path:
    box = BoxWriter(folder, "job", 1 << 20)
    for n in range(groups):
        box.add_group(f"{n:016x}", 4, f"{members},{n}" if groups > 1 else members, "g", 0)
    box.put(fmt.H_RANK, 0)
    box.put(fmt.H_WORLD, world)
    path = folder / "n1-1.blackbox"
    path.write_bytes(bytes(box.map))
    box.remove()
    return path


def dump_of(**more: object) -> bytes:
    row = {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
    }
    return json.dumps({"version": "2.10", "entries": [row], **more}).encode()


# ---------------------------------------------------------------------- ranges that are written out


@pytest.mark.parametrize(
    "members", ["0-10000000", "0-1999999,0-1999999,0-1999999", LONG, "0-" + LONG, "\u0660-\u0669"]
)
def test_members_of_a_box_stay_a_range_until_they_fit(tmp_path: Path, members: str) -> None:
    path = box_of(tmp_path, members)
    assert (
        confined(lambda: [len(g.ranks) for g in blackbox.read_box(path).ops.groups]) == "read: [0]"
    )


def test_many_groups_of_millions_share_one_limit_and_the_box_says_so(tmp_path: Path) -> None:
    path = box_of(tmp_path, "0-1900000", groups=200)
    said = confined(lambda: blackbox.read_box(path).ops.notes)
    assert "198 groups of n1-1.blackbox have more members than a job can have" in said


def test_a_world_that_no_job_has_is_refused_by_name(tmp_path: Path) -> None:
    path = box_of(tmp_path, world=(1 << 31) - 1)
    assert "n1-1.blackbox: damaged: a world is 2147483647" in confined(
        lambda: blackbox.read_box(path)
    )


def test_the_others_are_read_where_one_dump_names_a_billion(tmp_path: Path) -> None:
    good = dump_of(pg_config={"0": {"desc": "default_pg", "ranks": "[0, 1, 2]"}})
    (tmp_path / "trace_rank_0").write_bytes(good)
    (tmp_path / "trace_rank_1").write_bytes(
        dump_of(pg_config={"0": {"desc": "default_pg", "ranks": "[0, 999999999]"}})
    )
    (tmp_path / "trace_rank_9999999").write_bytes(good)

    def read() -> list[object]:
        capture = offline.read(sorted(tmp_path.iterdir()))
        diagnose(capture)
        return [capture.world_size, [r.rank for r in capture.ranks()], capture.notes]

    said = confined(read)
    assert said.startswith("read: [3, [0]")
    assert (
        "trace_rank_1: damaged dump: a group has rank 999999999" in said
        and "its name says rank 9999999" in said
    )


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_cannot_name_one_thing_a_million_times(protocol: int) -> None:
    row = {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
    }
    many = pickle.dumps({"version": "2.10", "entries": [row] * 500_000}, protocol=protocol)
    assert "too many" in confined(lambda: fr_format.parse(many))
    shared = list(range(50_000))
    groups = {str(n): {"desc": "g", "ranks": shared} for n in range(20_000)}
    data = pickle.dumps(
        {"version": "2.10", "entries": [row], "pg_config": groups}, protocol=protocol
    )
    assert confined(lambda: len(fr_format.parse(data).members)) == "read: 20000"


def test_the_layout_of_a_large_world_is_not_tried_out_rank_by_rank() -> None:
    dumps = {n: dump_of(pg_status={"0": {}}, pg_config={}) for n in (0, 720_719)}

    def read() -> object:
        from hangdoctor.readers.flight_recorder import convert

        return convert({n: fr_format.parse(d) for n, d in dumps.items()}).world_size

    assert confined(read) == "read: 720720"


@pytest.mark.parametrize("text", ["0-10000000", "0-" + LONG, "\u0662"])
def test_lists_of_ranks_are_refused_before_they_are_written_out(text: str) -> None:
    assert confined(lambda: ranges.parse_ranks(text)).startswith("refused: ")


def test_a_range_that_is_repeated_is_written_out_once() -> None:
    text = ",".join(["0-1999999"] * 50)
    assert confined(lambda: len(ranges.parse_ranks(text))) == "read: 2000000"


@pytest.mark.parametrize(
    "text",
    ["n[0-999999999]", "[0-9]" * 12, f"n[{LONG}]", "n" * 400_000 + "[0-99999]", "n[1-99999]," * 20],
)
def test_lists_of_hosts_are_refused_before_they_are_written_out(text: str, tmp_path: Path) -> None:
    assert confined(lambda: len(ranges.parse_hosts(text))).startswith("refused: ")


def test_lists_of_hosts_are_what_they_were() -> None:
    assert ranges.parse_hosts("r7i6n[0-1,04],login,a[1-2]b[08-09]c") == [
        "r7i6n0",
        "r7i6n1",
        "r7i6n04",
        "login",
        "a1b08c",
        "a1b09c",
        "a2b08c",
        "a2b09c",
    ]
    assert (
        ranges.format_hosts(["n2", "n1", "n01", "10.0.0.1", LONG]) == f"10.0.0.1,{LONG},n01,n[1-2]"
    )


def test_a_process_that_claims_millions_of_neighbours_has_none() -> None:
    for told in ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1999999"}, {"MASTER_ADDR": "127.0.0.1"}):
        environ = {"RANK": "0", "WORLD_SIZE": "1999999", **told}
        numbers = rank_environment.rank_of(environ)
        assert numbers is not None
        rank, world, local, on_node = numbers
        found = discover.Found(
            pid=os.getpid(),
            ppid=1,
            rank=rank,
            world_size=world,
            local_rank=local,
            local_world_size=on_node,
            job="j",
            started=0.0,
            user="u",
            argv=[],
            environ=environ,
        )
        job = discover.Job("j", [found])
        assert confined(lambda job=job: len(lost_ranks.lost_ranks(job, "n1"))) == "read: 0"  # type: ignore[misc]


def test_a_world_in_a_message_or_capture_is_bounded() -> None:
    hello = messages.encode(messages.Hello("a1", "n1", world_size=1 << 40))
    assert confined(lambda: messages.from_agent(hello)).startswith("refused: ")
    capture = NodeCapture("n1", ranks=[RankCapture(pid=1, rank=0, world_size=1 << 40)])
    assert "a job has at most" in confined(
        lambda: capture_codec.unpack_capture(capture_codec.pack_capture(capture))
    )
    huge = NodeCapture(
        "n1", ranks=[RankCapture(pid=1, rank=0, ops=RankOps(0, 4, groups=[Group("g", [0])]))]
    )
    packed = msgspec.msgpack.decode(zlib.decompress(capture_codec.pack_capture(huge)))
    packed[4] = [{"uid": str(n)} for n in range(200)]
    packed[5] = {str(n): [[0, 1, 1_900_000]] for n in range(200)}
    body = zlib.compress(msgspec.msgpack.encode(packed))
    assert "more members than the job has" in confined(lambda: capture_codec.unpack_capture(body))


@pytest.mark.parametrize(
    "change", [{"world_size": 1 << 40}, {"layout": {"dp": 0}}, {"layout": {"dp": 1 << 40}}]
)
def test_a_bundle_with_such_numbers_is_damaged(tmp_path: Path, change: dict[str, object]) -> None:
    capture = JobCapture("j", [NodeCapture("n1", ranks=[RankCapture(pid=1, rank=0)])], world_size=1)
    path = bundle.save(tmp_path / "b", capture, diagnose(capture), "", [])
    raw = json.loads((path / "capture.json").read_text()) | change
    (path / "capture.json").write_text(json.dumps(raw))
    manifest = json.loads((path / "manifest.json").read_text())
    import hashlib

    manifest["files"]["capture.json"] = (
        "sha256:" + hashlib.sha256((path / "capture.json").read_bytes()).hexdigest()
    )
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert "a job has at most" in confined(lambda: load([path]))


# --------------------------------------------------------------------------- compressed and sparse


def test_what_is_small_when_compressed_is_not_inflated_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressor = zlib.compressobj(1)
    zeros = b"\0" * (1 << 20)
    bomb = b"".join([*(compressor.compress(zeros) for _ in range(200)), compressor.flush()])
    assert len(bomb) < 1 << 20
    monkeypatch.setattr(operations_codec, "free_memory", lambda: 1 << 30)
    monkeypatch.setattr(profiler, "_MAX_BYTES", 64 << 20)
    assert confined(lambda: operations_codec.unpack(bomb)).startswith(
        "refused: the operations in the bundle need more"
    )
    assert confined(lambda: capture_codec.unpack_capture(bomb)).startswith("refused: ")
    with gzip.open(tmp_path / "rank0.json.gz", "wb", 1) as file:
        file.writelines(zeros for _ in range(200))
    assert "larger than 64 MiB" in confined(lambda: profiler._read(tmp_path / "rank0.json.gz"))


def test_a_report_of_nothing_but_lists_is_refused() -> None:
    packed = msgspec.msgpack.decode(zlib.decompress(pack_capture(NodeCapture("n"))))
    count = 40_000_000
    packed[2] = ["stacks"]
    stacks = b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count
    data = msgspec.msgpack.encode(packed).replace(msgspec.msgpack.encode(["stacks"]), stacks)
    body = zlib.compress(data, 1)
    text = wire.pack(wire.NodeReply("n", body))
    assert "lists and records" in confined(lambda: unpack_capture(wire.unpack(text).body))


def test_files_of_holes_and_fifos_are_not_read(tmp_path: Path) -> None:
    holes = tmp_path / "n1-2.blackbox"
    with holes.open("wb") as file:
        file.truncate(900 << 20)
    assert "most of it was never written" in confined(lambda: blackbox.read_box(holes))
    for name in ("n1-3.blackbox", "trace-n1.out", "manifest.json"):
        os.mkfifo(tmp_path / name)
    assert "not a regular file" in confined(lambda: blackbox.read_box(tmp_path / "n1-3.blackbox"))
    assert "not a regular file" in confined(
        lambda: pyspy_ranks.read_files([tmp_path / "trace-n1.out"])
    )
    assert "not a regular file" in confined(lambda: bundle.load(tmp_path))


# -------------------------------------------------------------------- numbers and lines without end


def test_numbers_without_end_in_texts() -> None:
    text = f"Process {LONG}: python\nProcess 7: python train.py --local-rank={LONG}\nThread {LONG} (idle)\nThread 7 (idle)\n    f (a.py:{LONG})\n"
    found = pyspy_text.parse_text(text, "n1")
    assert [p.pid for p in found.processes] == [7]
    assert [(f.name, f.line) for f in found.processes[0].threads[0].frames] == [("f", 0)]
    thread = {"pid": 1, "thread_id": 2, "frames": [{"name": "f", "filename": "a.py", "line": 3}]}
    whole, hostile = (
        json.dumps([thread]),
        json.dumps([thread]).replace('"line": 3', f'"line": {LONG}'),
    )
    stream = pyspy_text.parse_json_stream(f"{hostile}\n{whole}\n", "n1")
    assert len(stream.processes) == 1 and len(stream.errors) == 1, "the one beside it is read"
    with pytest.raises(BadInput):
        pyspy_frames.parse_json(hostile.encode())
    assert guess_layout(["--tp=" + LONG, "--tp", "\u00b2"], {"TP": LONG}, 8) is None
    assert (
        preflight_gpu.parse(f"{LONG}, GPU, 1, 2, 3\n0, H100, 550, {LONG}, \u00b2\n")[0].used_mb == 0
    )
    report = ras_reader.parse(
        f"Job summary\n#0-0 (ab) MISMATCH\nRank {LONG} has launched -- GPU 1 managed by process 2 on node n\n".encode()
    )
    assert report.communicators[0].ranks == []
    assert tracks.site_of(f"f (a.py:{LONG})") == ("", "", 0) and tracks.site_of(
        "f (x) (a.py:3)"
    ) == ("f (x)", "a.py", 3)
    with pytest.raises(BadInput):
        safe_pickle.loads(b"\x80\x02K\x01(K\x02e.")


def test_a_frame_reads_as_it_did() -> None:
    frame = pyspy_text.frame_of("    <lambda> (train.py:7)  ")
    assert frame is not None and (frame.name, frame.file, frame.line) == ("<lambda>", "train.py", 7)
    native = pyspy_text.frame_of("    std::f (anonymous namespace) (libtorch.so.2:x)")
    assert native is not None and (native.name, native.file) == (
        "std::f (anonymous namespace)",
        "libtorch.so.2:x",
    )
    for line in (
        "     f (a.py:1)",
        "    f(a.py:1)",
        "   f (a.py:1)",
        "    f (a.py:1",
        "     (a.py:1)",
    ):
        assert pyspy_text.frame_of(line) is None, line


LINES = {
    "frame": "    " + " (" * 45_000 + "x",
    "frame with places": "    f" + " (a:1" * 18_000 + ")x",
    "thread": "Thread 1 (" + '"' * 90_000,
    "thread name": 'Thread 1 (idle): "' + '" ' * 45_000 + "x",
    "error": "failed" + " " * 90_000 + "x",
    "prefix": "a" * 90_000 + ": x",
    "prefixes": "a: " * 30_000,
    "frames": "    f (" * 12_000,
}


def test_long_command_lines_take_no_time(tmp_path: Path) -> None:
    path = tmp_path / "trace-n1.out"
    path.write_text(
        "".join(
            f"Process {n}: python {'a/' * 45_000}\nThread 1 (idle)\n    f (a.py:1)\n"
            for n in range(8)
        )
    )
    assert confined(lambda: len(pyspy_ranks.read_files([path]).ranks()), seconds=3) == "read: 8"


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_long_lines_of_stacks_take_no_time(line: str) -> None:
    """`confined` fails it where reading takes longer, or raises."""
    confined(
        lambda: pyspy_text.parse_text(f"Process 1: x\nThread 1 (idle)\n{line}\n" * 20, "n1") and "",
        seconds=3,
    )


def test_long_lines_elsewhere_take_no_time() -> None:
    rank = "Rank 1 has" + " -- GPU 1 managed by process 1 on node n has" * 2000 + "\n"
    confined(
        lambda: (
            ras_reader.parse(b"Job summary\n#0-0 (ab) MISMATCH\n" + (rank * 20).encode()) and ""
        ),
        seconds=3,
    )
    confined(
        lambda: ranges.format_hosts(["1" * 90_000 + "x", "a" + "1" * 90_000 + "x"]) and "",
        seconds=3,
    )
    confined(lambda: gather.set_up_trouble("sh" * 45_000) and "", seconds=3)
    confined(lambda: gather.set_up_trouble("bash: /x/python: No such file or directory"), seconds=3)
    confined(lambda: tracks.site_of(" (a:1" * 18_000) and "", seconds=3)
    assert (
        gather.set_up_trouble("bash: line 1: /x/python: No such file or directory")
        == "there is no such Python"
    )
    assert (
        gather.set_up_trouble("execve(): /x: Permission denied")
        == "there is no permission to run that Python"
    )
    assert (
        gather.set_up_trouble("No module named 'msgspec'")
        == "the Python there cannot import hangdoctor"
    )


# ----------------------------------------------------------------- tables that lead out of the file


@pytest.mark.parametrize("place", [fmt.H_THREADS, fmt.H_STRINGS, fmt.H_RING])
@pytest.mark.parametrize("value", [(1 << 64) - 1, 1 << 62, 1 << 40])
def test_offsets_beyond_a_box_are_refused(
    tmp_path: Path, place: tuple[int, str], value: int
) -> None:
    path = box_of(tmp_path)
    data = bytearray(path.read_bytes())
    _, count, width = struct.unpack_from(place[1], data, place[0])
    watch = BoxWatch(path)
    struct.pack_into(place[1], data, place[0], value, count, width)
    path.write_bytes(data)
    for reader in (blackbox.read_box, BoxWatch):
        assert confined(lambda reader=reader: reader(path)).startswith("refused: ")  # type: ignore[misc]
    with pytest.raises(OSError, match="beyond its end"):
        watch.read()  # what was sound when it was opened
    watch.close()


def test_offsets_beyond_a_file_of_calls_are_refused(tmp_path: Path) -> None:
    from hangdoctor.probe.calls import format as calls
    from hangdoctor.probe.calls.ring import Ring

    ring = Ring(tmp_path / "n1-1.blackbox", 1 << 20, 0, 1)
    whole = bytes(ring.map)
    assert confined(lambda: CallsReader(ring.path).read().capacity).startswith("read: ")
    for place in (calls.H_THREADS, calls.H_CODES, calls.H_TEXTS, calls.H_RING):
        data = bytearray(whole)
        struct.pack_into("<Q", data, place[0], (1 << 64) - 1)
        ring.path.write_bytes(data)
        assert confined(lambda: CallsReader(ring.path).read()).startswith("refused: ")
