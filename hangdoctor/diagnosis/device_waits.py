"""Ranks that wait for their GPU in a thread that looks at work.

CUDA's waits poll by default: a thread in ``loss.item()`` uses a whole processor. What tells it from one
that computes is its line, a device that is busy, and that none of its variables is ever set anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import JobCapture, ThreadSample
from ..stacks.place_rules import Place
from ..stacks.place_search import find_place, python_frames
from ..stacks.user_code import is_users
from ..text.late import late
from .own_samples import stacks_of
from .rank_gpus import of_ranks
from .view import RankView

DEVICE_RESULT = "device result"
_BUSY = 20  # per cent, at least, of a device that is waited for; one that is not is idle
# What needs a value on the host where its operand is on a device: a number, a size, a condition.
_NEEDS_VALUE = late(
    r"\b(?:float|int|bool|print)\(|\.(?:numpy|nonzero|unique|masked_select|any|all)\("
    r"|\[\w*(?:mask|keep|kept|valid|select)\w*\]"
)


def settle(capture: JobCapture, views: Sequence[RankView]) -> None:
    """Take those at such a line for waiting, and those whose variables change for going on."""
    running = [view for view in views if view.motion == "running" and not view.gone]
    devices = of_ranks(capture) if running else {}
    for view in running:
        threads = stacks_of(view)
        if view.place.kind == "code" and view.rank in devices:
            if devices[view.rank].busy >= _BUSY and has_not_got_on(threads):
                view.place = _place(view)
        elif view.place.kind == "code" and capture.over and _enqueues(view):
            view.place = _place(view)  # it stood there for as long as its box shows no progress
        elif view.place.kind == "device" and _has_got_on(threads):
            view.motion = "looping"


def _enqueues(view: RankView) -> bool:
    """Whether its collectives are begun by the host and made by the device, as NCCL's are."""
    return view.capture.ops is not None and view.capture.ops.runs_ahead


def has_not_got_on(threads: Sequence[ThreadSample]) -> bool:
    """Whether all samples show a thread at the same lines with the same variables."""
    if len(threads) < 2 or not all(thread.held and thread.frames for thread in threads):
        return False
    return len({(thread.held, _lines(thread)) for thread in threads}) == 1


def _has_got_on(threads: Sequence[ThreadSample]) -> bool:
    """Whether it has set a variable anew between two samples."""
    return len({thread.held for thread in threads if thread.held}) > 1


def _lines(thread: ThreadSample) -> tuple[tuple[str, int], ...]:
    return tuple((frame.file, frame.line) for frame in python_frames(thread.frames))


def _place(view: RankView) -> Place:
    """Where it waits for its device, if its line can be such a wait; else where it is."""
    assert view.thread is not None
    found = find_place(view.thread.frames, blocked=True)
    if found.kind == "device":
        return found
    inner = view.path[-1] if view.path else None
    if inner is None or not is_users(inner) or not _NEEDS_VALUE.search(inner.code):
        return view.place
    return structs.replace(view.place, kind="device", op=DEVICE_RESULT)
