"""Files that someone else may have put there: kinds, owners, sizes and holes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hangdoctor import files
from hangdoctor.errors import BadInput

ME = os.geteuid()
needs_root = pytest.mark.skipif(ME != 0, reason="a second user is needed: run as root")


def test_as_large_as_the_limit_and_no_larger(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read_regular(path, 100) == b"x" * 100
    with pytest.raises(BadInput, match="larger than"):
        files.read_regular(path, 99)


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.read_regular(tmp_path / "link", 10) == b"text"
    os.close(files.open_regular(tmp_path / "link"))
    for refused in (
        lambda p: files.read_regular(p, 10, links=False),
        lambda p: files.read_of_folder(p, 10),
    ):
        with pytest.raises(OSError) as error:
            refused(tmp_path / "link")
        assert error.value.errno == errno.ELOOP


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    before = len(os.listdir("/proc/self/fd"))
    for path, limit in ((tmp_path, 10), (tmp_path / "file", 1)):
        with pytest.raises(BadInput):
            files.read_regular(path, limit)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_descriptor_is_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    fd = files.open_regular(tmp_path / "file")
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_a_large_file_of_holes_is_refused_and_a_written_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_HOLES", 1 << 20)
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate((1 << 20) + 4096)
    with pytest.raises(BadInput, match="most of it was never written"):
        files.read_regular(path, 1 << 30)
    path.write_bytes(b"x" * ((1 << 20) + 4096))
    assert len(files.read_regular(path, 1 << 30)) == (1 << 20) + 4096
    with path.open("wb") as file:
        file.truncate(1 << 20)
    assert files.read_regular(path, 1 << 30) == bytes(1 << 20), "a small one may be of holes"


@needs_root
def test_owners(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    assert files.read_regular(path, 10, owners={65_533}) == b"text", "root's own is believed"
    os.chown(path, 65_532, 65_532)
    assert files.read_regular(path, 10, owners={65_532, 7}) == b"text"
    assert files.read_regular(path, 10) == b"text"
    with pytest.raises(BadInput, match="belongs to user 65532"):
        files.read_regular(path, 10, owners={65_533})
    with pytest.raises(BadInput, match="belongs to user 65532"):
        files.read_of_folder(path, 10)
    os.chown(tmp_path, 65_532, 65_532)
    assert files.read_of_folder(path, 10) == b"text"


@pytest.mark.parametrize(("blocks", "is_read"), [(1 << 17, True), ((1 << 17) - 8, False)])
def test_half_of_a_large_file_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, is_read: bool
) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    real = path.stat()
    status = SimpleNamespace(
        st_mode=real.st_mode, st_uid=real.st_uid, st_size=128 << 20, st_blocks=blocks
    )
    monkeypatch.setattr(os, "fstat", lambda fd: status)
    if is_read:
        assert files.read_regular(path, 1 << 30) == b"text"
        return
    with pytest.raises(BadInput, match="has a size of 128 MiB"):
        files.read_regular(path, 1 << 30)


def test_memory_and_users() -> None:
    assert 1 << 20 < files.free_memory() < 1 << 50
    assert files.users_of(os.getpid()) == {os.getuid(), ME}
    assert files.users_of(1 << 30) == frozenset()


def test_what_the_kernel_says_of_memory_and_users(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "MemTotal:  99 kB\nMemAvailable:   7 kB\nUid:\t1\t2\t3\t4\nGid:\t5\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **how: lines)
    assert files.free_memory() == 7 << 10 and files.users_of(1) == {1, 2, 3, 4}
    monkeypatch.setattr(Path, "read_text", lambda self, **how: "")
    assert files.free_memory() == 1 << 30 and files.users_of(1) == frozenset()


@needs_root
def test_of_which_user_files_are_read_in_a_folder_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for user, number in ((65_531, 2), (65_532, 6)):
        for n in range(number):
            path = tmp_path / f"{user}-{n}"
            path.write_text("")
            os.chown(path, user, user)
            made.append(path)
    root = tmp_path / "root"
    root.write_text("")
    made.append(root)
    assert files.of_one_user(tmp_path, made) == (made, []), "nobody else can write here"
    tmp_path.chmod(0o1777)
    kept, [note] = files.of_one_user(tmp_path, made)
    assert (
        kept == made[2:]
        and "only files of user 65532" in note
        and "65531-0, 65531-1)" in note
        and "more" not in note
    )
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 65_531)
        assert files.of_one_user(tmp_path, made)[0] == [*made[:2], root], (
            "one's own come before the most"
        )
    for path in made[2:5]:
        os.chown(path, 65_531, 65_531)
    kept, [note] = files.of_one_user(tmp_path, made)
    assert kept == [*made[:5], root] and "(65532-3, 65532-4, 65532-5)" in note
    for path in made[2:8]:
        os.chown(path, 65_532, 65_532)
    for path in made[:2]:
        path.unlink()
    assert files.of_one_user(tmp_path, made[2:]) == (made[2:], []), "one user alone"
    assert files.of_one_user(tmp_path, made) == (made, []), (
        "one that has gone meanwhile is no reason to leave out any"
    )
    many = [*made[2:]]
    for n in range(5):
        path = tmp_path / f"other-{n}"
        path.write_text("")
        os.chown(path, 65_531, 65_531)
        many.append(path)
    _, [note] = files.of_one_user(tmp_path, many)
    assert "(other-0, other-1, other-2, other-3 and 1 more)" in note
