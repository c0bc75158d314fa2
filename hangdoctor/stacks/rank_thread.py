"""Which thread of a rank says where the rank is: any that communicates or runs the user's code.

Often that is the main thread. It is not where the main thread only waits for another one: autograd's,
a pool's, the training loop that Ray runs in a thread beside its event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ..model.capture import Frame, ThreadSample
from ..text.late import late
from . import native_program
from .place_rules import Place
from .place_search import find_place, python_frames
from .user_code import is_users

_LOCK_CALLS = frozenset({"wait", "acquire", "_wait_for_tstate_lock"})
_BETWEEN_RANKS = ("collective", "p2p", "start", "end")
_OF_RPC = ("rpc.shutdown", "rpc_sync", "to_here")
_SERVES_CALLS = late(r"torch/distributed/rpc/internal\.py$")

Find = Callable[[Sequence[Frame], bool], Place]
Placed = tuple[ThreadSample, Place]


def rank_thread(
    threads: Sequence[ThreadSample],
    blocked: Container[object] = frozenset(),
    find: Find = find_place,
) -> tuple[ThreadSample | None, Place]:
    """The thread that says where a rank is, and its place.

    The main thread, unless it waits for another thread of its process that is in a communication or
    runs, or only for calls by RPC while another thread serves one: then that one. `blocked` holds the ids of threads that did not run between the samples.
    """
    if not threads:
        return None, Place("")
    main = next((t for t in threads if t.name == "MainThread"), threads[0])
    place = find(main.frames, main.tid in blocked)
    with_stacks = [t for t in threads if t is not main and t.frames]
    if place.op in _OF_RPC:
        others = [(t, find(t.frames, t.tid in blocked)) for t in with_stacks if _serves_call(t)]
        return next((found for found in others if not found[1].communicates), (main, place))
    if place.communicates:
        return main, place
    if place.delegated or _is_librarys(main, place, blocked):
        others = [(t, find(t.frames, t.tid in blocked)) for t in with_stacks]
        if place.op == "backward":  # its own threads are native: others only watch, or log
            others = [(t, p) for t, p in others if p.communicates or not _by_threading(t)]
        return _at_work(others) or (main, place)
    if _waits_for_lock(main, place) or native_program.joins(main.frames):
        others = [(t, find(t.frames, t.tid in blocked)) for t in with_stacks]
        between = (found for found in others if found[1].kind in _BETWEEN_RANKS)
        return next(between, (main, place))
    return main, place


def _serves_call(thread: ThreadSample) -> bool:
    """Whether it runs a function that another rank calls by RPC."""
    python = python_frames(thread.frames)
    return bool(python) and serves_calls(python[-1])


def serves_calls(outermost: Frame) -> bool:
    """Whether a stack that begins so is of a thread in which torch's RPC serves the calls of others."""
    return _SERVES_CALLS.search(outermost.file) is not None


def _is_librarys(main: ThreadSample, place: Place, blocked: Container[object]) -> bool:
    """Whether no line of the main thread is the user's, and it sleeps: a worker's own loop."""
    if place.kind != "code" or not (main.tid in blocked or main.state == "S"):
        return False
    return not any(is_users(frame) for frame in python_frames(main.frames))


def _by_threading(thread: ThreadSample) -> bool:
    """Whether Python's own `threading` started it."""
    python = python_frames(thread.frames)
    return bool(python) and python[-1].file.endswith("threading.py")


def _waits_for_lock(thread: ThreadSample, place: Place) -> bool:
    """Whether it waits for a lock, an event or a queue that another thread may serve."""
    python = python_frames(thread.frames)
    if not python or is_users(python[0]):
        return False
    of_lock = python[0].own_name in _LOCK_CALLS
    return place.kind == "queue" or (of_lock and python[0].file.endswith("/threading.py"))


def _at_work(others: Sequence[Placed]) -> Placed | None:
    """The thread that does the work that the main one waits for."""
    for thread, place in others:
        if place.communicates or place.kind in ("data", "checkpoint"):
            return thread, place
    # A training loop in a thread that is elsewhere: the one thread with a line of the user's own,
    # if there is just one.
    own = [(t, p) for t, p in others if p.frame is not None and is_users(p.frame)]
    return own[0] if len(own) == 1 else None
