"""Where a job's files go, and which of the files there the probe may touch."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hangdoctor.probe import folder as folders
from hangdoctor.probe import format as fmt
from hangdoctor.probe.identity import job_key


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The default place, and the next one; nothing else of this machine."""
    found = [tmp_path / "default", tmp_path / "next"]
    monkeypatch.setattr(folders, "places", lambda: found)
    monkeypatch.setattr(folders, "root", lambda: found[0])
    return found


def test_the_folder_of_a_job_is_the_one_that_is_named(
    tmp_path: Path, places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folders.job_folder({"HANGDOCTOR_DIR": "/a/b"}) == Path("/a/b")
    assert folders.job_folder({"HANGDOCTOR_DIR": "b"}) == tmp_path / "b"
    for environ in ({"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "7", "HANGDOCTOR_DIR": ""}):
        assert folders.job_folder(environ) == places[0] / job_key(environ)


def test_what_is_refused_is_replaced_and_said(tmp_path: Path, places: list[Path]) -> None:
    assert folders.take(tmp_path / "mine", "name") == (tmp_path / "mine", "")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "mine")
    where, why = folders.take(link, "name")
    assert where == places[0] / "name" and str(link) in why and "symbolic link" in why
    file = tmp_path / "file"
    file.write_text("")
    where, why = folders.take(file / "below", "name")
    assert where == places[0] / "name" and why.startswith(f"{file / 'below'}: ")
    places[0].chmod(0o777)  # anyone could put something there
    where, why = folders.take(places[0] / "run-7", "name")
    assert where == places[1] / "run-7", "its own name, in the next place"
    places[1].chmod(0o777)
    with pytest.raises(OSError, match="default"):
        folders.take(places[0] / "run-7", "name")


@pytest.mark.parametrize(
    ("content", "goes"),
    [
        (fmt.MAGIC + b"rest", True),
        (bytes(4096), True),  # its header is written last
        (b"", True),
        (b"theirs", False),
        (bytes(7) + b"x", False),
        (fmt.MAGIC[:-1] + b"?", False),
    ],
)
def test_a_file_is_discarded_where_it_is_ours(tmp_path: Path, content: bytes, goes: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    before = len(os.listdir("/proc/self/fd"))
    folders.discard(path, fmt.MAGIC)
    assert (path.exists(), len(os.listdir("/proc/self/fd"))) == (not goes, before)


def test_what_is_no_file_is_neither_discarded_nor_waited_for(tmp_path: Path) -> None:
    pipe, below = tmp_path / "pipe", tmp_path / "below"
    os.mkfifo(pipe)
    below.mkdir()
    for path in (pipe, below):
        folders.discard(path, fmt.MAGIC)
        assert path.exists()
    folders.discard(tmp_path / "nothing", fmt.MAGIC)


def test_a_file_is_written_and_removed_where_it_is_the_one_that_was_made(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    made = path.stat()
    before = len(os.listdir("/proc/self/fd"))
    folders.write_own(path, made, [(0, b"ab"), (6, b"c")])
    assert path.read_bytes() == b"ab\0\0\0\0c\0"
    path.rename(tmp_path / "elsewhere")
    path.write_bytes(b"theirs")
    folders.write_own(path, made, [(0, b"xx")])
    folders.remove_own(path, made)
    assert path.read_bytes() == b"theirs"
    folders.write_own(tmp_path / "nothing", made, [(0, b"xx")])
    folders.remove_own(tmp_path / "nothing", made)
    assert len(os.listdir("/proc/self/fd")) == before and not (tmp_path / "nothing").exists()
    folders.remove_own(tmp_path / "elsewhere", made)
    assert not (tmp_path / "elsewhere").exists()


def test_a_default_folder_goes_with_its_last_box_and_a_named_one_stays(
    tmp_path: Path, places: list[Path]
) -> None:
    default, named = places[0] / "run", tmp_path / "named"
    for folder in (default, named):
        folders.prepare(folder)
        (folder / folders.REQUEST).write_text("")
        box = folder / f"n1-1{fmt.SUFFIX}"
        box.write_text("")
        folders.remove_if_empty(folder)
        assert (folder / folders.REQUEST).exists()
        box.unlink()
        folders.remove_if_empty(folder)
    assert named.is_dir() and not any(named.iterdir()) and not default.exists()
    assert stat.S_IMODE(places[0].stat().st_mode) == 0o700


@pytest.mark.parametrize("size", [*range(330_000, 8_000_000, 99_991), 1 << 30])
def test_the_ring_is_a_power_of_two_and_about_half_of_a_box(size: int) -> None:
    tables = fmt.HEADER_BYTES + fmt.THREADS * fmt.THREAD.size + fmt.GROUPS * fmt.GROUP_BYTES
    free = size - tables
    _, records, width = fmt.regions(size)["ring"]
    assert records & (records - 1) == 0
    assert 3 / 8 * free <= records * width <= 3 / 4 * free
