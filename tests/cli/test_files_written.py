"""Where the files of `report` and `trace` go: whole or not at all, and never in place of what is
not an ordinary file.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hangdoctor.cli.output import write_file
from hangdoctor.errors import BundleError


def test_a_fifo_is_written_to_and_stays_one(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    assert write_file(str(fifo), [b"one", b"two"]) == 6
    reader.join(timeout=20)
    assert read == [b"onetwo"] and stat.S_ISFIFO(fifo.stat().st_mode)


def test_of_a_link_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    write_file(str(tmp_path / "link"), [b"new"])
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"


def test_what_cannot_be_written_whole_leaves_the_old(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def broken():  # type: ignore[no-untyped-def]
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(BundleError, match="No space left"):
        write_file(str(target), broken())
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be written"):
        write_file(str(tmp_path / "none" / "file"), [b"x"])
