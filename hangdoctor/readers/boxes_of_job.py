"""The black boxes of the job that a person names, on this host: by its name, a process or its script."""

from __future__ import annotations

from collections.abc import Sequence

from ..text.job_names import short_job
from ..text.ranges import number_in
from . import discover, job_process, job_scripts, job_words
from .box_folders import jobs_named
from .box_header import BlackBox
from .discover import Job

Boxes = dict[str, list[BlackBox]]  # by the name of their job


def named(wanted: str, boxes: Sequence[BlackBox]) -> Boxes:
    """The boxes of each job that `wanted` names; "" names every job.

    Raises:
        UsageError: it names the script of several.
    """
    return jobs_named(wanted, boxes) or _by_process(wanted, boxes) or _by_script(wanted, boxes)


def in_brief(name: str, boxes: Sequence[BlackBox]) -> str:
    """A job as other verbs list it, from those of its processes that are there."""
    live = [discover.candidate(box.pid, None) for box in boxes if box.status == "live"]
    ranks = sorted((found for found in live if found is not None), key=lambda found: found.rank)
    return job_words.in_brief(Job(name, ranks)) if ranks else f"{short_job(name)} (ended)"


def _by_process(wanted: str, boxes: Sequence[BlackBox]) -> Boxes:
    pid = number_in(wanted)
    live = {name: [box.pid for box in of] for name, of in _living(boxes).items()}
    meant = [name for name, pids in live.items() if job_process.is_process_of(pid, pids)]
    return _all_of(meant, boxes)


def _by_script(wanted: str, boxes: Sequence[BlackBox]) -> Boxes:
    """Of living ranks only: a box does not say what its process ran."""
    if not wanted:
        return {}
    meant = [
        name
        for name, of in _living(boxes).items()
        if job_scripts.is_script(wanted, job_words.script_of_process(of[0].pid))
    ]
    found = _all_of(meant, boxes)
    if len(found) > 1:
        here = ", ".join(in_brief(name, of) for name, of in found.items())
        raise job_scripts.several(wanted, len(found), here)
    return found


def _living(boxes: Sequence[BlackBox]) -> Boxes:
    live: Boxes = {}
    for box in boxes:
        if box.status == "live":
            live.setdefault(box.job, []).append(box)
    return live


def _all_of(names: Sequence[str], boxes: Sequence[BlackBox]) -> Boxes:
    return {name: [box for box in boxes if box.job == name] for name in names}
