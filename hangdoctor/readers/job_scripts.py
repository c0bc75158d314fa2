"""A job by the script that its ranks run, or that has started them (a driver of Ray, a launcher of the
user's): ``train.py``, ``train``, or a module, ``pkg.train``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..text.scripts import script_in
from . import proc
from .discover import Job
from .job_words import listed, script_of

_SUFFIX = ".py"


def is_script(wanted: str, script: str) -> bool:
    """Whether `wanted` names this script or module: with or without its folder and ``.py``."""
    name = _bare(Path(wanted).name)
    bare = _bare(script)
    return bool(name) and name in (bare, bare.rpartition(".")[2])


def _bare(name: str) -> str:
    return name[: -len(_SUFFIX)] if name.endswith(_SUFFIX) else name


def of_script(wanted: str, jobs: Sequence[Job]) -> list[Job]:
    """The jobs whose ranks run this script, else those that a process which runs it has started."""
    if not wanted:
        return []
    some = [job for job in jobs if job.ranks]
    run_it = [job for job in some if is_script(wanted, script_of(job.ranks[0]))]
    return run_it or [job for job in some if _was_started_by(wanted, job.ranks[0].pid)]


def _was_started_by(wanted: str, pid: int) -> bool:
    scripts = (script_in(proc.command_line(above)) for above in proc.above(pid))
    return any(is_script(wanted, script) for script in scripts if script)


def jobs_of(wanted: str, jobs: Sequence[Job]) -> list[Job]:
    """The job whose ranks run this script, else the one that it has started; none where no job does.

    Raises:
        UsageError: several jobs run it.
    """
    found = of_script(wanted, jobs)
    if len(found) > 1:
        raise several(wanted, len(found), listed(found))
    return found


def several(wanted: str, number: int, here: str) -> UsageError:
    """The error where a script does not say which job is meant; `here` lists them."""
    return UsageError(
        f"{number} jobs run {Path(wanted).name}: {here}",
        "Choose one by its name or by a process id of it: --job KEY.",
    )
