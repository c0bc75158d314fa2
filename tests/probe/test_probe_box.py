"""The box as a file: what the writer writes, the reader reads, also when half of it is nonsense. No
torch here.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.group_id import group_uid
from hangdoctor.probe import flight, retention
from hangdoctor.probe import folder as folders
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.group_table import GroupEntry, members_text
from hangdoctor.probe.identity import job_key, ranks_from, start_ticks
from hangdoctor.probe.record_core import Thread
from hangdoctor.probe.recorder import Recorder, local
from hangdoctor.readers.blackbox import contents_of, find_boxes, moved, parse_members, read_box


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoxWriter]:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    local.thread = Thread()
    yield BoxWriter(tmp_path, "a-job", 1 << 20)
    local.thread = Thread()


@pytest.fixture
def recorder(box: BoxWriter) -> Recorder:
    made = Recorder(box)
    members = [0, 1, 2, 3]
    index = box.add_group(group_uid(members), 4, members_text(members), "world", 0)
    made.groups.default = GroupEntry(index, members, group_uid(members))
    return made


def enter(recorder: Recorder, text: str = "all_reduce\tsum\tfloat32\t[2]") -> tuple[int, int]:
    entry = recorder.groups.default
    assert entry is not None
    entry.seq += 1
    return recorder.write(
        entry, entry.seq, recorder.box.intern(text), recorder.box.intern("f (x.py:1)")
    )


def test_header_and_record_come_back(recorder: Recorder) -> None:
    recorder.finish((enter(recorder),))
    enter(recorder, "broadcast\t\tint64\t[3],[4]")
    read = read_box(recorder.box.path)
    assert (read.box.rank, read.box.world_size, read.box.job, read.box.status) == (
        3,
        4,
        "a-job",
        "live",
    )
    done, entered = read.ops.operations
    assert (done.op, done.seq, done.state, done.reduce_op, done.dtype, done.shapes, done.site) == (
        "all_reduce",
        1,
        "done",
        "sum",
        "float32",
        "[2]",
        "f (x.py:1)",
    )
    assert (entered.op, entered.seq, entered.state, entered.left_s) == (
        "broadcast",
        2,
        "entered",
        0.0,
    )
    assert read.ops.groups[0].ranks == [0, 1, 2, 3] and done.group == group_uid([0, 1, 2, 3])
    assert read.threads[0].operation == entered


def test_two_reads_show_whether_the_frontier_moved(recorder: Recorder) -> None:
    token = enter(recorder)
    before = read_box(recorder.box.path)
    assert not moved(before, read_box(recorder.box.path))
    recorder.finish((token,))
    left = read_box(recorder.box.path)
    assert moved(before, left)
    enter(recorder)
    assert moved(left, read_box(recorder.box.path))


def test_the_last_operations_alone_with_those_that_are_unfinished(recorder: Recorder) -> None:
    enter(recorder, "recv\t\tfloat32\t[9]")
    for _ in range(20):
        recorder.finish((enter(recorder),))
    read = read_box(recorder.box.path, last=2)
    assert [o.seq for o in read.ops.operations] == [1, 20, 21]
    assert read.last_serial == 21
    assert read.ops.overwritten and not read_box(recorder.box.path).ops.overwritten


def test_the_ring_overwrites_the_oldest_but_not_what_is_unfinished(recorder: Recorder) -> None:
    room = recorder.box.regions["ring"][1]
    stuck = enter(recorder, "send\t\tfloat32\t[9]")
    for _ in range(room + 10):
        recorder.finish((enter(recorder),))
    read = read_box(recorder.box.path)
    assert read.ops.overwritten and len(read.ops.operations) == room
    assert read.ops.operations[0].op == "send" and read.ops.operations[0].state == "entered"
    assert [o.seq for o in read.ops.operations[1:]] == list(range(13, room + 12))
    recorder.finish((stuck,))
    assert read_box(recorder.box.path).ops.operations[0].state == "done"


def test_a_completion_that_comes_after_its_slot_is_taken_is_dropped(recorder: Recorder) -> None:
    at, serial = enter(recorder)
    recorder.words[at] = serial + 4096
    recorder.finish(((at, serial),))
    assert recorder.words[at + fmt.LEFT_WORD] == 0


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 77), (68, 77)],
    ids=["begun by the next writer", "not written to its end"],
)
def test_torn_records_are_counted_and_left_out(recorder: Recorder, offset: int, value: int) -> None:
    for _ in range(3):
        recorder.finish((enter(recorder),))
    at, _ = enter(recorder)
    struct.pack_into("<I", recorder.box.map, at * 8 + offset, value)
    read = read_box(recorder.box.path)
    assert [o.seq for o in read.ops.operations] == [1, 2, 3]
    assert read.torn == 1 and "1 records" in read.ops.notes[0]


def test_a_box_that_goes_away_while_it_is_read(recorder: Recorder) -> None:
    first = recorder.box.path.read_bytes()
    enter(recorder)
    second = recorder.box.path.read_bytes()
    recorder.box.remove()
    assert (
        contents_of(recorder.box.path, first, second).torn == 1
    )  # it could not be looked at a third time


def test_what_is_larger_than_any_box_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "n-1.blackbox").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadInput, match="larger"):
        read_box(tmp_path / "n-1.blackbox")


def test_nonsense_in_the_tables_does_not_stop_the_reader(recorder: Recorder) -> None:
    at, _ = enter(recorder)
    struct.pack_into(
        "<IIII", recorder.box.map, at * 8 + 24, 4_000_000, 4_000_000_000, 4_000_000_000, 4_000_000
    )
    recorder.box.put(fmt.H_GROUPS_USED, 1 << 60)
    recorder.box.put(fmt.H_PHASE, 1 << 31)
    (operation,) = read_box(recorder.box.path).ops.operations
    assert (operation.op, operation.group, operation.site, operation.thread) == (
        "",
        group_uid([0, 1, 2, 3]),
        "",
        0,
    )


@pytest.mark.parametrize("size", [0, 100, fmt.HEADER_BYTES - 1, fmt.HEADER_BYTES, 900_000])
def test_a_box_cut_short_is_named(box: BoxWriter, tmp_path: Path, size: int) -> None:
    cut = tmp_path / f"cut{fmt.SUFFIX}"
    cut.write_bytes(box.path.read_bytes()[:size])
    with pytest.raises(BadInput, match=r"cut\.blackbox: truncated"):
        read_box(cut)


def test_foreign_files_and_other_versions_are_named(box: BoxWriter, tmp_path: Path) -> None:
    foreign, later = tmp_path / f"foreign{fmt.SUFFIX}", tmp_path / f"later{fmt.SUFFIX}"
    foreign.write_bytes(b"GIF89a" + bytes(9000))
    raw = bytearray(box.path.read_bytes())
    struct.pack_into("<I", raw, fmt.H_VERSION[0], 99)
    later.write_bytes(raw)
    with pytest.raises(BadInput, match=r"foreign.*not a black box"):
        read_box(foreign)
    with pytest.raises(BadInput, match=r"later.*version 99"):
        read_box(later)
    with pytest.raises(BadInput, match=r"gone\.blackbox"):
        read_box(tmp_path / "gone.blackbox")
    assert [b.pid for b in find_boxes(tmp_path)] == [os.getpid()]


def copy(box: BoxWriter, name: str, changes: dict[tuple[int, str], object]) -> Path:
    raw = bytearray(box.path.read_bytes())
    for (offset, how), value in changes.items():
        struct.pack_into(how, raw, offset, value)
    path = box.path.with_name(name + fmt.SUFFIX)
    path.write_bytes(raw)
    return path


def test_live_dead_and_stale_boxes(box: BoxWriter, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    copy(box, "same-pid-another-process", {fmt.H_STARTED_TICKS: start_ticks() - 1, fmt.H_RANK: 0})
    copy(box, "gone", {fmt.H_PID: ended.pid, fmt.H_RANK: 1})
    copy(box, "other-boot", {fmt.H_BOOT_ID: b"x" * 16, fmt.H_RANK: 2})
    copy(box, "replaced", {fmt.H_PID: ended.pid, fmt.H_CREATED_WALL: 5})
    status = {Path(b.path).stem: b.status for b in find_boxes(tmp_path)}
    assert status == {
        "same-pid-another-process": "dead",
        "gone": "dead",
        "other-boot": "stale",
        "replaced": "stale",
        box.path.stem: "live",
    }
    assert find_boxes(tmp_path, job="another") == [] and find_boxes(tmp_path, pids=[1]) == []


def test_of_a_ranks_dead_predecessors_one_is_kept(box: BoxWriter, tmp_path: Path) -> None:
    host = box.path.name.rpartition("-")[0]
    for i in range(3):
        old = copy(box, f"{host}-{900000 + i}", {fmt.H_STARTED_TICKS: 1, fmt.H_PID: 900000 + i})
        os.utime(old, (i, i))
        old.with_suffix(".calls").touch()
        (tmp_path / f"hangdoctor-{900000 + i}.sock").touch()  # killed ranks leave it
    folders.prune(tmp_path, rank=2, host=host)
    assert len(list(tmp_path.iterdir())) == 10
    folders.prune(tmp_path, rank=3, host=host)
    kept = f"{host}-900002"
    left = [box.path.name, f"{kept}{fmt.SUFFIX}", f"{kept}.calls", "hangdoctor-900002.sock"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(left)


def listen(path: Path) -> None:
    """A socket as a killed rank leaves it."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_what_crashed_jobs_left_a_week_ago_is_taken_away(tmp_path: Path) -> None:
    now, week = time.time_ns(), 7 * 24 * 3600 * 10**9
    fates = {
        "old": (1, now - week - 10**9),
        "young": (1, now - week + 10**12),
        "runs": (start_ticks(), now - 2 * week),
    }
    for name, (ticks, beat) in fates.items():
        (tmp_path / name).mkdir()
        made = BoxWriter(tmp_path / name, name, 1 << 20)
        made.put(fmt.H_STARTED_TICKS, ticks)
        made.put(fmt.H_BEAT_WALL, beat)
        listen(tmp_path / name / "hangdoctor-1.sock")
        if (
            name != "runs"
        ):  # a file that no process has mapped, in the place of one that this one has
            content = made.path.read_bytes()
            made.path.unlink()
            made.path.write_bytes(content)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    retention.tidy(tmp_path, now, seconds=5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "runs", "young"]


