"""Waits inside of compiled code, which leave no frame: only the user's line shows.

JAX runs ahead of its results: the next call of a compiled function waits for the collectives of the
last one. A line of the user's own code alone could as well wait for anything else, so that it takes
several ranks in one function, and JAX in the stack of any rank of the job, or in the memory of all;
without that, most ranks of a job at one line, of which none is in a communication that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import Frame, ThreadSample
from ..stacks.place_rules import Place
from ..stacks.place_search import HANDLE, TRANSFERS_BY_HANDLE, find_place, python_frames
from ..stacks.user_code import is_users
from ..text.late import late
from .position import counts
from .view import Look, RankView, motion_of

_JAX = late(r"(?:^|/)jax/(?:_src|experimental)/")
_CALLBACK = late(r"(?:^|/)jax/_src/callback\.py$")
_BARRIER = late(r"\bwait_at_barrier\(")
_KEY = late(r"\bblocking_key_value_get(?:_bytes)?\(")
_READY = late(r"\bblock_until_ready\(")  # compiled: it leaves no frame
_COMPILED = "compiled function"
_OF_TORCH = frozenset({*TRANSFERS_BY_HANDLE, HANDLE})
_A_TICK_S = 0.011  # of the kernel's clock: waking up now and then may cost one
_SIGN_OF_LIFE = 1024  # bytes: a coordinator asks now and then
_OTHER_WAITS = late(r"\bwith\b|\b(?:acquire|get|join|wait|result|recv|sleep)\(")


def settle(views: Sequence[RankView]) -> None:
    """Make it a wait for the device where several ranks block at one line of the user's; in one
    function of theirs where it is a job of JAX.
    """
    alive = [view for view in views if not view.gone]
    _settle_callbacks(alive)
    waiting = [view for view in alive if view.waits]
    none_waits = not waiting
    by_memory = all(view.capture.has_jax for view in alive) and all(map(asks_jax, waiting))
    jax = by_memory or any(_has_jax(view) for view in views)
    _settle_results(alive)
    at: dict[object, list[RankView]] = {}
    for view in alive:
        if _blocks_in_native_code(view):
            function = (view.path[-1].name, view.path[-1].file)
            at.setdefault(function if jax else (view.place.at, counts(view)), []).append(view)
    for together in at.values():
        most = 2 * len(together) > len(alive) > len(together)
        if len(together) > 1 and (jax or (most and none_waits)):
            for view in together:
                op = _COMPILED if jax else "native call"
                view.place = structs.replace(view.place, kind="device", op=op)


def all_in_jax(views: Sequence[RankView]) -> bool:
    """Whether each of these ranks waits in JAX: in a call of it, or for a compiled function."""
    return all(view.place.op == _COMPILED or _has_jax(view) or _at_barrier(view) for view in views)


def asks_jax(view: RankView) -> bool:
    """Whether its line waits for JAX's coordinator, whose client is compiled: no frame of JAX shows."""
    frame = view.place.frame
    return _at_barrier(view) or (frame is not None and _KEY.search(frame.code) is not None)


def _at_barrier(view: RankView) -> bool:
    """Whether its line waits there for all ranks, and not for a key that one of them sets."""
    frame = view.place.frame
    return frame is not None and _BARRIER.search(frame.code) is not None


def all_in_mpi(views: Sequence[RankView]) -> bool:
    """Whether each of these ranks, whose calls no box counts, waits in a call that its own line says."""
    return all(view.capture.ops is None and _is_own_call(view) for view in views)


def _is_own_call(view: RankView) -> bool:
    """Whether the user's own line is the call, and not the wait for a handle of torch's."""
    place = view.place
    if not place.communicates or place.op in _OF_TORCH or not view.path:
        return False
    return bool(view.path[-1].code) and is_users(view.path[-1])


def _settle_callbacks(alive: Sequence[RankView]) -> None:
    """Where compiled code of JAX calls back into the user's, a thread of XLA's runs that: a rank whose main thread
    waits for a result is where such a thread has been in all samples.
    """
    for view in alive:
        if view.path and not view.waits and _asks_result(view.path[-1]):
            thread = _in_callback(view)
            if thread is not None:
                view.thread, view.place = thread, find_place(thread.frames, blocked=True)
                view.motion = motion_of(view.capture, thread.tid)
                view.look = Look(python_frames(thread.frames)[::-1])


