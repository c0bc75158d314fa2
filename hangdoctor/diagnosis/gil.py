"""Who has the GIL of a rank, and whether its main thread waits for that.

CPython asks for the GIL anew every 5 ms (`sys.getswitchinterval`), so that a thread that waits for it
wakes up 200 times a second and uses next to no CPU time; one that waits for a lock does not wake up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..model.capture import ProcessSample, ThreadSample
from ..stacks.place_rules import Place
from ..stacks.user_code import is_users
from . import byte_counts, held_by
from .findings import BehindThread
from .position import counters
from .view import RankView

_ASKS_PER_S = 50.0  # at least: a full machine wakes it up less often
_AT_MOST = 0.1  # of the time, on the CPU
_SHORTEST_S = 1e-3  # between two samples


def settle(views: Sequence[RankView]) -> None:
    """Of a rank whose thread waits for the GIL inside of a communication: that is behind it, and only
    its return is not.
    """
    for view in views:
        if view.place.communicates and is_awaited(view) and behind(view) is not None:
            view.place = Place("code", frame=view.place.frame, caller=view.place.caller)


def holders(view: RankView) -> list[ThreadSample]:
    """The thread that had the GIL in each sample with stacks; [] where none had it in one of them."""
    found = _had_it(view)
    return found if len(found) == _with_stacks(view) else []


def at_one_place(held: list[ThreadSample]) -> bool:
    """Whether one thread had it in all samples, and got on with nothing: neither at its lines nor by
    what it wrote or read.
    """
    same = len({(h.tid, _place_of(h)) for h in held}) == 1
    return len(held) > 1 and same and not byte_counts.carried(held[0], held[-1])


def asleep(held: list[ThreadSample]) -> bool:
    """Whether that thread did not run between the samples."""
    return all(h.state in ("S", "D") for h in held) and len({h.switches for h in held}) == 1


def is_awaited(view: RankView) -> bool:
    """Whether the rank's thread wakes up as one does that asks for the GIL, and for no lock."""
    if view.motion not in ("stirred", "running"):
        return False
    seen = _own(view)
    if len(seen) < 2 or _polls_lock(view) or not all(_may_ask(t) for _, t in seen):
        return False
    (begin, first), (end, last) = seen[0], seen[-1]
    seconds = max(end - begin, _SHORTEST_S)
    asks = (last.switches - first.switches) / seconds
    return asks >= _ASKS_PER_S and last.cpu_s - first.cpu_s <= _AT_MOST * seconds


def _polls_lock(view: RankView) -> bool:
    """Whether its line may wait for a lock again and again, for milliseconds each; torch's do not."""
    inner = view.path[-1] if view.path else None
    own = inner is not None and (is_users(inner) or inner.file.endswith("/threading.py"))
    return own and held_by.at_lock(view)


def _may_ask(thread: ThreadSample) -> bool:
    """Asleep where one waits for the GIL, or just woken up: a full machine lets it wait for a core."""
    return thread.state == "R" or (thread.state == "S" and thread.syscall in ("futex", ""))


def _own(view: RankView) -> list[tuple[float, ThreadSample]]:
    """When the rank's thread was seen, and as what."""
    if view.thread is None:
        return []
    own = view.thread.tid
    return [(s.at_s, t) for s in view.capture.samples for t in s.threads if t.tid == own]


def is_anothers(sample: ProcessSample, own: ThreadSample) -> bool:
    """Whether another thread than a rank's own had the GIL in a sample."""
    return any(thread.gil and thread.tid != own.tid for thread in sample.threads)


def goes_on(view: RankView) -> bool:
    """Whether the rank's thread waits for the GIL, and the one that has it at each sample gets on."""
    held = holders(view)
    return behind(view) is not None and is_awaited(view) and not at_one_place(held)


def behind(view: RankView) -> BehindThread | None:
    """The other thread that had the GIL at most of the samples, and where it was last."""
    counts = Counter(thread.tid for thread in _had_it(view))
    tid, count = counts.most_common(1)[0] if counts else (0, 0)
    samples = _with_stacks(view)
    if view.thread is None or tid == view.thread.tid or count < 2 or 2 * count <= samples:
        return None
    last = [thread for thread in _had_it(view) if thread.tid == tid][-1]
    if not last.frames:
        return None
    return BehindThread(last.name, tid, held_by.own_frame(last), count, samples)


def _had_it(view: RankView) -> list[ThreadSample]:
    return [thread for s in view.capture.samples for thread in s.threads if thread.gil]


def _with_stacks(view: RankView) -> int:
    return sum(any(t.frames for t in s.threads) for s in view.capture.samples)


def _place_of(thread: ThreadSample) -> tuple[object, ...]:
    """Its lines and loop counters: the same in two samples only where it did not move."""
    return tuple((f.name, f.line) for f in thread.frames) + counters(thread.frames)
