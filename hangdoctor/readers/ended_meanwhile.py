"""Ranks that end while they are captured: how each of them ended, and whether that was the job's end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import BadInput
from ..model.capture import NodeCapture, RankCapture
from ..model.log_facts import JobLogs
from ..model.process_end import ProcessEnd
from ..probe.format import ENDS_SUFFIX
from . import blackbox, discover, ended_ranks, proc
from .blackbox import Contents
from .process_exits import ExitWatch

_FOLLOWED = 128  # ranks: each takes a descriptor
_OTHERS_S = 3.0  # the ranks of a job that ends leave one after another
_HEARD_S = 0.3
_POLL_S = 0.05
_BY_OTHERS = (0, -15, -2)  # a launcher or a person ends ranks by these signals
_APART_S = 0.02  # ends that are closer have no order


class Leaving:
    """The processes of a capture, from its beginning to its end."""

    def __init__(self, ranks: Sequence[RankCapture]) -> None:
        self.ranks = ranks
        self._watch = ExitWatch()
        for rank in ranks[:_FOLLOWED]:
            self._watch.follow(rank.pid)

    def close(self) -> None:
        """Watch no longer."""
        self._watch.close()

    def wait_for_others(self, seconds: float) -> None:
        """Where some have ended, give the others the time that the end of a job takes."""
        end = time.monotonic() + min(_OTHERS_S, seconds)
        left = [rank.pid for rank in self.ranks if not _is_over(rank.pid)]
        if len(left) == len(self.ranks):
            return
        while left and time.monotonic() < end:
            time.sleep(_POLL_S)
            left = [pid for pid in left if not _is_over(pid)]

    def note(self, capture: NodeCapture, folders: Iterable[Path]) -> None:
        """Write into the capture how its ranks ended; where none of them runs any more, that, too.

        `folders` are those of their black boxes.
        """
        self._hear()
        ends = [end for rank in self.ranks if (end := self._end_of(rank)) is not None]
        codes = {end.pid: end.code for end in ends}
        for rank in self.ranks:
            if rank.gone and rank.exit_code is None:
                rank.exit_code = codes.get(rank.pid)
        if capture.ranks and all(rank.gone for rank in capture.ranks):
            capture.ended = _account(self.ranks, ends, folders) or JobLogs()

    def _hear(self) -> None:
        """Let the watch say what it has just seen; on kernels before 6.15 it may have nothing."""
        end = time.monotonic() + _HEARD_S
        while time.monotonic() < end:
            if all(self._watch.of(rank.pid) for rank in self.ranks if rank.gone):
                return
            time.sleep(_POLL_S)

    def _end_of(self, rank: RankCapture) -> ProcessEnd | None:
        ended = self._watch.of(rank.pid)
        if ended is None:
            return None
        return ProcessEnd(
            pid=rank.pid,
            node=rank.node,
            code=ended.code,
            at=ended.at,
            rank=rank.rank,
            world_size=rank.world_size,
            core=ended.core,
            out_of_memory=ended.out_of_memory,
        )


def starts_again(capture: NodeCapture) -> bool:
    """Whether a launcher has started this job anew, after its ranks had ended."""
    over = {rank.pid for rank in capture.ranks}
    return any(
        job.key == capture.job and over.isdisjoint(found.pid for found in job.ranks)
        for job in discover.find_jobs()
    )


def _is_over(pid: int) -> bool:
    state = proc.stat_fields(pid)[:1]
    return not state or state[0] in "ZX"


def _account(
    ranks: Sequence[RankCapture], seen: Sequence[ProcessEnd], folders: Iterable[Path]
) -> JobLogs | None:
    """How they ended, by their boxes, by `hangdoctor run`, else by what was seen here."""
    pids = {rank.pid for rank in ranks}
    boxes: list[Contents] = []
    noted: list[ProcessEnd] = []
    for folder in folders:
        boxes += _boxes(folder, pids)
        noted += [end for end in _noted(folder) if end.pid in pids]
    known = {end.pid for end in noted}
    rest = [end for end in seen if end.pid not in known]
    if not boxes and not noted and not _has_order(rest):
        return None
    return ended_ranks.facts_of(boxes, noted + rest)


def _has_order(ends: Sequence[ProcessEnd]) -> bool:
    """Whether one process failed clearly before any other did."""
    failed = sorted(end.at for end in ends if end.code not in _BY_OTHERS)
    return len(failed) == 1 or (len(failed) > 1 and failed[1] - failed[0] > _APART_S)


def _boxes(folder: Path, pids: set[int]) -> list[Contents]:
    found: list[Contents] = []
    for box in blackbox.find_boxes(folder, pids=pids):
        try:
            found.append(blackbox.read_box(box.path, owners={box.owner}))
        except BadInput:
            continue
    return found


def _noted(folder: Path) -> list[ProcessEnd]:
    """What `hangdoctor run` has noted, as the parent of the ranks."""
    found: list[ProcessEnd] = []
    for path in sorted(folder.glob(f"*{ENDS_SUFFIX}")):
        try:
            found += ended_ranks.read_ends(path)
        except BadInput:
            continue
    return found
