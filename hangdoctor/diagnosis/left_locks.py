"""Pass: all ranks wait for a lock file to go away that none of them, nor another process that is
seen, has made: no rank is at fault.

A rank that is elsewhere may be the one that builds; then nothing is said here.
"""

from __future__ import annotations

from ..stacks.lock_waits import waits_for_file
from . import findings as f
from .case import Case, nodes_of, ranks_of, stack_clue
from .confidence import Ground, sure
from .draft import Draft, add_first
from .findings import Finding


def run(case: Case, draft: Draft) -> None:
    """The lock file that was left."""
    add_first(find, case, draft)


def find(case: Case, blamed: set[int]) -> list[Finding]:
    """At most one finding, which names no rank."""
    views = case.alive
    if not views or case.gone or case.unseen or blamed:
        return []
    for view in views:
        lock = view.capture.lock
        if lock is None or lock.pid or not lock.path or view.stopped:
            return []
    paths = {view.capture.lock.path for view in views if view.capture.lock is not None}
    frame = waits_for_file(views[0].capture.samples[-1].threads)
    if len(paths) != 1 or frame is None:
        return []
    return [
        Finding(
            kind="not_entered",
            ranks=[],
            story=f.LeftLock(paths.pop(), frame, ranks_of(views)),
            confidence=sure(Ground.LEFT_LOCK),
            nodes=nodes_of(views),
            clues=[stack_clue(views)],
        )
    ]
