"""Where the training's thread of an ended rank was last, by its box: what no recorded operation shows.

It says something only of a rank that had got on with nothing for longer than it ever did before, and
was there when the first rank ended: what came after that is no part of the hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, structs

from ..model.capture import Frame, ProcessSample, ThreadSample
from ..model.operations import RankOps
from ..model.pauses import is_long
from ..probe import format as fmt
from ..stacks.call_peers import peers, root, tags
from ..stacks.loop_counts import COUNTERS
from ..stacks.place_search import STORE_CALL
from ..text.ranges import number_in
from . import box_stacks
from .box_header import BlackBox, number, text
from .box_stacks import KeptStacks
from .handle_origins import polled
from .pyspy_frames import loops_around
from .source_lines import call_as_of
from .source_lines import lines as source_lines

_FRESH_S = 2.5  # between the last heartbeat and the last sight of the place
_SHORTEST_S = 4.0  # without progress
_AT_START_S = 10.0  # the same in the first steps
_WITHOUT_RECORDS_S = 20.0  # where no operations are recorded, and no thread worked
_BESIDE_S = 10.0  # the same, of a rank beside one that is stuck
_ALL_IN_CALLS_S = 8.0  # the same, where the lines of all ranks are calls that communicate
_LONGER = 2.0  # the same, than any time without progress before
_NUMBERS = "\t\t"  # begins their line
_ENOUGH = 4  # signs of progress, to know its pauses
_IDLE = 0.05  # of the time on the CPU: less is a wait
_NO_PROGRESS = ("init_process_group", "destroy_process_group")  # the one is long, the other an end
_SPINS = 0.5  # of the heartbeats: it runs at less where it computed before, and waits now
# What is written under the guard.
_GUARDED = (
    (fmt.H_PLACE_GUARD[0], fmt.H_END_AT[0]),
    (fmt.H_GOT_ON[0], fmt.HEADER_BYTES),
)


class LastPlace(Struct):
    """A stack, innermost frame first, and when it was there, by the rank's wall clock."""

    frames: list[Frame]
    since_s: float
    seen_s: float
    cpu_s: float  # used between the two
    idle_since_s: float = 0.0  # when the box last got on; 0 in older boxes
    idle_cpu_s: float = 0.0  # used since then
    beats: int = 0  # heartbeats since then
    runnable: int = 0  # those at which it ran
    state: str = ""  # at the last of them
    steady: int = 0  # which frame, from 1, is of a function that it never left since then; 0 none
    longest: int = 0  # heartbeats of the longest time without progress that ended
    numbers: dict[str, int] = {}  # whole numbers of the innermost frame
    thread: int = 0  # whose place it is; 0: the main one

    @property
    def spins(self) -> bool:
        """Whether its thread ran at most heartbeats, and at the last; on a busy machine, or while it
        waits for a CPU, it uses little of one.
        """
        return self.state == "R" and self.runnable > _SPINS * self.beats

    @property
    def sleeps(self) -> bool:
        """Whether its thread ran at no heartbeat, and used no CPU to speak of."""
        idle = self.idle_cpu_s <= _IDLE * (self.seen_s - self.idle_since_s)
        return self.state in ("S", "D") and not self.runnable and idle


def place_of(first: bytes, second: bytes) -> LastPlace | None:
    """What two snapshots of one file agree on; None where nothing was written, or only in part."""
    guard = number(second, fmt.H_PLACE_GUARD)
    whole = guard > 0 and guard % 2 == 0 and _agree(first, second)
    return _read(second) if whole else None


def left_place_of(first: bytes, second: bytes) -> LastPlace | None:
    """The last place that the rank has left since: it is taken back, and its bytes remain."""
    taken_back = not number(second, fmt.H_PLACE_GUARD) and number(second, fmt.H_PLACE_SEEN)
    return _read(second) if taken_back and _agree(first, second) else None


def _agree(first: bytes, second: bytes) -> bool:
    return all(first[begin:end] == second[begin:end] for begin, end in _GUARDED)


