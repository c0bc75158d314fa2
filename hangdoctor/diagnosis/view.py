"""One rank as the passes see it: where it is, whether it moved, what holds its process."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

from msgspec import Struct, field, structs

from ..model.capture import Frame, JobCapture, Process, ProcessSample, RankCapture, ThreadSample
from ..stacks.call_peers import of_rank, peers, waited_for
from ..stacks.loop_counts import PEER
from ..stacks.place_rules import Place
from ..stacks.place_search import (
    HANDLE,
    PlaceFinder,
    find_place,
    is_communication,
    python_frames,
    sends,
)
from ..stacks.rank_thread import rank_thread
from ..stacks.user_code import is_comprehension
from ..text.late import late

# still: the thread did not run once between the samples. stirred: it ran and is where it was.
# looping: other lines or counters of the same functions. moved: other functions. running: it used
# the CPU.
Motion = Literal["still", "stirred", "looping", "moved", "running", "unknown"]

# Of the time between the samples; a share, since eight busy ranks may share two cores.
_RUNNING_SHARE = 0.2
_TWO_TICKS_S = 0.02  # of the kernel's clock: less says nothing on a short interval
_SHORTEST_S = 1e-3  # between two samples
# No device is waited for in these: a line that prints loss.item() is blocked in printing.
_ON_FILE = late(r"^p?(?:read|write)(?:v|64)?\(\d+ -> (?:pipe:|/(?!dev/nvidia))")


class Look(Struct):
    """What one stack comes to: the same object for all ranks of a job with that stack.

    The last three are worked out when a pass first asks (`position`, `stacks`).
    """

    path: list[Frame] = []  # its Python frames, outermost first
    steps: list[Frame] | None = None
    counts: tuple[tuple[str, int], ...] | None = None
    operation: tuple[object, ...] | None = None


class RankView(Struct):
    """What the captures of one rank come to."""

    rank: int
    node: str
    pid: int
    capture: RankCapture
    place: Place
    motion: Motion = "unknown"
    thread: ThreadSample | None = None
    look: Look = field(default_factory=Look)
    stack_error: str = ""
    unread: bool = False  # there was no time to read its stack: it may be anywhere
    spins: bool = False  # it moved, in a loop of its own that gets nowhere
    lost_thread: str = ""  # of this name most other ranks have one, which trains

    @property
    def path(self) -> list[Frame]:
        """The Python frames of that thread, outermost first."""
        return self.look.path

    @property
    def gone(self) -> bool:
        """True where it has no living process."""
        return self.capture.gone

    @property
    def state(self) -> str:
        """The process state of the last sample, "" where there is none."""
        return self.capture.samples[-1].state if self.capture.samples else ""

    @property
    def stopped(self) -> bool:
        """True where its process is not allowed to run."""
        return not self.gone and (self.capture.frozen or all_states(self.capture, "Tt"))

    @property
    def waits(self) -> bool:
        """True where it is in a communication and did not get on."""
        return not self.gone and self.place.communicates and not self.got_on

    @property
    def got_on(self) -> bool:
        """True where its thread went on in its program between the samples."""
        return self.motion in ("moved", "looping")


def all_states(process: Process, states: str) -> bool:
    """True where every sample of the process saw it in one of `states`."""
    return bool(process.samples) and all(s.state and s.state in states for s in process.samples)


def _thread(sample: ProcessSample, tid: int) -> ThreadSample | None:
    return next((t for t in sample.threads if t.tid == tid), None)


def motion_of(process: Process, tid: int) -> Motion:
    """How a thread got on between the first and the last sample of its process."""
    if len(process.samples) < 2:
        return "unknown"
    first, last = process.samples[0], process.samples[-1]
    before, after = _thread(first, tid), _thread(last, tid)
    if before is None or after is None:
        return "unknown"
    path_before, path_after = _paths_to_compare(before, after)
    if _functions(path_before) != _functions(path_after):
        return "moved"
    if _runs(before, after, last.at_s - first.at_s):
        return "running"
    if _lines(path_before) != _lines(path_after):
        return "looping"
    if min(before.switches, after.switches) < 0:  # not counted on this system
        return "still" if after.cpu_s == before.cpu_s else "unknown"
    return "still" if after.switches == before.switches else "stirred"


def _paths_to_compare(before: ThreadSample, after: ThreadSample) -> tuple[list[Frame], list[Frame]]:
    """The Python frames of both; none where they are equal, or one is missing."""
    # Equal stacks are often one object.
    if before.frames is after.frames or not before.frames or not after.frames:
        return [], []
    return python_frames(before.frames), python_frames(after.frames)


def _runs(before: ThreadSample, after: ThreadSample, seconds: float) -> bool:
    """Whether it used the CPU for a good part of the time between the samples."""
    if before.state == after.state == "R":
        return True
    enough = _RUNNING_SHARE * max(seconds, _SHORTEST_S)
    return after.cpu_s - before.cpu_s >= max(enough, _TWO_TICKS_S)


def _functions(frames: Sequence[Frame]) -> list[tuple[str, str]]:
    """What is called, in order; of a function that calls itself once: how deep it is says nothing
    of how far it is. A comprehension is a part of the function that it stands in.
    """
    calls = [(f.name, f.file) for f in frames if not is_comprehension(f)]
    return [call for i, call in enumerate(calls) if i == 0 or call != calls[i - 1]]


def _lines(frames: Sequence[Frame]) -> list[tuple[str, str, int, tuple[tuple[str, int], ...]]]:
    return [(f.name, f.file, f.line, tuple(sorted(f.values.items()))) for f in frames]


class StillThreads(Container[object]):
    """Ids of the threads that did not run between the samples, each looked at when it is asked for."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def __contains__(self, tid: object) -> bool:
        last = self.process.samples[-1] if self.process.samples else None
        known = last is not None and any(t.tid == tid for t in last.threads)
        return known and isinstance(tid, int) and motion_of(self.process, tid) == "still"


