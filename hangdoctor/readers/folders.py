"""The files of a folder that people name: its own, and those of folders in it.

`torchrun --log-dir` and most launchers make a tree: a folder for the run, the attempt, the rank.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import BadInput
from ..files import of_one_user

_DEEPEST = 8
_MOST = 20_000


def files_under(folder: Path) -> tuple[list[Path], list[str]]:
    """(the regular files, in the order of their paths; notes on what is left out).

    Hidden folders and links to folders are passed over.

    Raises:
        BadInput: there are more files than a job leaves.
    """
    found: list[Path] = []
    notes: list[str] = []
    for path, folders, names in os.walk(folder):
        here = Path(path)
        depth = len(here.relative_to(folder).parts)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and depth < _DEEPEST)
        files = sorted(p for name in names if (p := here / name).is_file())
        kept, more = of_one_user(here, files)
        found += kept
        notes += more
        if len(found) > _MOST:
            raise BadInput(
                f"{folder} holds more than {_MOST:,} files", "Name the folder of one job."
            )
    return found, notes