def _read(second: bytes) -> LastPlace:
    lines = text(second, fmt.H_PLACE).splitlines()
    numbers = _numbers(lines)
    frames = [_frame(line) for line in lines]
    return LastPlace(
        frames=[frame for frame in frames if frame is not None],
        since_s=number(second, fmt.H_PLACE_SINCE) / 1e9,
        seen_s=number(second, fmt.H_PLACE_SEEN) / 1e9,
        cpu_s=number(second, fmt.H_PLACE_CPU) / 1e9,
        idle_since_s=number(second, fmt.H_GOT_ON) / 1e9,
        idle_cpu_s=number(second, fmt.H_IDLE_CPU) / 1e9,
        beats=number(second, fmt.H_IDLE_BEATS),
        runnable=number(second, fmt.H_RUNNABLE_BEATS),
        state=chr(number(second, fmt.H_LAST_STATE)).strip("\0"),
        steady=number(second, fmt.H_STEADY),
        longest=number(second, fmt.H_LONGEST_IDLE),
        thread=numbers.pop(fmt.PLACE_THREAD.decode(), 0),
        numbers=numbers,
    )


def _frame(line: str) -> Frame | None:
    name, _, rest = line.partition("\t")
    file, _, at = rest.partition("\t")
    return Frame(name, file, max(0, number_in(at))) if file else None


