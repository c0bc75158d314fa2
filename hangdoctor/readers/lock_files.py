"""Lock files that only have to exist: torch's, of extensions that it builds. Who builds has the file
open and removes it; a build that was killed leaves it, and all that come later wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from ..model.capture import LockHolder, ProcessSample, RankCapture
from ..stacks.lock_waits import waits_for_file
from ..text.plain import readable

_SETTING = "TORCH_EXTENSIONS_DIR"
_PATTERNS = ("*/lock", "*/*/lock")  # below a folder of its Python and CUDA, too
_MOST = 1000  # lock files below one folder


def attach(ranks: Iterable[RankCapture]) -> None:
    """Set `lock` of the ranks that wait for the one lock file there, where no process that may be
    read has it open.
    """
    waiting = [rank for rank in ranks if rank.lock is None and _waits(rank.samples)]
    if not waiting:
        return
    opened = _opened()
    for rank in waiting:
        found = _lock_files(rank.pid)
        if len(found) == 1 and found[0] not in opened:
            rank.lock = LockHolder(0, path=readable(found[0]))


def _waits(samples: Sequence[ProcessSample]) -> bool:
    return bool(samples) and all(waits_for_file(sample.threads) is not None for sample in samples)


def _lock_files(pid: int) -> list[str]:
    """Of the extensions that this process may build."""
    try:
        process = psutil.Process(pid)
        environ, folder = process.environ(), process.cwd()
    except (psutil.Error, OSError):
        return []
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/"), ".cache"))
    root = Path(folder, environ.get(_SETTING) or cache / "torch_extensions")
    found: list[str] = []
    try:
        for pattern in _PATTERNS:
            for place, path in enumerate(root.glob(pattern)):
                if place >= _MOST:
                    return []
                found.append(os.path.realpath(path))
    except OSError:
        return []
    return found


def _opened() -> set[str]:
    """Paths of all files that processes here have open, as far as that may be read."""
    found: set[str] = set()
    for process in psutil.process_iter():
        try:
            found.update(opened.path for opened in process.open_files())
        except (psutil.Error, OSError):
            continue
    return found
