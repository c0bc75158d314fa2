"""What is on disk: `global_stepN` folders, each with a `complete.json` that lists its files, and
`latest`; beside it `latest_checkpointed_iteration.txt`, which is written for others and never read.

A save goes to `global_stepN.partial`. Every rank leaves a marker with the sizes of its files there;
when all markers are in, rank 0 writes `complete.json` and renames the folder. A folder without it,
or with a file shorter than listed, is torn and is never loaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "complete.json"
PARTIAL = ".partial"
MEGATRON_LATEST = "latest_checkpointed_iteration.txt"
_STEP = re.compile(r"^global_step(\d+)$")


def tag(iteration: int) -> str:
    """Name of an iteration's folder, as DeepSpeed calls it."""
    return f"global_step{iteration}"


def write_durably(path: Path, text: str) -> None:
    """Whole or not at all, also over a power cut."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the folder's own entries on disk: a renamed file is only then sure to be there after a
    crash.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def leave_marker(folder: Path, rank: int, files: dict[str, int]) -> None:
    """This rank has written all its files; sizes in bytes."""
    write_durably(folder / f"rank_{rank:05d}.done", json.dumps(files))


def markers(folder: Path) -> list[Path]:
    """The files by which ranks say that they have written all of theirs."""
    return sorted(folder.glob("rank_*.done"))


def commit(folder: Path, meta: dict[str, Any]) -> Path:
    """Turn `global_stepN.partial`, whose ranks are all done, into `global_stepN`, and point
    `latest` at it.
    """
    sizes: dict[str, int] = {}
    for marker in markers(folder):
        sizes.update(json.loads(marker.read_text()))
        marker.unlink()
    final = folder.with_name(folder.name.removesuffix(PARTIAL))
    meta = {**meta, "at": time.time(), "files": sizes}
    write_durably(folder / MANIFEST, json.dumps(meta, indent=1))
    if final.exists():
        shutil.rmtree(final)
    folder.rename(final)
    sync_folder(final.parent)
    write_durably(final.parent / "latest", final.name)
    match = _STEP.match(final.name)
    if match:  # where Megatron's tools, and scripts written for it, look
        write_durably(final.parent / MEGATRON_LATEST, match[1])
    return final


@dataclass(frozen=True)
class Saved:
    """A checkpoint and what is wrong with it; `fault` is empty for a complete one."""

    folder: Path
    iteration: int
    meta: dict[str, Any]
    fault: str = ""


def inspect(folder: Path) -> Saved:
    """Read the manifest and compare every listed file's size."""
    match = _STEP.match(folder.name)
    iteration = int(match[1]) if match else -1
    try:
        meta = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        return Saved(folder, iteration, {}, f"no readable {MANIFEST} ({error})")
    for name, size in meta.get("files", {}).items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else -1
        if found != size:
            return Saved(folder, iteration, meta, f"{name} has {found} bytes, {size} were written")
    return Saved(folder, iteration, meta)


def saved_in(folder: Path) -> list[Saved]:
    """All checkpoints in a folder, newest first, torn ones included."""
    if not folder.is_dir():
        return []
    found = [inspect(p) for p in folder.iterdir() if p.is_dir() and _STEP.match(p.name)]
    return sorted(found, key=lambda s: -s.iteration)


def candidates(folder: Path) -> list[Saved]:
    """What a training may go on from, the best first, torn ones included.

    `latest` decides, whatever the clocks of the nodes that saved; where it is torn, one before it
    takes its place. A training that went back has left what was saved between: those that are older
    than one with a lower number.
    """
    saved, last = saved_in(folder), latest(folder)
    before = [s for s in saved if last < 0 or s.iteration <= last]
    return [s for s in before if s.iteration == last or not _is_left(s, saved)]


def _is_left(one: Saved, saved: list[Saved]) -> bool:
    at = one.meta.get("at", 0.0)
    return any(s.iteration < one.iteration and 0.0 < at < s.meta.get("at", 0.0) for s in saved)


def latest(folder: Path) -> int:
    """The iteration that `latest` names, -1 where it names none."""
    try:
        match = _STEP.match((folder / "latest").read_text().strip())
    except (OSError, ValueError):
        return -1
    return int(match[1]) if match else -1


def clear(partial: Path) -> None:
    """Remove what a killed save left under this name: its markers would pass for those of ranks
    that still write.
    """
    if partial.exists():
        shutil.rmtree(partial)


def prune(folder: Path, keep: int) -> None:
    """Delete all complete checkpoints but the newest `keep` (0 keeps all), and what
    killed saves left behind.

    To be called between two saves. Those that a training which went back has left stay.
    """
    for left in folder.glob(f"global_step*{PARTIAL}"):
        clear(left)
    if keep:
        for old in [s for s in candidates(folder) if not s.fault][keep:]:
            shutil.rmtree(old.folder)
