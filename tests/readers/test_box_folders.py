"""Which black boxes are found, which of them ran beside others, and whose jobs they are of: by the
headers alone, without a process that runs.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.probe import format as fmt
from hangdoctor.probe.identity import boot_id, start_ticks
from hangdoctor.readers import box_folders
from hangdoctor.readers.box_header import BlackBox, parse_header

PLACES = {
    "pid": fmt.H_PID,
    "rank": fmt.H_RANK,
    "world": fmt.H_WORLD,
    "local_rank": fmt.H_LOCAL_RANK,
    "created": fmt.H_CREATED_WALL,
    "beat": fmt.H_BEAT_WALL,
    "iterated": fmt.H_ITERATION_SINCE,
    "phase": fmt.H_PHASE_SINCE,
    "ended": fmt.H_END_AT,
    "micro_batch": fmt.H_MICRO_BATCH,
    "ticks": fmt.H_STARTED_TICKS,
    "boot": fmt.H_BOOT_ID,
    "host": fmt.H_HOST,
    "job": fmt.H_JOB,
}
SECOND = 10**9
GONE = {"ticks": 1}  # no process of this number began then


def header(**more: Any) -> bytes:
    """Of this process's box, unless `more` says otherwise."""
    told = {"pid": os.getpid(), "ticks": start_ticks(), "boot": boot_id(), "host": b"n1"} | more
    data = bytearray(fmt.HEADER_BYTES)
    data[:8] = fmt.MAGIC
    struct.pack_into(fmt.H_VERSION[1], data, fmt.H_VERSION[0], fmt.VERSION)
    for name, value in told.items():
        offset, how = PLACES[name]
        struct.pack_into(how, data, offset, value)
    return bytes(data)


def box(path: Path, **more: Any) -> BlackBox:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header(**more))
    return box_folders.read_header(path)


def names(boxes: list[BlackBox]) -> list[str]:
    return [Path(one.path).stem for one in boxes]


def test_each_time_and_number_has_its_place() -> None:
    times = {"created": 2, "beat": 3, "iterated": 5, "phase": 7, "ended": 11}
    said = {name: seconds * SECOND for name, seconds in times.items()}
    one = parse_header(Path("x"), header(**said, rank=1, world=4, local_rank=2, micro_batch=6))
    assert (one.rank, one.world_size, one.local_rank, one.micro_batch) == (1, 4, 2, 6)
    seen = (one.created_s, one.heartbeat_s, one.iteration_since_s, one.phase_since_s, one.ended_s)
    assert seen == (2.0, 3.0, 5.0, 7.0, 11.0)


def test_two_levels_below_are_searched_and_no_more(tmp_path: Path) -> None:
    for depth, below in enumerate(("", "a", "a/b", "a/b/c")):
        box(tmp_path / below / f"n1-{depth}{fmt.SUFFIX}", rank=depth)
    (tmp_path / f"folder{fmt.SUFFIX}").mkdir()
    (tmp_path / f"link{fmt.SUFFIX}").symlink_to(tmp_path / f"n1-0{fmt.SUFFIX}")
    assert names(box_folders.find_boxes(tmp_path)) == ["n1-0", "n1-1", "n1-2"]


def test_who_ended_beside_ranks_that_live(tmp_path: Path) -> None:
    """Its last sign of life is newer than the start of each rank that lives."""
    signs = {"beat": "heartbeat", "iterated": "iteration", "phase": "phase"}
    for rank, (name, sign) in enumerate(signs.items(), 10):
        box(tmp_path / f"{sign}{fmt.SUFFIX}", rank=rank, **GONE, **{name: 21 * SECOND})
    others = {"earlier": {"beat": 15 * SECOND}, "at once": {"beat": 20 * SECOND}}
    others |= {"job": {"job": b"other"}, "host": {"host": b"n2"}, "boot": {"boot": b"x" * 16}}
    for rank, (name, more) in enumerate(others.items(), 20):
        box(tmp_path / f"{name}{fmt.SUFFIX}", rank=rank, **(GONE | {"beat": 21 * SECOND} | more))
    live = [
        box(tmp_path / f"live-{rank}{fmt.SUFFIX}", rank=rank, created=created * SECOND)
        for rank, created in enumerate((10, 20))
    ]
    assert names(box_folders.ended_beside(live)) == ["heartbeat", "iteration", "phase"]
    assert "earlier" in names(box_folders.ended_beside(live[:1]))
    assert box_folders.ended_beside([]) == []


