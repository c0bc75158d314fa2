"""One capture of a node under way: each step has its share of the time that is left, and what it
has not read is said.

What reads /proc, py-spy or a file may never come back. It runs in threads that are left behind when
their time is over, and hands over what it has found; only the session itself writes into the
capture.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

from ..model.capture import NodeCapture, Process, ProcessSample, RankCapture
from ..stacks.rank_thread import rank_thread
from ..text.durations import duration
from ..time_limit import OutOfTime, in_time, within
from . import (
    blackbox,
    descendants,
    gpus,
    proc,
    pyspy,
    rank_operations,
    ras_of_job,
    recorder_live,
    socket_bytes,
    start_up,
    turns,
)
from .capture_options import CaptureOptions
from .ended_meanwhile import Leaving

T = TypeVar("T")

_WORKERS = 32
_GENTLE_S = 0.5  # so long a reader of stacks leaves the processors to the ranks
_BOXES_S = 5.0  # for the black boxes of all ranks; milliseconds, unless their file system hangs
_HANGS_S = 2.5  # without an answer: then they are not asked for a second time
_RUNS = 0.2  # of its time: the reader of the boxes works, and waits for no file system
_RECORDERS_S = 6.0  # for torch's recorders of all ranks; milliseconds each
_RAS_S = 3.0
_ENDS_S = 3.0  # for the black boxes of ranks that have ended
_GPUS_S = 4.0  # for nvidia-smi; mostly less than the time between the samples
_MAX_CHILDREN = 16  # of one rank whose stacks are read; the state of all is kept
_WAITS_FOR_CHILDREN = frozenset({"data", "queue", "child"})
_MAX_THREADS = 400  # of one sample


class Share(Struct, frozen=True):
    """Parts of the time that is left: until `stacks` py-spy is started, at `all` the step is over."""

    stacks: float
    all: float


# A reader that hangs in one step must leave time for those behind it.
FIRST, CHILDREN, LAST = Share(0.4, 0.5), Share(0.2, 0.3), Share(0.55, 0.7)
_BOXES_SHARE, _FAMILY_SHARE, _RAS_SHARE, _SETTLE_SHARE, _CLOSE_SHARE = 0.4, 0.2, 0.2, 0.4, 0.8
_GPUS_SHARE, _OTHERS_SHARE = 0.3, 0.5
_START_UP_SHARE = 0.4
_RECORDERS_SHARE = 0.4


class End(Struct, frozen=True):
    """What only the end of a capture knows of a process."""

    gone: bool = False
    exit_code: int | None = None
    tracer: int = 0
    frozen: bool = False
    oom_kills: int = 0


class Session:
    """A capture, its deadline and the place for what is found."""

    def __init__(self, options: CaptureOptions, begin: float, capture: NodeCapture) -> None:
        self.options = options
        self.begin = begin
        self.capture = capture
        self.round = 0
        self.boxes_hang = False
        self.folders: set[Path] = set()  # of the ranks' black boxes
        self.gpus: gpus.Asked | None = None
        # Never all ranks of a node at once, and half of its processors at most.
        limit = min(turns.processors() // 2, len(capture.ranks) - 1, _WORKERS)
        self.turns = turns.Turns(limit)
        self.gentle_s = _GENTLE_S

    def left(self, share: float = 1.0) -> float:
        """Seconds, of that share of the time until the deadline."""
        gone = time.monotonic() - self.begin
        return max(0.0, (self.options.timeout_s - gone) * share)

    @property
    def too_late(self) -> str:
        """Why something was not read, in words."""
        return f"the deadline of {duration(self.options.timeout_s)} came first"

    def note(self, text: str) -> None:
        """Add a note to the capture, once."""
        if text not in self.capture.notes:
            self.capture.notes.append(text)

    # ----------------------------------------------------------------- processes

    def sample(self, processes: Sequence[Process], share: Share) -> None:
        """One sample of every process, /proc first, then stacks. Those whose stack is not known yet
        come first.
        """
        begin = time.monotonic()
        ordered = sorted(processes, key=_has_stack)
        stacks_end = begin + self.left(share.stacks)
        states: dict[int, ProcessSample] = {}
        counts = socket_bytes.SocketCounts()

        def read(numbered: tuple[int, Process]) -> pyspy.StackResult | None:
            place, process = numbered
            sample = self._state(process.pid)
            counts.add_to(process.pid, sample)
            states[place] = sample
            if sample.stack_error:
                return None
            return self._stacks(process.pid, sample, stacks_end)

        try:
            done, failed = in_time(enumerate(ordered), read, _WORKERS, self.left(share.all))
        except BaseException:
            pyspy.end_all()
            raise
        known = dict(states)  # whoever comes later changes nothing any more
        for place, sample in known.items():
            self._take(ordered[place], sample, done.get(place), failed.get(place))
        self._say_unread([p for place, p in enumerate(ordered) if place not in known])
        self.round += 1
        self.capture.pyspy_s = round(self.capture.pyspy_s + time.monotonic() - begin, 4)

    def _state(self, pid: int) -> ProcessSample:
        sample = proc.sample_process(pid, round(time.monotonic() - self.begin, 4))
        if sample.state in ("", "Z", "X"):
            sample.stack_error = (
                "the process has ended" if not sample.state else "the process is a zombie"
            )
        return sample

    def _stacks(self, pid: int, sample: ProcessSample, end: float) -> pyspy.StackResult:
        hold = may_attach(sample)
        with self.turns.one(end - time.monotonic()):
            left = end - time.monotonic()
            if left <= 0:
                return pyspy.StackResult([], f"not read: {self.too_late}", unread=True)
            result = pyspy.dump(
                pid,
                left,
                blocking=hold and self.options.blocking,
                native=hold and self.options.native,
                gentle_s=self.gentle_s,
            )
        if result.hurried:
            self.gentle_s = 0.0  # the machine is full: whoever waits for room would wait for long
        return result

    def _take(
        self,
        process: Process,
        sample: ProcessSample,
        result: pyspy.StackResult | None,
        error: Exception | None,
    ) -> None:
        process.samples.append(sample)
        if error is not None:
            sample.stack_error = f"not read: {type(error).__name__}: {error}"[:200]
        elif result is None:
            sample.unread = not sample.stack_error
            sample.stack_error = sample.stack_error or f"not read: {self.too_late}"
        else:
            self._say_not_attached(process, sample)
            sample.stack_error, sample.unread = result.error, result.unread
            sample.shut_down = result.shut_down
            _join_stacks(sample, result)
            if result.raw and self.options.keep_raw:
                kind = "err" if result.error else "json"
                self.capture.raw[f"{process.pid}.{self.round}.{kind}"] = result.raw

    def _say_not_attached(self, process: Process, sample: ProcessSample) -> None:
        if (self.options.native or self.options.blocking) and not may_attach(sample):
            how = f"in state {sample.state} and was read without stopping it"
            self.note(f"process {process.pid} is {how}")

    def _say_unread(self, unread: Sequence[Process]) -> None:
        if not unread:
            return
        which = ", ".join(str(p.pid) for p in unread[:4]) + (" ..." if len(unread) > 4 else "")
        what = f"{len(unread)} process{'es' if len(unread) > 1 else ''} ({which})"
        self.note(f"sample {self.round + 1} of {what} was not read: {self.too_late}")

    def capture_children(self, ranks: Sequence[RankCapture]) -> None:
        """Stacks of a rank's children, where it waits for them; otherwise only who they are."""
        try:
            pids = [rank.pid for rank in ranks]
            families = within(self.left(_FAMILY_SHARE), lambda: descendants.families(pids))
        except OutOfTime:
            self.note(f"what the ranks have started was not read: {self.too_late}")
            return
        wanted: list[Process] = []
        for rank, children in zip(ranks, families, strict=True):
            rank.children = children
            _, place = rank_thread(rank.samples[-1].threads if rank.samples else [])
            if place.kind in _WAITS_FOR_CHILDREN or (children and not place.communicates):
                wanted += children[:_MAX_CHILDREN]
        if wanted:
            self.sample(wanted, CHILDREN)
            self.close(wanted, _FAMILY_SHARE)

    def close(self, processes: Sequence[Process], share: float = _CLOSE_SHARE) -> None:
        """What only the end knows: whether they still live, who traces them, whether they are
        frozen.
        """
        done, _ = in_time(processes, lambda p: _end(p.pid), _WORKERS, self.left(share))
        for place, end in done.items():
            process = processes[place]
            process.gone, process.exit_code = end.gone, end.exit_code
            process.tracer, process.frozen = end.tracer, end.frozen
            self.capture.oom_kills = max(self.capture.oom_kills, end.oom_kills)
        missing = len(processes) - len(done)
        if missing:
            self.note(f"whether {missing} processes still live was not read: {self.too_late}")
        for process in processes:
            if not process.samples and not process.gone:
                why = f"not read: {self.too_late}"
                process.samples.append(ProcessSample(0.0, stack_error=why, unread=True))

    def note_ends(self, leaving: Leaving) -> None:
        """How ranks ended that did not live to the end of the capture; last of all."""
        if not any(rank.gone for rank in leaving.ranks):
            return
        leaving.wait_for_others(self.left(_OTHERS_SHARE))
        self.close(leaving.ranks)
        folders = set() if self.boxes_hang else {*self.folders, *blackbox.default_folders()}
        try:
            within(_ENDS_S, lambda: leaving.note(self.capture, folders))
        except OutOfTime:
            self.note("how the ranks ended was not read: the folder of their boxes did not answer")

    # ----------------------------------------------------------------- the rest

    def attach_boxes(self, first: bool = False) -> None:
        """The operations of all ranks; their folder may be on a file system that does not answer."""
        if self.boxes_hang:
            return
        # What comes too late must not change the capture.
        copies = [structs.replace(r) for r in self.capture.ranks]
        dump = self.options.nccl_dump and not first
        patience = min(_BOXES_S, self.left(_BOXES_SHARE))
        try:
            notes = within(
                patience,
                lambda: rank_operations.attach(
                    copies, first=first, nccl_dump=dump, known=self.folders
                ),
            )
        except OutOfTime as late:
            # On a busy machine they are asked for again at the end.
            self.boxes_hang = patience >= _HANGS_S and late.ran_s < _RUNS * patience
            why = "is the file system of HANGDOCTOR_DIR hanging?" if self.boxes_hang else ""
            self.note(
                f"the black boxes could not be read within {patience:.1f} s: {why or self.too_late}"
            )
            self.capture.boxes_unread = bool(self.folders)
            return
        self.capture.boxes_unread = False
        for rank, copy in zip(self.capture.ranks, copies, strict=True):
            rank.pid, rank.calls = copy.pid, copy.calls
            rank.ops, rank.ops_before = copy.ops, copy.ops_before
            rank.recorded, rank.recorded_before = copy.recorded, copy.recorded_before
        for note in notes:
            self.note(note)

    def attach_recorders(self, first: bool = False) -> None:
        """What torch's recorders hold, of ranks that have no black box."""
        copies = [structs.replace(r) for r in self.capture.ranks]
        patience = min(_RECORDERS_S, self.left(_RECORDERS_SHARE))
        try:
            notes = within(
                patience,
                lambda: recorder_live.attach(copies, first, 0.8 * patience, self.capture.layout),
            )
        except OutOfTime:
            self.note(f"torch's recorders were not read: {self.too_late}")
            return
        for rank, copy in zip(self.capture.ranks, copies, strict=True):
            rank.ops, rank.ops_before = copy.ops, copy.ops_before
        for note in notes:
            self.note(note)

    def attach_start_up(self, ranks: Sequence[RankCapture]) -> None:
        """The way of ranks in set-up to their store; a name server or a mount may not answer."""
        copies = [structs.replace(rank) for rank in ranks]
        patience = self.left(_START_UP_SHARE)
        attempt_s = min(start_up.ATTEMPT_S, patience / 2)
        try:
            within(patience, lambda: start_up.attach(copies, attempt_s))
        except OutOfTime:
            self.note(f"why ranks have not joined their store was not read: {self.too_late}")
            return
        for rank, copy in zip(ranks, copies, strict=True):
            rank.store, rank.importing = copy.store, copy.importing

    def ask_ras(self, ranks: Sequence[RankCapture]) -> None:
        """NCCL's RAS on this node; most jobs have none, and the connection is refused at once."""
        patience = min(_RAS_S, self.left(_RAS_SHARE))
        if patience <= 0:
            return
        try:
            report, note = within(patience + 0.2, lambda: ras_of_job.ask(ranks, patience))
        except OutOfTime:
            return
        self.capture.ras = report
        if note:
            self.note(note)

    def ask_gpus(self, ranks: Sequence[RankCapture]) -> None:
        """Have nvidia-smi, where there is one, look at the GPUs while the ranks are sampled."""
        since = min((r.started for r in ranks if r.started), default=0.0)
        self.gpus = gpus.Asked(min(_GPUS_S, self.left(_GPUS_SHARE)), since)

    def take_gpus(self, ranks: Sequence[RankCapture]) -> None:
        """What it found; a rank that computes on one of them is known to have that one."""
        if self.gpus is None:
            return
        found = self.gpus.wait(min(_GPUS_S, self.left(_GPUS_SHARE)))
        self.capture.gpus = found.gpus
        by_pid = {pid: gpu.index for gpu in found.gpus for pid in gpu.pids}
        for rank in ranks:
            if rank.pid in by_pid:
                rank.gpu = str(by_pid[rank.pid])
        for note in found.notes:
            self.note(note)

    def settle(self) -> None:
        """Let time pass between the samples."""
        time.sleep(min(self.options.settle_s, self.left(_SETTLE_SHARE)))


