"""A job by the script that its ranks run: ``train.py``, ``train``, or a module, ``pkg.train``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
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


def runs(job: Job, wanted: str) -> bool:
    """Whether the ranks of a job run this script."""
    return bool(wanted and job.ranks) and is_script(wanted, script_of(job.ranks[0]))


def jobs_of(wanted: str, jobs: Sequence[Job]) -> list[Job]:
    """The job whose ranks run this script; none where no job does.

    Raises:
        UsageError: several jobs run it.
    """
    found = [job for job in jobs if runs(job, wanted)]
    if len(found) > 1:
        raise several(wanted, len(found), listed(found))
    return found


def several(wanted: str, number: int, here: str) -> UsageError:
    """The error where a script does not say which job is meant; `here` lists them."""
    return UsageError(
        f"{number} jobs run {Path(wanted).name}: {here}",
        "Choose one by its name or by a process id of it: --job KEY.",
    )
