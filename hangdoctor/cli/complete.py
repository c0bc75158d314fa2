"""What the shell offers behind TAB: jobs, incidents and bundles.

It runs at each TAB: it reads names of local folders, and asks no scheduler and no node. What cannot
be read is not offered, and nothing is printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ..probe import folder as folders

_SLURM = re.compile(r"^slurm-(\d+)(?:[.-]|$)")
_MOST = 200  # of one kind
_MANIFEST = "manifest.json"


def job_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Slurm jobs that have a folder here: of `hangdoctor run`, or of a collector."""
    found = (_SLURM.match(name) for name in (*_run_folders(), *_collector_folders()))
    numbers = sorted({int(one[1]) for one in found if one}, reverse=True)
    return _fitting(map(str, numbers), incomplete)


def jobs_here(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Jobs on this host that have black boxes and run: their names, and scripts that one of them
    runs.
    """
    from ..readers.box_folders import find_boxes
    from ..readers.job_words import script_of_process
    from ..text.job_names import short_job

    try:
        pids = {short_job(box.job): box.pid for box in find_boxes(live_only=True)}
    except OSError:
        return []
    runs = [script_of_process(pid) for pid in pids.values()]
    scripts = [name for name in runs if runs.count(name) == 1 and name.endswith(".py")]
    # A part of a name is enough for --job, and shells take a colon for the end of a word.
    names = sorted(name.rpartition(":")[2] for name in pids)
    return _fitting([*sorted(scripts), *names], incomplete)


def collectors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Folders in ~/.hangdoctor/jobs."""
    return _fitting(_collector_folders(), incomplete)


def incidents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of incidents, the newest first: of all folders in ~/.hangdoctor/jobs."""
    found = [path.parent.name for path in _collectors().glob(f"*/incidents/*/{_MANIFEST}")]
    return _fitting(["last", *sorted(found, reverse=True)], incomplete)


def bundles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundles in the folder that the word names so far, the newest first; else folders."""
    typed, start = os.path.split(incomplete)
    where = Path(typed or ".").expanduser()
    names = _fitting(_names_of(where, _MANIFEST), start)
    if not names:
        return [CompletionItem(incomplete, type="dir")]
    prefix = f"{typed.rstrip('/')}/" if typed else ""
    return [CompletionItem(prefix + name) for name in sorted(names, key=_newest(where))]


def described(rows: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """Those of (name, line of help) that begin with what was typed."""
    return [CompletionItem(name, help=help) for name, help in rows if name.startswith(incomplete)]


def _newest(where: Path) -> Callable[[str], float]:
    def age(name: str) -> float:
        try:
            return -(where / name / _MANIFEST).stat().st_mtime
        except OSError:
            return 0.0

    return age


def _collectors() -> Path:
    return Path(os.environ.get("HOME", "/nonexistent")) / ".hangdoctor" / "jobs"


def _collector_folders() -> Iterator[str]:
    yield from _names_of(_collectors())


def _run_folders() -> Iterator[str]:
    for place in folders.places():
        yield from _names_of(place)


def _names_of(folder: Path, holding: str = "") -> list[str]:
    """Names of the folders in `folder`, those alone that have a file called `holding`."""
    try:
        found = [p.name for p in folder.iterdir() if p.is_dir()]
        return sorted(name for name in found if not holding or (folder / name / holding).is_file())
    except OSError:
        return []


def _fitting(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)][:_MOST]