def may_attach(sample: ProcessSample) -> bool:
    """True where ptrace is safe: the process sleeps or runs, and no thread of it is in
    uninterruptible I/O.
    """
    return sample.state in ("S", "R") and not any(t.state == "D" for t in sample.threads)


def _has_stack(process: Process) -> bool:
    return any(t.frames for s in process.samples for t in s.threads)


def _join_stacks(sample: ProcessSample, result: pyspy.StackResult) -> None:
    """Put py-spy's stacks on the threads that /proc told of."""
    known = {t.tid: t for t in sample.threads}
    for stack in result.threads:
        thread = known.get(stack.tid)
        if thread is None:
            sample.threads.append(stack)
            continue
        thread.name, thread.frames = stack.name, stack.frames
        thread.gil, thread.active, thread.held = stack.gil, stack.active, stack.held
    # Threads without Python in them (autograd's pools, gloo's, CUDA's) are kept only where they
    # tell something.
    kept = [t for t in sample.threads if t.frames or t.state == "D" or not result.threads]
    sample.threads = kept[:_MAX_THREADS]


def _end(pid: int) -> End:
    state = proc.stat_fields(pid)[:1]
    if not state or state[0] in "ZX":
        return End(gone=True, exit_code=proc.exit_code(pid))
    tracer = int(proc.status_fields(pid).get("TracerPid", "0") or 0)
    return End(False, None, tracer, proc.is_frozen(pid), oom_kills=proc.oom_kills(pid))