def test_folders_that_ended_ranks_have_left_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = {"old": [5], "new": [3, 9, 4], "middle": [7]}
    for folder, seconds in beats.items():
        for rank, beat in enumerate(seconds):
            path = tmp_path / folder / f"n1-{rank}{fmt.SUFFIX}"
            box(path, rank=rank, job=b"mine", beat=beat * SECOND, **GONE)
    box(tmp_path / "runs" / f"n1-1{fmt.SUFFIX}", job=b"mine")
    box(tmp_path / "theirs" / f"n1-1{fmt.SUFFIX}", job=b"theirs", **GONE)
    monkeypatch.setattr(box_folders, "default_folders", list)
    monkeypatch.delenv("HANGDOCTOR_DIR", raising=False)
    assert box_folders.left_behind("mine") == []
    monkeypatch.setenv("HANGDOCTOR_DIR", str(tmp_path))
    assert [f.name for f in box_folders.left_behind("mine")] == ["new", "middle", "old"]
    assert "theirs" in [f.name for f in box_folders.left_behind("")]


def test_a_job_by_its_whole_name_before_parts_of_names(tmp_path: Path) -> None:
    jobs = ("slurm:7.0", "slurm:7.01", "llama")
    boxes = [
        box(tmp_path / f"n1-{n}{fmt.SUFFIX}", job=job.encode(), **GONE)
        for n, job in enumerate(jobs)
    ]
    for wanted, found in (("slurm:7.0", {jobs[0]}), ("lla", {jobs[2]}), ("", set(jobs))):
        assert box_folders.jobs_named(wanted, boxes).keys() == found, wanted
    assert names(box_folders.jobs_named("llama", boxes)["llama"]) == ["n1-2"]


def test_the_box_of_a_process_is_found_by_its_number(tmp_path: Path) -> None:
    pid = os.getpid()
    folder = tmp_path / "run"
    for name, more in (
        (f"n1-{pid}", GONE),
        (f"n1-{pid + 1}", {}),
        (f"n2-{pid}", {"pid": pid + 1}),
        (f"a/n1-{pid}", {}),
    ):
        box(folder / f"{name}{fmt.SUFFIX}", **more)
        assert box_folders.box_of_process(folder, pid) is None, name
    for name in (f"n1-{pid}-4026", f"hangdoctor-{os.getuid()}/n1-{pid}"):
        path = folder / f"{name}{fmt.SUFFIX}"
        box(path)
        found = box_folders.box_of_process(folder, pid)
        assert found is not None and found.path == str(path)
        path.unlink()


def test_a_folder_is_meant_from_where_the_process_is() -> None:
    assert box_folders.named_folder("boxes", os.getpid()) == Path.cwd() / "boxes"
    assert box_folders.named_folder("/boxes", os.getpid()) == Path("/boxes")
    assert box_folders.named_folder("boxes", 1 << 23) == Path("boxes"), "no process has this number"


def test_a_process_that_ends_while_its_owner_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"n1-1{fmt.SUFFIX}"
    box(path)
    owner = 65_533 if os.getuid() == 0 else os.getuid()
    os.chown(path, owner, -1)
    for users, found in ((set(), ["n1-1"]), ({owner}, ["n1-1"]), ({owner + 1}, [])):
        monkeypatch.setattr(box_folders, "users_of", lambda _, them=users: them)
        assert names(box_folders.find_boxes(tmp_path)) == found