def test_full_tables_are_no_error(box: BoxWriter) -> None:
    ids = {box.intern(f"text {i}" * 20) for i in range(3000)}
    assert 0 in ids and len(ids) > 1000
    indices = [box.add_group(group_uid([i]), 1, str(i), "", 0) for i in range(fmt.GROUPS + 1)]
    assert indices[-1] == fmt.NO_GROUP and indices[-2] == fmt.GROUPS - 1
    for index in (7, 5):
        box.end_group(index)
    again = [box.add_group(group_uid([9_000 + i]), 1, str(i), "", 0) for i in range(3)]
    assert again == [7, 5, fmt.NO_GROUP]


def attempt(before: str, folder: Path, *namespace: str) -> subprocess.CompletedProcess[str]:
    """Make a box in a process of its own, which says the error that it met, and write to all of it."""
    code = (
        "import resource, pathlib, signal\n"
        "from hangdoctor.probe.box import BoxWriter\n"
        f"{before}\n"
        "try:\n"
        f"    box = BoxWriter(pathlib.Path({str(folder)!r}), 'j')\n"
        "    box.map[:] = bytes(len(box.map))\n"
        "    print('made')\n"
        "except OSError as e:\n"
        "    print(e.errno)\n"
        f"print(len(list(pathlib.Path({str(folder)!r}).iterdir())))\n"
    )
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [*namespace, sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
        capture_output=True,
        timeout=60,
    )


