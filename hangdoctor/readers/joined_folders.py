"""Folders of one job: srun or mpirun may start a `hangdoctor run`, with its folder, for each rank."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import BadInput
from ..probe.format import ENDS_SUFFIX, SUFFIX
from .box_folders import read_header
from .box_header import BlackBox

_PARENT = "hangdoctor-"  # of the default places; other folders hold one job each
_APART_S = 300.0  # between the beginnings of ranks of one job


def of_the_same_job(folder: Path) -> list[Path]:
    """Boxes and exit codes of other ranks of this folder's job, from the folders beside it."""
    if not folder.absolute().parent.name.startswith(_PARENT):
        return []
    own = _boxes(folder)
    if not own:
        return []
    found: list[Path] = []
    for beside in sorted(folder.absolute().parent.iterdir()):
        if beside == folder.absolute() or not beside.is_dir() or beside.is_symlink():
            continue
        others = _boxes(beside)
        if others and all(_together(one, own) for one in others):
            found += [Path(box.path) for box in others]
            found += sorted(beside.glob(f"*{ENDS_SUFFIX}"))
    return found


def _boxes(folder: Path) -> list[BlackBox]:
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            found.append(read_header(path))
        except (OSError, BadInput):
            continue
    return found


def _together(one: BlackBox, own: Iterable[BlackBox]) -> bool:
    """Another rank of the same job, and of the same start of it."""
    return all(
        one.job == box.job
        and one.world_size == box.world_size
        and one.rank != box.rank
        and one.owner == box.owner
        and abs(one.created_s - box.created_s) < _APART_S
        for box in own
    )
