"""The starts of a job that was started again, in one folder: by the boxes of each rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.log_facts import JobLogs
from ..model.process_end import ProcessEnd
from . import ended_ranks
from .blackbox import Contents

_MOST = 4  # starts that are looked back at
_AGAIN_S = 900.0  # after its end, a job is started again at the latest


def by_start(boxes: Iterable[Contents]) -> list[list[Contents]]:
    """The boxes of each start, the last start last; a rank's newest box belongs to the last one."""
    of_rank: dict[int, list[Contents]] = {}
    for contents in sorted(boxes, key=lambda c: c.box.created_s):
        of_rank.setdefault(contents.ops.rank, []).append(contents)
    count = max((len(own) for own in of_rank.values()), default=0)
    starts: list[list[Contents]] = []
    for back in range(1, count + 1):
        start = [own[-back] for own in of_rank.values() if len(own) >= back]
        if starts and not _started_again(start, starts[0]):
            break
        starts.insert(0, start)
    return starts


def _started_again(before: Sequence[Contents], after: Sequence[Contents]) -> bool:
    """Whether one may be an earlier start of the other: of the same name, and soon before."""
    same = {c.box.job for c in before} == {c.box.job for c in after}
    ended = max(max(c.box.heartbeat_s, c.box.ended_s) for c in before)
    began = min(c.box.created_s for c in after)
    return same and 0 <= began - ended <= _AGAIN_S


def add_earlier(
    logs: JobLogs, earlier: Sequence[Sequence[Contents]], ends: Sequence[ProcessEnd]
) -> None:
    """The facts of earlier starts before those of the last one, each as an attempt of its own."""
    for boxes in reversed(earlier[-_MOST:]):
        pids = {(c.box.host, c.box.pid) for c in boxes}
        own = [end for end in ends if (end.node, end.pid) in pids]
        facts = ended_ranks.facts_of(boxes, own)
        if facts is not None:
            _put_before(logs, facts)


def _put_before(logs: JobLogs, earlier: JobLogs) -> None:
    for fact in logs.facts:
        fact.attempt += 1
    for fact in earlier.facts:
        fact.file += len(logs.files)
    logs.files += earlier.files
    logs.facts = earlier.facts + logs.facts
    logs.attempts += 1
    logs.rules |= earlier.rules
    logs.of_boxes = list(range(len(logs.files)))