def test_a_file_that_may_not_become_so_large_is_an_error_and_no_signal(tmp_path: Path) -> None:
    ended = attempt("resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))", tmp_path)
    assert (ended.stdout.split(), ended.returncode) == ([str(errno.EFBIG), "0"], 0), ended.stderr


@pytest.mark.parametrize(
    ("kilobytes", "said"),
    [(256, [str(errno.ENOSPC), "0"]), (fmt.DEFAULT_BYTES // 512, ["made", "1"])],
)
def test_no_room_is_an_error_before_the_job_can_run_into_it(
    kilobytes: int, said: list[str], tmp_path: Path
) -> None:
    mount = f'mount -t tmpfs -o size={kilobytes}k tmpfs {tmp_path} || exit 77; exec "$0" "$@"'
    rights = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    ended = attempt("", tmp_path, "unshare", *rights, "sh", "-c", mount)
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip(f"needs the right to mount a small file system: {ended.stderr.strip()}")
    assert (ended.stdout.split(), ended.returncode) == (said, 0), ended.stderr


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([0, 1, 2, 3], "0-3"),
        (range(0, 8, 4), "0,4"),
        (range(2, 4), "2-3"),
        ([28, 0, 4, 8, 12, 16, 20, 24], "0-28:4"),
        ([1, 5, 6, 7], "1,5-7"),
        ([0, 3], "0,3"),
        (list(range(0, 16384, 16)), "0-16368:16"),
    ],
)
def test_member_sets_as_text(ranks: list[int] | range, text: str) -> None:
    assert members_text(ranks) == text
    assert parse_members(text) == sorted(ranks)