class Looks:
    """The looks of one job: thousands of ranks have few stacks."""

    def __init__(self) -> None:
        self.places = PlaceFinder()
        self._found: dict[tuple[int, int], tuple[list[Frame], Place, Look]] = {}

    def of(self, frames: list[Frame], place: Place) -> Look:
        """The look of a stack, which is in this place."""
        key = (id(frames), id(place))
        found = self._found.get(key)
        if found is None:  # both are kept, so that no other object gets their ids
            look = Look(python_frames(frames)[::-1])
            found = self._found[key] = frames, place, look
        return found[2]


def view_rank(capture: RankCapture, looks: Looks | None = None) -> RankView:
    """Reduce a rank's capture to its view. Stacks of the last sample count; the first fills in
    where it failed. `looks` are those of the job's other ranks.
    """
    looks = looks or Looks()
    samples = capture.samples
    told = _last_with_stacks(samples, capture.pid)
    view = RankView(capture.rank, capture.node, capture.pid, capture, place=Place(""))
    if capture.gone:
        return view
    if told is None:
        view.unread = True
        return view
    if not _has_stacks(told):
        view.stack_error, view.unread = samples[-1].stack_error, samples[-1].unread
    still = StillThreads(capture)
    thread, view.place = rank_thread(told.threads, still, looks.places)
    if thread is not None:
        place_by(view, thread, view.place, looks=looks)
    return view


def place_by(view: RankView, thread: ThreadSample, place: Place, looks: Looks) -> None:
    """Take one thread of a rank, which is in `place`, for where the rank is."""
    capture = view.capture
    view.thread, view.place = thread, _unless_on_file(place, thread)
    if view.place.op == HANDLE:
        view.place = _of_transfer(view.place, capture, python_frames(thread.frames)[:1])
    elif view.place.kind == "p2p" and view.place.peer < 0:
        view.place = _with_peer(view.place, capture, python_frames(thread.frames)[:1])
    view.motion = motion_of(capture, thread.tid)
    if view.got_on and (view.place.communicates or view.place.kind == "work"):
        view.motion = _same_wait(capture, thread, view)
    if view.motion == "stirred" and view.place.kind == "code" and _was_elsewhere(capture, thread):
        view.motion = "moved"
    view.look = looks.of(thread.frames, view.place)