def _in_callback(view: RankView) -> ThreadSample | None:
    """The only thread of the last sample that is in a callback, if it has not left it since the first."""
    last = [t for t in view.capture.samples[-1].threads if _calls_back(t)]
    if len(last) != 1:
        return None
    stood = [t for s in view.capture.samples[:-1] for t in s.threads if t.tid == last[0].tid]
    same = all(_names(thread) == _names(last[0]) for thread in stood)
    return last[0] if stood and same else None


def _calls_back(thread: ThreadSample) -> bool:
    return any(_CALLBACK.search(frame.file) for frame in thread.frames)


def _names(thread: ThreadSample) -> list[tuple[str, str]]:
    return [(frame.name, frame.file) for frame in python_frames(thread.frames)]


def _settle_results(alive: Sequence[RankView]) -> None:
    """Make it a wait for the device where JAX itself waits for a result, in `float(loss)`: its wait
    wakes up a few times a second, so that the thread is not still. Where all ranks are in such a
    wait, their job may as well get on slowly: then nothing is changed, but where they are at different
    lines, have no GPU that could work, and nothing came in between the samples.
    """
    found = [(view, _result(view)) for view in alive]
    if all(place is not None for _, place in found) and not _none_gets_on(alive):
        return
    for view, place in found:
        if place is not None:
            view.place, view.motion = place, "still"


def _asks_result(innermost: Frame) -> bool:
    """Whether a frame waits for a result of JAX: one of its own, or the user's line that asks an array."""
    own_line = is_users(innermost) and _READY.search(innermost.code) is not None
    return own_line or _JAX.search(innermost.file) is not None


def _result(view: RankView) -> Place | None:
    """The wait for a result that it is in without having computed; None where it is in none."""
    thread = view.thread
    if thread is None or view.place.kind != "code" or view.motion != "stirred":
        return None
    if thread.syscall != "futex" or not view.path or not _asks_result(view.path[-1]):
        return None
    if thread.cpu_s > _cpu_before(view) + _A_TICK_S:
        return None
    if is_users(view.path[-1]):
        return structs.replace(view.place, kind="device", op=_COMPILED)
    place = find_place(thread.frames, blocked=True)
    return place if place.kind == "device" else None


def _none_gets_on(alive: Sequence[RankView]) -> bool:
    """Whether these ranks, which all wait for results of JAX, are at different lines and idle."""
    return len({view.place.at for view in alive}) > 1 and all(map(_is_idle, alive))


def _is_idle(view: RankView) -> bool:
    """Whether it has no GPU, and its connections brought no more than a sign of life."""
    first, last = view.capture.samples[0], view.capture.samples[-1]
    known = min(first.received, last.received) >= 0
    return view.capture.gpu == "none" and known and last.received - first.received < _SIGN_OF_LIFE


def _cpu_before(view: RankView) -> float:
    """CPU seconds of its thread at the first sample; less than any later one where not known."""
    tid = view.thread.tid if view.thread is not None else 0
    threads = view.capture.samples[0].threads
    return next((t.cpu_s for t in threads if t.tid == tid), -1.0)


def _has_jax(view: RankView) -> bool:
    threads = [t for sample in view.capture.samples for t in sample.threads]
    return any(_JAX.search(frame.file) for thread in threads for frame in thread.frames)


def _blocks_in_native_code(view: RankView) -> bool:
    """Whether its innermost frame is the user's, and its thread sleeps there in a lock."""
    if view.gone or view.place.kind != "code" or view.motion != "still" or not view.path:
        return False
    innermost, thread = view.path[-1], view.thread
    if thread is None or not _sleeps_in_lock(thread) or not is_users(innermost):
        return False
    return "(" in innermost.code and _OTHER_WAITS.search(innermost.code) is None


def _sleeps_in_lock(thread: ThreadSample) -> bool:
    """A heartbeat sees neither the state nor the system call of a thread that uses no CPU for long."""
    return thread.syscall == "futex" or not (thread.syscall or thread.state)
