"""What ended runs may keep of the shared memory, and what of running ones is never touched."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.probe import folder as folders
from hangdoctor.probe import format as fmt
from hangdoctor.probe import retention
from hangdoctor.probe.still_written import has_writer
from hangdoctor.readers.blackbox import read_box
from hangdoctor.train.faults import outside
from tests.support.stage import wait_until

ROOT = Path(__file__).parents[2]
HOUR_NS = 3600 * 10**9
RANK = """
import sys, time
import hangdoctor.probe as probe
probe.install()
for number in range(40):
    probe.iteration(number)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of shared memory, as the default place is one."""
    place = Path("/dev/shm") / f"hangdoctor-test-{os.getpid()}"
    place.mkdir(mode=0o700)
    yield place
    shutil.rmtree(place)


def rank(folder: Path, *before: str) -> subprocess.Popen[bytes]:
    environ = os.environ | {
        "HANGDOCTOR_DIR": str(folder),
        "PYTHONPATH": str(ROOT),
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    process = subprocess.Popen(
        [*before, sys.executable, "-c", RANK], env=environ, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    return process


def ended(folder: Path, beat_ns: int) -> Path:
    """The box of a killed rank, with this as its last heartbeat."""
    process = rank(folder)
    process.kill()
    process.wait()
    [box] = folder.glob(f"*{fmt.SUFFIX}")
    with box.open("r+b") as file:
        os.pwrite(file.fileno(), beat_ns.to_bytes(8, "little"), fmt.H_BEAT_WALL[0])
    return box


def bytes_of(folder: Path) -> int:
    return sum(p.lstat().st_blocks for p in folder.rglob("*")) * 512


def test_a_killed_ranks_box_is_trimmed_and_reads_as_before(shared: Path) -> None:
    now = time.time_ns()
    box = ended(shared / "run", now - HOUR_NS)
    before, size = read_box(box), box.stat().st_size
    assert bytes_of(shared / "run") >= fmt.DEFAULT_BYTES and len(before.ops.marks) == 40
    retention.tidy(shared, now, seconds=5)
    assert bytes_of(shared / "run") < 200_000 and box.stat().st_size == size
    assert read_box(box) == before
    assert [p.name for p in (shared / "run").iterdir()] == [box.name]


def test_a_running_ranks_box_is_never_touched(shared: Path) -> None:
    process = rank(shared / "run")
    try:
        _is_untouched(shared, shared / "run")
    finally:
        process.kill()
        process.wait()


def test_nor_that_of_a_stopped_rank_in_another_container(shared: Path) -> None:
    """A container that shares the memory counts processes by itself: its numbers say nothing here."""
    unshare = [shutil.which("unshare") or "", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not unshare[0] or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a namespace of processes")
    process = rank(shared / "run", *unshare)
    try:
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        with outside.stopped(child):
            [box] = (shared / "run").glob(f"*{fmt.SUFFIX}")
            assert not folders.is_running(box.read_bytes()), "its number says that it is gone"
            _is_untouched(shared, shared / "run")
        process.kill()
        process.wait()
        wait_until(lambda: has_writer(box) is False, "its process is gone")
        retention.tidy(shared, time.time_ns() + HOUR_NS, seconds=5)
        assert bytes_of(shared / "run") < 200_000
    finally:
        process.kill()
        process.wait()


def _is_untouched(shared: Path, run: Path) -> None:
    [box] = run.glob(f"*{fmt.SUFFIX}")
    before = box.stat()
    assert has_writer(box) is True
    retention.tidy(shared, time.time_ns() + 400 * 24 * HOUR_NS, seconds=5)
    folders.prune(run, 0, box.name.partition("-")[0])
    after = box.stat()
    assert (after.st_ino, after.st_blocks) == (before.st_ino, before.st_blocks)


def test_ended_runs_keep_a_share_and_the_newest_stay(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SHARE", 1e-9)
    now = time.time_ns()
    for number in range(8):
        ended(shared / f"run{number}", now - (number + 1) * HOUR_NS)
    just_now = ended(shared / "just-now", now - 10**9)
    process = rank(shared / "runs")
    (shared / "run7" / "notes.txt").write_text("mine")
    try:
        retention.tidy(shared, now, seconds=10)
    finally:
        process.kill()
        process.wait()
    left = sorted(p.name for p in shared.iterdir() if p.is_dir())
    assert left == ["just-now", "run0", "run1", "run2", "run3", "run7", "runs"]
    assert [p.name for p in (shared / "run7").iterdir()] == ["notes.txt"], "what is not ours stays"
    monkeypatch.setattr(retention, "SHARE_OF_NEWEST", 1e-9)
    retention.tidy(shared, now, seconds=10)
    assert just_now.exists() and not (shared / "run0").exists()


def test_it_takes_a_bounded_time_and_waits_for_no_one(shared: Path) -> None:
    now = time.time_ns()
    for number in range(3):
        ended(shared / f"run{number}", now - HOUR_NS)
    before = bytes_of(shared)
    retention.tidy(shared, now, seconds=0.0)
    assert bytes_of(shared) == before
    retention.tidy(shared / "nowhere", now)


def test_one_process_at_once_and_nothing_of_it_stays(shared: Path) -> None:
    """What lies in the default place shows in the job: a lock is none of the files there."""
    now = time.time_ns()
    ended(shared / "run", now - HOUR_NS)
    before = bytes_of(shared)
    other = os.open(shared, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        retention.tidy(shared, now, seconds=5)
        assert bytes_of(shared) == before
    finally:
        os.close(other)
    retention.tidy(shared, now, seconds=5)
    assert bytes_of(shared) < before
    assert [p.name for p in shared.iterdir()] == ["run"]


def test_hangdoctor_run_tidies_up(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "root", lambda: shared)
    from hangdoctor.cli import run

    ended(shared / "before", time.time_ns() - HOUR_NS)
    run.prepare({})
    assert bytes_of(shared / "before") < 200_000