def test_text_that_is_no_member_set_gives_none() -> None:
    assert [
        parse_members(t) for t in ("x", "1-", "1-2:0", "-1", "1-2:x", "0-999999999", "9" * 5000)
    ] == [[]] * 7


def test_the_folder_is_private_and_foreign_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o755)
    assert folders.prepare(loose) == loose and loose.stat().st_mode & 0o777 == 0o755
    assert folders.prepare(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(loose)
    for taken in ("file", "link"):
        with pytest.raises(folders.FolderRefused, match=taken):
            folders.prepare(tmp_path / taken)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(folders.FolderRefused, match="another user"):
        folders.prepare(loose)


def test_rank_and_job_from_the_environment() -> None:
    assert ranks_from({"RANK": "2", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "SLURM_PROCID": "5"}) == (
        2,
        8,
        0,
    )
    assert ranks_from({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}) == (5, 6, -1)
    assert ranks_from({"PMI_RANK": "1", "PMI_SIZE": "2"}) == (1, 2, -1)
    assert ranks_from({"RANK": "", "WORLD_SIZE": "8"}) == (-1, -1, -1)
    assert job_key({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}) == "slurm-7.0"
    assert "/" not in job_key({"MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "../../x"})


def test_the_flight_recorder_is_sized_where_the_user_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in flight.torchnames.RECORDER_SIZES:
        monkeypatch.delenv(name, raising=False)
    flight.set_recorder_size()
    assert os.environ.pop("TORCH_FR_BUFFER_SIZE") == flight.RECORDS
    os.environ.pop("TORCH_NCCL_TRACE_BUFFER_SIZE", None)
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "17")
    flight.set_recorder_size()
    assert (
        "TORCH_FR_BUFFER_SIZE" not in os.environ
        and os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "17"
    )


def test_a_file_without_room_for_a_record_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="too few"):
        fmt.regions(256 << 10)
