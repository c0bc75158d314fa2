"""CURVE keys of one job (https://rfc.zeromq.org/spec/25/): two pairs in private files, never on a
command line or in a log.

    FOLDER/keys/collector.key    the collector's pair; its public half is what agents check it by
    FOLDER/keys/agent.key        the pair that all agents of the job share; the collector admits
                                 this one only

Whoever can read the folder of the keys belongs to the job: it is 0700, the files 0600, and anything
looser is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq
from msgspec import Struct

from ..errors import BadInput, CollectorError
from ..files import read_of_folder

_MAX_RENEWED = 64 << 10
_OTHERS_WRITE = 0o022


class Pair(Struct, frozen=True):
    """A key and its public half, in Z85 (https://rfc.zeromq.org/spec/32/)."""

    public: bytes
    secret: bytes


class Keys(Struct, frozen=True):
    """The two pairs of a job."""

    collector: Pair
    agent: Pair


def make_folder(folder: Path) -> Path:
    """A folder for the job's files: private where it is made here; one that is there keeps its mode.

    Raises:
        CollectorError: it cannot be made, belongs to someone else, or others can write into it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise CollectorError(
            f"the folder {folder} cannot be made: {error.strerror}",
            "Choose another folder: --folder DIR",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise CollectorError(
            f"{folder} is a symbolic link, not a folder, or belongs to another user",
            "Choose a folder of your own: --folder DIR",
        )
    if found.st_mode & _OTHERS_WRITE:
        raise CollectorError(
            f"other users can write into {folder}",
            f"Name a new folder inside of it, which is made private: --folder {folder / 'hangdoctor'}",
        )
    return folder


def make(folder: Path) -> Keys:
    """The keys in the job's folder, made where there are none: a collector that restarts keeps
    them.

    Raises:
        CollectorError: they cannot be written, or are readable by others.
    """
    keys = make_folder(make_folder(folder) / "keys")
    for name in ("collector", "agent"):
        path = keys / f"{name}.key"
        if not path.exists():
            public, secret = zmq.curve_keypair()
            write_private(path, msgspec.json.encode(Pair(public, secret)))
    return Keys(_read(keys / "collector.key"), _read(keys / "agent.key"))


def load(folder: Path) -> Keys:
    """The keys that the collector made.

    Raises:
        CollectorError: they are not there, or readable by others.
    """
    return Keys(_read(folder / "keys" / "collector.key"), _read(folder / "keys" / "agent.key"))


def write_private(path: Path, data: bytes) -> None:
    """Write whole or not at all, 0600 from the first byte.

    Raises:
        CollectorError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # where nothing can be written, nothing can be removed
            part.unlink(missing_ok=True)
        raise CollectorError(
            f"{path} cannot be written: {error.strerror}",
            "Is the disk full, or the folder read-only?",
        ) from error


def renew_private(path: Path, data: bytes, is_ours: Callable[[bytes], bool]) -> None:
    """As `write_private`, where no file of that name is there, or one that `is_ours`.

    Raises:
        CollectorError: it cannot be written, or is not ours.
    """
    try:
        ours = is_ours(read_of_folder(path, _MAX_RENEWED))
    except FileNotFoundError:
        ours = True
    except (OSError, BadInput):
        ours = False
    if not ours:
        raise CollectorError(
            f"{path} is not hangdoctor's and is left as it is", "Name another folder: --folder DIR."
        )
    write_private(path, data)


def _read(path: Path) -> Pair:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(4096)
    except OSError as error:
        raise CollectorError(
            f"the key {path} cannot be read: {error.strerror}",
            "`hangdoctor collect` creates it in a folder that all nodes see: pass the same --folder DIR here.",
        ) from error
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise CollectorError(
            f"other users can read the key {path}",
            "Remove the folder `keys` and start the collector again.",
        )
    try:
        return msgspec.json.decode(data, type=Pair)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CollectorError(
            f"the key {path} is damaged", "Remove the folder `keys` and start the collector again."
        ) from error
