"""Where incidents are: bundles below the folders of jobs, found without opening any of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

MANIFEST = "manifest.json"
_MAX_SCANNED = 200_000  # folders below one root


class Found(Struct, frozen=True):
    """One bundle. `place` is its job's folder by name, `stamp` changes when it is replaced."""

    path: Path
    place: str
    stamp: int


def job_folders(root: Path) -> list[Path]:
    """The folders of jobs below `root`, or `root` itself where it is one; none that is hidden."""
    if _is_job(root):
        return [root]
    return [path for path in _folders(root) if _is_job(path)]


def _is_job(path: Path) -> bool:
    # A collector locks its folder before all else, and keeps its incidents there.
    return (path / "incidents").is_dir() or (path / "collector.lock").is_file()


def bundles(root: Path) -> Iterator[Found]:
    """The bundles of all jobs below `root`, and those that are in it."""
    yield from _bundles_in(root)
    for job in job_folders(root):
        yield from _bundles_in(job / "incidents", place=job.name)


def _bundles_in(folder: Path, place: str = "") -> Iterator[Found]:
    for path in _folders(folder):
        try:
            stamp = (path / MANIFEST).stat().st_mtime_ns
        except OSError:
            continue
        yield Found(path, place or folder.name, stamp)


def _folders(parent: Path) -> list[Path]:
    """What can be entered in a folder, by name; nothing where it cannot be read."""
    try:
        with os.scandir(parent) as items:
            names = [item.name for _, item in zip(range(_MAX_SCANNED), items, strict=False)]
    except OSError:
        return []
    return [parent / name for name in sorted(names) if not name.startswith(".")]