def _numbers(lines: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines:
        if line.startswith(_NUMBERS):
            for word in line.split():
                name, _, value = word.partition("=")
                if value.removeprefix("-").isdecimal():
                    found[name] = int(value)
    return found


class Company(Enum):
    """Seconds without progress of a rank whose calls are not recorded, by what the others do."""

    UNKNOWN = _WITHOUT_RECORDS_S
    ONE_STUCK = _BESIDE_S  # for which this one may have computed at first
    ALL_IN_CALLS = _ALL_IN_CALLS_S  # that communicate, by their lines, or asleep beside them


def samples_of(
    box: BlackBox,
    ops: RankOps,
    place: LastPlace | None,
    until: float,
    company: Company = Company.UNKNOWN,
) -> list[ProcessSample]:
    """The place as two samples of a process, or as one where it was seen once; [] where it says
    nothing of the time `until` (0: the last heartbeat).
    """
    last = min(box.heartbeat_s, until or box.heartbeat_s)
    if place is None or not place.frames or place.seen_s < last - _FRESH_S:
        return []
    place = _as_spinning(place)
    if until and place.since_s > until:
        return []
    signs = signs_until(ops, until)
    last = max(signs, default=box.created_s)
    if ops.got_on_s <= (until or place.seen_s):
        last = max(last, ops.got_on_s)  # in C++, too
    idle = min(until or place.seen_s, place.seen_s) - last
    if box.uncounted:
        stuck = idle > max(company.value, _LONGER * place.longest)
    else:
        stuck = is_stuck(ops, signs, idle)
    if not stuck:
        return []
    if box.uncounted or box.backend == fmt.MPI4PY:
        place = _with_source(place, box.created_s)
    return _samples(box, ops, place)


def samples_before_limit(
    box: BlackBox, ops: RankOps, place: LastPlace | None, until: float
) -> list[ProcessSample]:
    """The same of a place that the rank left when its wait failed, as at gloo's limit, or when another's
    failed, whose lock it got then: a process that ends by an exception lives for some heartbeats
    more. [] where it got on from that place before.

    `ops` are those at the limit: the operation that failed is one that has not ended.
    """
    if place is None or not place.frames or not until:
        return []
    waits = [o for o in ops.operations[-1:] if o.state != "done"]
    beside = any((o.asynchronous and not o.waited) or o.entered_s > place.since_s for o in waits)
    fresh = place.since_s <= until <= place.seen_s + _FRESH_S
    if beside or not fresh:
        return []
    signs = signs_until(ops, until)
    idle = min(until, place.seen_s) - max(signs, default=box.created_s)
    return _samples(box, ops, place) if is_stuck(ops, signs, idle) else []


def _with_call(place: LastPlace, ops: RankOps) -> LastPlace:
    """A wait for a key of the store has no frame of its own: its line's source shows it, which a box
    does not keep.
    """
    waits = [o for o in ops.operations if o.op == "store_wait" and o.entered_s <= place.seen_s]
    inside = bool(waits) and (not waits[-1].left_s or waits[-1].left_s >= place.seen_s)
    line = f":{place.frames[0].line})"
    if not inside or not waits[-1].site.endswith(line) or place.frames[0].code:
        return place
    call = structs.replace(place.frames[0], code=STORE_CALL)
    return structs.replace(place, frames=[call, *place.frames[1:]])


def _with_source(place: LastPlace, began_s: float) -> LastPlace:
    """With the line of the program as it was when it began: mpi4py and JAX are compiled, and their calls
    have no frame. The rank does not read it: a file system that does not answer would keep it.
    """
    first, *outer = place.frames
    code = call_as_of(first.file, first.line, began_s)
    code = (code and polled(source_lines(first.file), first.line)) or code
    if not code:
        return place
    values = {name: number for name, number in place.numbers.items() if name in COUNTERS}
    values |= peers(code, place.numbers) | root(code, place.numbers) | tags(code, place.numbers)
    inner = structs.replace(first, code=code, values=values)
    return structs.replace(place, frames=[inner, *outer])


def _with_line(place: LastPlace, began_s: float) -> LastPlace:
    """With the line alone, of recorded calls the box knows more than its source shows; and with the
    loops around the lines of all frames.
    """
    first, *outer = [structs.replace(f, turns=_turns(f, began_s)) for f in place.frames]
    code = first.code or call_as_of(first.file, first.line, began_s)
    return structs.replace(place, frames=[structs.replace(first, code=code), *outer])


def _turns(frame: Frame, began_s: float) -> list[int]:
    """None where the file was changed after the process began."""
    return loops_around(frame) if call_as_of(frame.file, frame.line, began_s) else []


def _as_spinning(place: LastPlace) -> LastPlace:
    """Of a thread that computes to the end, the function that it never left, and all the time and CPU
    since its last progress: its innermost frames change from one heartbeat to the next.
    """
    if not place.spins or not place.steady:
        return place
    return structs.replace(
        place,
        frames=place.frames[place.steady - 1 :],
        since_s=place.idle_since_s,
        cpu_s=place.idle_cpu_s,
    )


def is_stuck(ops: RankOps, signs: list[float], idle: float) -> bool:
    """Whether it has been idle for longer than its pauses before; the first step's is apart, in
    which much is loaded and compiled.
    """
    first = min((mark.at_s for mark in ops.marks), default=0.0)
    steady = [at for at in signs if at >= first]
    if len(steady) < _ENOUGH:
        return idle > _AT_START_S
    usual = max(later - earlier for earlier, later in pairwise(steady))
    return idle > _SHORTEST_S and is_long(idle, usual)


def signs_until(ops: RankOps, until: float) -> list[float]:
    """When it entered operations or completed them, and began iterations."""
    signs = [mark.at_s for mark in ops.marks]
    for operation in ops.operations:
        if operation.op not in _NO_PROGRESS:
            signs += [operation.entered_s, 0.0 if operation.failed else operation.left_s]
    return sorted(at for at in signs if 0 < at <= (until or at))


def _stacks_of(box: BlackBox, place: LastPlace) -> KeptStacks | None:
    """Those of the same standstill. Of a place that was left, the box has the time of its end in
    the place of its beginning.
    """
    kept = box_stacks.stacks_beside(Path(box.path), box.created_s)
    begin = min(place.idle_since_s or place.since_s, place.since_s)
    return kept if kept is not None and begin <= kept.at_s <= place.seen_s + _FRESH_S else None


def _samples(box: BlackBox, ops: RankOps, place: LastPlace) -> list[ProcessSample]:
    place = _with_line(_with_call(place, ops), box.created_s)
    tid = place.thread or box.pid
    kept = _stacks_of(box, place)
    frames = box_stacks.whole(place.frames, kept, tid) if kept is not None else place.frames
    others = box_stacks.others(kept, tid) if kept is not None else []
    seconds = place.seen_s - place.since_s
    idle = place.cpu_s <= _IDLE * seconds
    switches = 0 if idle else -1  # they are not counted: an idle thread is taken for one that waits
    times: Sequence[tuple[float, float]] = [(0.0, 0.0), (seconds, place.cpu_s)]
    return [
        ProcessSample(
            at_s=at,
            threads=[
                ThreadSample(
                    tid=tid,
                    name="" if place.thread else "MainThread",
                    state="R" if place.spins else "",
                    cpu_s=cpu,
                    switches=switches,
                    frames=frames,
                ),
                *others,
            ],
        )
        for at, cpu in (times if seconds > 0 else times[:1])
    ]
