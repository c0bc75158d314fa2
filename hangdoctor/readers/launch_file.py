"""What `hangdoctor run` and `sidecar` note of the job that they start or watch: how many nodes and
ranks are expected, in one small file of the job's folder.

The launcher's command line says the same as long as it runs, and where it can be read.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_regular
from ..model.start_up import Launch
from ..probe.folder import LAUNCH
from ..text.ranges import MAX_HOSTS, MAX_RANKS
from ..time_limit import OutOfTime, within
from . import launch_words
from .box_folders import named_folder

if TYPE_CHECKING:
    from .discover import Found

_MOST_BYTES = 4 << 20
_SCHEMA = "hangdoctor.launch/1"
_HIGHEST = 10  # ancestors of a rank that are looked at
_ANSWERS_S = 1.0  # a folder of a file system that answers


class _File(Struct):
    schema: str
    launch: Launch


def write(folder: Path, launch: Launch) -> None:
    """Note it in a folder of ours, in place of what an earlier start has noted.

    Raises:
        OSError: it cannot be written.
    """
    staged = folder / f".{LAUNCH}.{os.getpid()}"
    data = msgspec.json.format(msgspec.json.encode(_File(_SCHEMA, launch)))
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
    staged.replace(folder / LAUNCH)


def read(folder: Path) -> Launch | None:
    """What was noted in a folder; None where nothing was, or it makes no sense."""
    with contextlib.suppress(OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError):
        found = msgspec.json.decode(
            read_regular(folder / LAUNCH, _MOST_BYTES, links=False), type=_File
        )
        launch = found.launch
        sound = launch.world_size <= MAX_RANKS and launch.nodes <= MAX_HOSTS
        if found.schema == _SCHEMA and sound and len(launch.names) <= MAX_HOSTS:
            return launch
    return None


def of_ranks(found: Found) -> Launch | None:
    """What the launcher of a rank was asked to start: by its own command line, else by the folder
    that `hangdoctor run` gave to the rank. None where a file system does not answer.
    """
    try:
        told = within(_ANSWERS_S, lambda: _told(found))
    except OutOfTime:
        return None
    fits = told is not None and told.world_size >= found.world_size > 1
    return told if fits else None


def _told(found: Found) -> Launch | None:
    told = _by_ancestors(found)
    if told is None and found.environ.get("HANGDOCTOR_DIR"):
        told = read(named_folder(found.environ["HANGDOCTOR_DIR"], found.pid))
    return told


def _by_ancestors(found: Found) -> Launch | None:
    """The nearest process above a rank whose command line says how many ranks there are."""
    import psutil  # not where a job is over, and many of its files are read

    pid = found.ppid
    for _ in range(_HIGHEST):
        try:
            process = psutil.Process(pid)
            launch = launch_words.launch_of(process.cmdline(), process.environ())
            pid = process.ppid()
        except (psutil.Error, OSError):
            return None
        if launch is not None and launch.launcher:
            return launch
        if pid <= 1:
            break
    return None
