"""The ranks of this node as the agent follows them: found as they come, looked at each second,
missed when they go.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from hangdoctor.errors import BadInput
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import blackbox, discover, job_choice, proc
from hangdoctor.readers import box_history as history
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.readers.process_exits import ExitWatch
from hangdoctor.time_limit import OutOfTime
from hangdoctor.transport.messages import MOST_EVENTS, EventNow, Past, RankNow

from . import outside_view
from .after_end import Remains
from .group_timeout import group_timeout
from .patient_search import PatientSearch
from .tracked_rank import Tracked

_SEARCH_S = 5.0  # at most so often, and only when processes have come
_SEARCH_SHARE = 1000.0  # searches may cost one part in N of a core
_SEARCH_SHARE_EARLY = 100.0  # ... until the ranks are there
_EARLY_S = 60.0
_MOST_WAITING = 2000  # events of the training
_ASKED_TO_END = (0, -signal.SIGHUP, -signal.SIGINT, -signal.SIGTERM)


class Ranks:
    """All ranks of one job on this node."""

    def __init__(
        self,
        wanted: Callable[[Sequence[discover.Job]], Sequence[discover.Job]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        host: PatientSearch | None = None,
    ) -> None:
        self.wanted = wanted
        self.host = host or PatientSearch()
        self.clock, self.wall = clock, wall
        self._timeouts: dict[int, float] = {}
        self._exits = ExitWatch()
        self.tracked: dict[int, Tracked] = {}
        self.job = ""
        self.world_size = 0
        self.began = 0.0  # seconds since the epoch: this run of the job
        self.seen_any = False
        self._pids: frozenset[str] = frozenset()
        self._next_search = 0.0
        self._next_boxes = 0.0
        self._came_at = 0.0
        self._others: list[discover.Job] = []
        self._said: deque[EventNow] = deque(maxlen=_MOST_WAITING)
        self.meant: discover.Job | None = None  # the one that was taken last

    # ----------------------------------------------------------------- coming and going

    def search(self) -> None:
        """Look for ranks, when processes have come since the last look; it reads every process's
        environment.
        """
        now = self.clock()
        if now >= self._next_boxes:
            self._open_boxes()
            self._next_boxes = now + (1.0 if now - self._came_at < 60 else 10.0)
        if now < self._next_search:
            return
        self._next_search = now + 1.0
        pids = frozenset(p for p in os.listdir("/proc") if p.isdigit())
        if pids <= self._pids and not self._may_come_late(now):
            return
        self._pids = pids
        cost = self._look_for_jobs()
        if self._may_come_late(now):
            rest_s, share = 1.0, _SEARCH_SHARE_EARLY
        else:
            rest_s, share = _SEARCH_S, _SEARCH_SHARE
        self._next_search = now + max(rest_s, cost * share)

    def _look_for_jobs(self) -> float:
        """Take the job that is wanted, if it is here; returns the seconds that the search has cost."""
        found, cost = self.host.jobs()
        jobs = self.wanted(found)
        if not jobs:
            found, more = self.host.unnumbered(found)
            jobs, cost = self.wanted(found), cost + more
        if jobs:
            self.meant = job_choice.preferred(jobs)
            self._take(self.meant)
        self._others = [j for j in found if j is not self.meant]
        return cost

    def _take(self, job: discover.Job) -> None:
        world_size = max(f.world_size for f in job.ranks)
        if (job.key, world_size) != (self.job, self.world_size):
            self._drop_ended()
        # As long as a process of it lives, the run is the same: its oldest rank may be dead.
        followed = {(t.found.pid, t.found.started) for t in self.tracked.values()}
        if not followed & {(f.pid, f.started) for f in job.ranks}:
            self.began = self.host.began(job)
        self.job, self.seen_any, self.world_size = job.key, True, world_size
        for found in job.ranks:
            known = self.tracked.get(found.rank)
            process = (found.pid, found.started)
            if known is not None and process == (known.found.pid, known.found.started):
                continue
            if known is not None:
                self._close(known)
            self._came_at = self.clock()
            self._exits.follow(found.pid)
            self.tracked[found.rank] = Tracked(
                found, now=RankNow(found.rank, found.pid), changed_at=self.clock()
            )
        self._open_boxes()

    def _drop_ended(self) -> None:
        """Another run begins: ranks of the one before that are not started again are not dead ranks
        of this one.
        """
        for number, known in list(self.tracked.items()):
            if known.dead or proc.stat_fields(known.found.pid)[:1] in ([], ["Z"], ["X"]):
                self._close(known)
                del self.tracked[number]
                self._timeouts.pop(number, None)

    def _may_come_late(self, now: float) -> bool:
        """Whether a process that was there before may still show its rank: where the job's own code
        sets it, in the black box alone, once the process has joined a group.
        """
        return not self.seen_any or (now - self._came_at < _EARLY_S and not self._all_here())

    def _all_here(self) -> bool:
        """Whether as many ranks were found as a node of this job has, where the environment shows
        how many.
        """
        expected = max(
            (t.found.local_world_size or self.world_size for t in self.tracked.values()), default=0
        )
        return 0 < expected <= len(self.tracked)

    def _open_boxes(self) -> None:
        without = [t for t in self.tracked.values() if t.box is None and not t.dead]
        if not without:
            return
        newest: dict[int, blackbox.BlackBox] = {}
        for box in sorted(self._boxes_of(without), key=lambda b: b.created_s):
            if box.status == "live":
                newest[box.pid] = box
        opened: list[blackbox.BlackBox] = []
        for tracked in without:
            own = newest.get(tracked.found.pid)
            if own is not None:
                # Where it went away again, it is looked for at the next search.
                with contextlib.suppress(BadInput, OutOfTime):
                    tracked.box = self._open(own.path)
                    tracked.folder = Path(own.path).parent
                    opened.append(own)
        for box in self.host.ended_beside(opened):
            if box.rank not in self.tracked:
                self._take_ended(box, without[0].found)

    def _boxes_of(self, ranks: list[Tracked]) -> list[blackbox.BlackBox]:
        """The boxes of these processes, in the folders that are named to them and the default ones."""
        pids = {t.found.pid for t in ranks}
        boxes: list[blackbox.BlackBox] = []
        for folder in sorted(_named_folders(ranks)):
            boxes += self.host.boxes(folder, pids)
        # The folder that is named may have been refused on this node.
        without_box = pids - {b.pid for b in boxes}
        return boxes + (self.host.boxes(None, without_box) if without_box else [])

    def _open(self, path: str) -> BoxWatch:
        return self.host.of_box(path, lambda: BoxWatch(path))

    def _take_ended(self, box: blackbox.BlackBox, sibling: discover.Found) -> None:
        """A rank that died before this agent came: no process shows it, only its box."""
        found = structs.replace(sibling, pid=box.pid, rank=box.rank, local_rank=box.local_rank)
        mono = self.clock()
        tracked = Tracked(found, now=RankNow(box.rank, box.pid), dead=True)
        tracked.ended_at = mono - max(0.0, self.wall() - box.heartbeat_s)
        try:
            tracked.box = self._open(box.path)
        except (BadInput, OutOfTime):
            return  # it went away
        tracked.folder = Path(box.path).parent
        seen = self._glance(tracked, mono, 0.0)
        if seen is not None:
            tracked.now = seen
            self.tracked[box.rank] = tracked

    @property
    def others(self) -> list[discover.Job]:
        """Jobs that are here now and are not meant, the newest first."""
        return [job for job in self._others if _runs(job)]

    @property
    def alive(self) -> int:
        """How many ranks have not ended."""
        return sum(not t.now.over for t in self.tracked.values())

    @property
    def crashed(self) -> bool:
        """Whether a rank that was followed ended by an error or a signal of its own: not SIGTERM."""
        exits = [self._exits.of(t.found.pid) for t in self.tracked.values()]
        return any(e is not None and e.code not in _ASKED_TO_END for e in exits)

    # ----------------------------------------------------------------- looking

    def look(self) -> list[RankNow]:
        """Where every rank is now."""
        return [self._look(t) for _, t in sorted(self.tracked.items())]

    def new_events(self) -> list[EventNow]:
        """What the training has said since the last call, oldest first; of very many some wait."""
        for _, tracked in sorted(self.tracked.items()):
            self._hear(tracked)
        return [self._said.popleft() for _ in range(min(len(self._said), MOST_EVENTS))]

    def _hear(self, tracked: Tracked) -> None:
        box = tracked.box
        if box is not None:
            hear = partial(tracked.new_events, self.wall(), self.clock())
            # Where it cannot be read, the look after this deals with it.
            with contextlib.suppress(OSError, struct.error, OutOfTime):
                self._said += self.host.of_box(box.path, hear)

    def _look(self, tracked: Tracked) -> RankNow:
        mono = self.clock()
        gap = mono - tracked.looked_at if tracked.looked_at else 0.0
        fields = [] if tracked.dead else proc.stat_fields(tracked.found.pid)
        if tracked.dead or len(fields) < 13 or fields[0] in "ZX":
            return self._gone(tracked, mono)
        tracked.looked_at = mono
        now = self._glance(tracked, mono, gap) if tracked.box is not None else None
        if now is None:
            now = outside_view.without_box(tracked, mono, fields)
        now.busy = (
            outside_view.busy(tracked, fields, gap)
            and not now.inside
            and not outside_view.spins(tracked, mono)
        )
        now.held = fields[0] if fields[0] in "TtD" else ""
        tracked.now = now
        return now

    def _gone(self, tracked: Tracked, mono: float) -> RankNow:
        if not tracked.dead:
            tracked.dead, tracked.ended_at = True, mono
        box = tracked.box
        if box is not None:
            # A box is taken away at a good end; one that stays behind shows another end.
            with contextlib.suppress(OutOfTime):
                removed = self.host.of_box(box.path, lambda: box.removed)
                tracked.now.finished = tracked.now.finished or removed
            self._close(tracked)
        now = tracked.now
        ended = self._exits.of(tracked.found.pid)
        if ended is not None and ended.code:
            now.failed, now.finished = True, False
        now.over, now.inside, now.busy = True, False, False
        now.idle_s = max(0.0, mono - tracked.changed_at)
        now.over_s = max(0.0, mono - tracked.ended_at)
        return now

    def _glance(self, tracked: Tracked, mono: float, gap: float) -> RankNow | None:
        """By its box; None where that cannot be read any more (cut short, its file system gone)."""
        box = tracked.box
        assert box is not None
        try:
            seen = self.host.of_box(box.path, box.read)
        except (OSError, struct.error):
            self._close(tracked)
            return None
        except OutOfTime:
            return None  # it may answer again
        event = (seen.event_s, seen.iteration, seen.micro_batch, seen.phase)
        wall = self.wall()
        if event != tracked.event:
            # The rank's own time of its last step, where the wall clock has not been set meanwhile. At the first sample it may
            # have been stuck for long already: what follows it was not there to see it begin.
            if tracked.event is None:
                age = box.age_s(seen.event_s, wall, mono)
            else:
                age = min(max(0.0, wall - seen.event_s), gap)
            tracked.event, tracked.changed_at = event, mono - age
        if seen.timeout_s:
            self._timeouts[tracked.found.rank] = seen.timeout_s
        tracked.ahead = seen.runs_ahead
        tracked.pending = seen.pending
        now = RankNow(
            rank=tracked.found.rank,
            pid=tracked.found.pid,
            idle_s=max(0.0, mono - tracked.changed_at),
            iteration=max(-1, seen.iteration),
            phase=seen.phase[:200],
            op=seen.op,
            seq=max(0, seen.seq),
            inside=seen.inside,
            box=True,
            finished=seen.state == "finished",
        )
        if gap:
            begin, end = round((wall - gap) * 1e9), round(wall * 1e9)
            with contextlib.suppress(OutOfTime):
                share = self.host.of_box(box.path, lambda: box.waiting_share(begin, end))
                now.waits = round(share * 100) if share >= 0 else -1
        return now

    @property
    def timeout_s(self) -> float:
        """Seconds after which the first process group gives up; 0 where that is not known."""
        return group_timeout(self.tracked.values(), self._timeouts.values())

    def past(self) -> Past | None:
        """What the boxes of these ranks remember of their rhythm; None where they hold nothing."""
        told = []
        for tracked in self.tracked.values():
            box = tracked.box
            if box is not None:
                # Where it cannot be read, the look after this deals with it.
                with contextlib.suppress(OSError, struct.error, OutOfTime):
                    told.append(self.host.of_box(box.path, partial(history.past_of, box)))
        return history.merged(told)

    def folders(self) -> list[Path]:
        """Where the black boxes of these ranks are."""
        return sorted({Path(t.box.path).parent for t in self.tracked.values() if t.box is not None})

    def remains(self, node: str) -> Remains:
        """What is left of those ranks that have ended."""
        over = {rank: t for rank, t in self.tracked.items() if t.now.over}
        ends = []
        for rank, tracked in over.items():
            ended = self._exits.of(tracked.found.pid)
            if ended is not None:
                ends.append(
                    ProcessEnd(
                        pid=tracked.found.pid,
                        node=node,
                        code=ended.code,
                        at=ended.at,
                        rank=rank,
                        world_size=self.world_size,
                        began=tracked.found.started,
                        core=ended.core,
                        out_of_memory=ended.out_of_memory,
                    )
                )
        folders = {t.folder for t in over.values() if t.folder is not None}
        return Remains(
            node=node,
            job=self.job,
            world_size=self.world_size,
            pids={rank: t.found.pid for rank, t in over.items()},
            ends=ends,
            folders=sorted(folders | _named_folders(list(over.values()))),
        )

    def close(self) -> None:
        """Give all boxes back."""
        self._exits.close()
        for tracked in self.tracked.values():
            self._close(tracked)

    def _close(self, tracked: Tracked) -> None:
        self._hear(tracked)  # the last words of a process that has ended
        box, tracked.box = tracked.box, None
        if box is not None:
            with contextlib.suppress(OutOfTime):  # the file is left open then
                self.host.of_box(box.path, box.close)


def _named_folders(ranks: list[Tracked]) -> set[Path]:
    """Where the probes of these ranks were told to put their boxes."""
    named = [(t.found.environ.get("HANGDOCTOR_DIR"), t.found.pid) for t in ranks]
    return {blackbox.named_folder(name, pid) for name, pid in named if name}


def _runs(job: discover.Job) -> bool:
    """Whether a process of this job is still there."""
    return any(Path(f"/proc/{found.pid}").exists() for found in job.ranks)
