"""The job's keys: what they are, who may read them, and what becomes of files that are not as they
should be.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoctor.errors import CollectorError
from hangdoctor.transport import keys

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a second user is needed: run as root")


def test_two_different_pairs_of_curve(tmp_path: Path) -> None:
    made = keys.make(tmp_path)
    texts = [made.collector.public, made.collector.secret, made.agent.public, made.agent.secret]
    assert len(set(texts)) == 4 and {len(t) for t in texts} == {40}


def test_one_that_is_missing_is_made_and_the_other_kept(tmp_path: Path) -> None:
    made = keys.make(tmp_path)
    (tmp_path / "keys" / "agent.key").unlink()
    again = keys.make(tmp_path)
    assert again.collector == made.collector and again.agent != made.agent


def test_a_folder_is_made_with_those_above_it_and_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = keys.make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert folder == tmp_path / "a" / "b" and folder.stat().st_mode & 0o7777 == 0o700
    assert keys.make_folder(folder) == folder


@pytest.mark.parametrize("mode", [0o700, 0o2700, 0o750, 0o755, 0o711])
def test_a_folder_of_the_users_own_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    folder.chmod(mode)
    keys.make(folder)
    assert folder.stat().st_mode & 0o7777 == mode
    assert (folder / "keys").stat().st_mode & 0o777 == 0o700, "what is secret is private"


@pytest.mark.parametrize("mode", [0o770, 0o2775, 0o707, 0o1777])
def test_a_folder_that_others_can_write_into_is_refused_and_left_alone(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(CollectorError, match="other users can write") as refused:
        keys.make(folder)
    assert folder.stat().st_mode & 0o7777 == mode and not any(folder.iterdir())
    inside = Path(refused.value.help.rpartition("--folder ")[2])
    assert keys.make_folder(inside).stat().st_mode & 0o077 == 0


def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(CollectorError):
        keys.make_folder(tmp_path / "link")
    with pytest.raises(CollectorError, match="cannot be made"):
        keys.make_folder(tmp_path / "file")
    with pytest.raises(CollectorError, match="cannot be made"):
        keys.make_folder(tmp_path / "file" / "below")


@needs_root
def test_a_folder_or_key_of_another_user_is_refused(tmp_path: Path) -> None:
    keys.make(tmp_path / "job")
    os.chown(tmp_path / "job" / "keys" / "agent.key", 65_533, 65_533)
    with pytest.raises(CollectorError, match="other users can read"):
        keys.load(tmp_path / "job")
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65_533, 65_533)
    with pytest.raises(CollectorError):
        keys.make_folder(theirs)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o601, 0o610, 0o620])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    keys.make(tmp_path)
    (tmp_path / "keys" / "collector.key").chmod(mode)
    with pytest.raises(CollectorError, match="other users can read"):
        keys.load(tmp_path)


def test_a_key_that_is_a_link_or_damaged_is_refused(tmp_path: Path) -> None:
    keys.make(tmp_path)
    path = tmp_path / "keys" / "agent.key"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CollectorError, match="cannot be read"):
        keys.load(tmp_path)
    path.unlink()
    for damaged in (b"", b"{}", b"\xff", b"[" * 4000):
        path.write_bytes(damaged)
        path.chmod(0o600)
        with pytest.raises(CollectorError, match="is damaged"):
            keys.load(tmp_path)


def test_a_private_file_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    keys.write_private(path, b"long before")
    synced: list[bytes] = []
    sync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").read_bytes())
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    before = os.umask(0)
    try:
        keys.write_private(path, b"after")
    finally:
        os.umask(before)
    assert synced == [b"after"], "it is on the disk before it has its name"
    assert path.read_bytes() == b"after" and path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_private_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f".file.{os.getpid()}").symlink_to(tmp_path / "precious")
    with pytest.raises(CollectorError, match="cannot be written"):
        keys.write_private(tmp_path / "file", b"x")
    assert (tmp_path / "precious").read_text() == "mine" and sorted(
        p.name for p in tmp_path.iterdir()
    ) == ["precious"]