def _was_elsewhere(capture: RankCapture, thread: ThreadSample) -> bool:
    """Whether a sample between the first and the last found a thread in other functions."""
    between = [_thread(sample, thread.tid) for sample in capture.samples[1:-1]]
    pairs = [_paths_to_compare(then, thread) for then in between if then is not None]
    return any(_functions(then) != _functions(now) for then, now in pairs)


def _with_peer(place: Place, capture: RankCapture, innermost: Sequence[Frame]) -> Place:
    """The place of an MPI call with the peer that its line says of this rank."""
    told = [of_rank(frame.code, capture.rank, capture.world_size) for frame in innermost]
    numbers = [n for found in told for n in (found.get("src"), found.get("dst")) if n is not None]
    return structs.replace(place, peer=numbers[0]) if numbers else place


def _of_transfer(place: Place, capture: RankCapture, innermost: Sequence[Frame]) -> Place:
    """The place; a send or receive where its line waits for the handle of just that."""
    frame = innermost[0] if innermost else None
    op = waited_for(frame.code) or frame.handle if frame is not None else ""
    if frame is None or not op:
        return place
    told = peers(frame.code, frame.values)
    told = told or of_rank(frame.code, capture.rank, capture.world_size)
    peer = told.get("dst" if sends(op) else "src", frame.values.get(PEER, -1))
    return structs.replace(place, kind="p2p", op=op, peer=peer)


def _unless_on_file(place: Place, thread: ThreadSample) -> Place:
    """The place; the user's code where its line alone shows a wait, and its thread is in a file's call."""
    by_line = place.kind == "device" or place.op == HANDLE
    if by_line and _ON_FILE.search(thread.syscall):
        return Place("code", frame=place.frame, caller=place.caller)
    return place


def _has_stacks(sample: ProcessSample) -> bool:
    return any(thread.frames for thread in sample.threads)


def _last_with_stacks(samples: Sequence[ProcessSample], pid: int) -> ProcessSample | None:
    """The last sample with a stack of the main thread, since that of a busy one may be lost; else
    with any; the last of all where none has one.
    """
    of_main = [s for s in samples if any(t.tid == pid and t.frames for t in s.threads)]
    if of_main:
        return of_main[-1]
    for sample in reversed(samples):
        if _has_stacks(sample):
            return sample
    return samples[-1] if samples else None


def _same_wait(capture: RankCapture, thread: ThreadSample, view: RankView) -> Motion:
    """Set-up polls its store in a loop of its own, a worker its queue: the same wait with other
    inner lines has not moved. Nor has a collective that is waited for a line after the one that starts it.
    """
    before = _thread(capture.samples[0], thread.tid)
    if before is not None and view.place.kind == "collective":
        return "stirred" if _same_call(before, thread) else view.motion
    if before is None or view.place.kind not in ("start", "end", "store", "work"):
        return view.motion
    then, now = find_place(before.frames), view.place
    same = (then.kind, then.op, then.at) == (now.kind, now.op, now.at)
    return "stirred" if same else view.motion


def _same_call(before: ThreadSample, after: ThreadSample) -> bool:
    """Whether two stacks differ in the line of the communication library alone."""
    then, now = _paths_to_compare(before, after)
    if not then or not now or not is_communication(now[0]) or _functions(then) != _functions(now):
        return False
    return _lines(then[1:]) == _lines(now[1:]) and then[0].values == now[0].values


def view_job(capture: JobCapture) -> list[RankView]:
    """All ranks of a capture, in order of rank; a rank captured twice (two nodes claim it) keeps
    its living process.

    After the end of the job none lives: that one has ended is no sign of anything, but where it left long before
    the others. Where that came
    during the capture, the samples are left out.
    """
    by_rank: dict[int, RankCapture] = {}
    meanwhile = capture.ended_meanwhile
    for rank in capture.ranks():
        if capture.over:
            rank = structs.replace(rank, gone=rank.gone and rank.left_s > 0)
        if meanwhile:  # what its samples show was true before the end, and hides the end
            rank = structs.replace(rank, samples=[])
        known = by_rank.get(rank.rank)
        if known is None or known.gone:
            by_rank[rank.rank] = rank
    looks = Looks()
    return [view_rank(r, looks) for _, r in sorted(by_rank.items())]
