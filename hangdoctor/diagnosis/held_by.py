"""What holds a rank that is outside of all communication, as far as its process shows: a child, a
file, a lock, a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from ..model.capture import Frame, Process, ThreadSample
from ..stacks.user_code import is_outer, is_users
from ..text.late import late
from ..text.plain import cut_at_word
from . import findings as f
from . import pools
from .findings import Clue, Holding
from .view import RankView, all_states

_DEBUGGERS = late(r"(?:^|/)(?:(i?pdb|pudb)(?:/|\.py$)|IPython/.*debugger\.py$|(?:debugpy|pydevd)/)")
_ON_FILE = late(r"^(\w+)\((\d+) -> (.*)\)$", re.S)
_LOCK = late(r"\bwith\b|\.acquire\(|\.wait\(|\.join\(|\.get\(|\.result\(")
_PROBE = late(r"hangdoctor/probe/|multiprocessing/queues\.py")
_FETCH = "torch/utils/data/_utils/fetch.py"
_COMMAND = 80  # characters of a child's command line
_QUOTES = str.maketrans("", "", "\"'\\")
_WRITES = frozenset({"write", "writev", "pwrite64", "sendto", "sendmsg"})
_LOCKS = frozenset({"flock", "fcntl"})
_QUEUE = frozenset({"put", "get"})
_FUTURES = "concurrent/futures/"
_AT_QUEUE = 3  # innermost frames: the condition's, and the queue's around it
_FIFO_WAITS = frozenset({"wait_for_partner", "fifo_open"})


def find(view: RankView) -> Holding | None:
    """The nearest reason that the capture holds; None where the rank gets on, or nothing but its
    stack shows one.
    """
    if view.motion in ("moved", "looping", "running"):
        return None
    if view.lost_thread:
        return f.LostThread(view.lost_thread)
    for look in _LOOKS:
        held = look(view)
        if held is not None:
            return held
    return None


def clues(held: Holding | None, view: RankView) -> list[Clue]:
    """Evidence that belongs to the reason and is not shown elsewhere: the other threads of a rank
    that waits for a lock, at a queue or for the GIL.
    """
    if isinstance(held, f.OnLock | f.OnQueue) and held.threads:
        return [Clue("stack", (view.rank,), f.Threads(held.threads))]
    if isinstance(held, f.BehindThread):
        return [Clue("stack", (view.rank,), held)]
    return []


def _debugger(view: RankView) -> Holding | None:
    for frame in reversed(view.path):
        match = _DEBUGGERS.search(frame.file)
        if match is not None:
            return f.Debugger(match[1] or "a debugger")
    return None


def _file_call(view: RankView) -> tuple[str, str, str] | None:
    """(system call, descriptor, path) that the rank is blocked in."""
    match = _ON_FILE.match(view.thread.syscall) if view.thread is not None else None
    return (match[1], match[2], match[3]) if match is not None else None


def _typed_input(view: RankView) -> Holding | None:
    target = _file_call(view)
    code = view.path[-1].code if view.path else ""
    standard = target is not None and target[:2] == ("read", "0")
    return f.TypedInput() if standard or re.search(r"\binput\(", code) else None


def failed_child(view: RankView) -> Holding | None:
    """A child that ended badly or is stopped: what its parent waits for will not come."""
    target = _file_call(view)
    if target is not None and target[0] in _LOCKS:
        return None  # it waits for a file's lock, whatever became of its children
    for child in view.capture.children:
        if child.exit_code:
            return f.ChildEnded(child.pid, f.End(child.exit_code))
        if all_states(child, "Tt"):
            return f.ChildStopped(child.pid, child.tracer)
    return None


def worker(view: RankView) -> Holding | None:
    """The data-loader worker that is in the dataset's code; the idle ones wait for a task."""
    for child in view.capture.children:
        threads = child.samples[-1].threads if child.samples else []
        frame = next((at for t in threads if (at := _in_dataset(t.frames)) is not None), None)
        if frame is not None:
            return f.AtWorker(child.pid, frame)
    return None


def _in_dataset(frames: Sequence[Frame]) -> Frame | None:
    """The user's innermost frame of a worker that fetches a sample; None of any other process."""
    fetch = next((n for n, frame in enumerate(frames) if frame.file.endswith(_FETCH)), 0)
    inside = frames[:fetch]
    outer = next((frame for frame in inside if is_outer(frame)), None)
    return next((frame for frame in inside if is_users(frame)), outer)


def _child(view: RankView) -> Holding | None:
    """A living child that it waits for."""
    call = view.thread.syscall if view.thread is not None else ""
    living = [c for c in view.capture.children if not c.gone and c.ppid in (0, view.pid)]
    if not living or (view.place.kind != "child" and call not in ("wait4", "waitid")):
        return None
    child = next((c for c in view.capture.children if c.fills_pipe and not c.gone), living[-1])
    command = command_of(child.argv, child.name)
    frame, blocked = _where(child)
    by_subprocess = any(frame.file.endswith("/subprocess.py") for frame in view.path)
    return f.OnChild(
        child.pid,
        command,
        frame,
        blocked,
        by_subprocess=by_subprocess,
        unread=child.fills_pipe,
    )


def command_of(argv: Sequence[str], name: str) -> str:
    """A command line for a sentence: one line without quotes and without the program's folder, cut
    at a word; `name` where there is none.
    """
    words = " ".join(argv).translate(_QUOTES).split()
    if not words:
        return name
    words[0] = PurePath(words[0]).name or words[0]
    return cut_at_word(" ".join(words), _COMMAND)


def lock_file(view: RankView) -> str:
    """The path of the file whose lock a rank's thread waits for; "" where it waits for none."""
    target = _file_call(view)
    return target[2] if target is not None and target[0] in _LOCKS else ""


def _where(process: Process) -> tuple[Frame | None, str]:
    """The frame that a process is in, or else the system call."""
    last = process.samples[-1] if process.samples else None
    main = (
        next((t for t in last.threads if t.frames or t.syscall), None) if last is not None else None
    )
    if last is None or main is None:
        return None, ""
    if main.frames:
        return main.frames[0], ""
    return None, main.syscall if last.state in ("S", "D") else ""


def _file(view: RankView) -> Holding | None:
    """What is behind the descriptor of the call that it is blocked in."""
    if view.thread is not None and view.thread.wchan in _FIFO_WAITS:
        return f.OnFifo()
    target = _file_call(view)
    if target is None:
        return None
    call, number, path = target
    locks = call in _LOCKS
    lock = view.capture.lock if locks else None
    own = {view.pid, *(child.pid for child in view.capture.children)}
    return f.OnDescriptor(
        call,
        number,
        path,
        writes=call in _WRITES,
        locks=locks,
        own_lock=lock is not None and lock.pid in own,
    )


def at_lock(view: RankView) -> bool:
    """Whether the innermost line of its thread waits for a lock, an event, a thread or a queue."""
    inner = view.path[-1] if view.path else None
    if inner is None:
        return False
    return _LOCK.search(inner.code) is not None or inner.file.endswith("/threading.py")


def _lock(view: RankView) -> Holding | None:
    """Who holds a lock of threads cannot be read; what the other threads do shows it to a person."""
    thread = view.thread
    if thread is None or thread.syscall != "futex" or not view.path:
        return None
    if not at_lock(view):
        return None
    others = _other_threads(view, thread)
    if not _awaits_result(thread.frames):
        return f.OnLock(_threads(view, thread))
    pool = [other for other in others if _of_pool(other)]
    starved = bool(pool) and all(_awaits_result(other.frames) for other in pool)
    return f.OnLock(_threads(view, thread), result=True, starved=starved)


def _awaits_result(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits for what a task of a pool returns."""
    inner = frames[:_AT_QUEUE]
    return any(_FUTURES in x.file and x.own_name == "result" for x in inner)


def _of_pool(thread: ThreadSample) -> bool:
    return any(frame.file.endswith(_FUTURES + "thread.py") for frame in thread.frames)


def _queue(view: RankView) -> Holding | None:
    """`put` waits while the queue is full, `get` while it is empty; both in a condition."""
    if view.thread is None or view.thread.syscall != "futex":
        return None
    frames = view.path[-_AT_QUEUE:]
    at = next((x for x in frames if _at_queue(x)), None)
    if at is None or not view.path[-1].file.endswith("/threading.py"):
        return None
    return f.OnQueue(at.name.endswith("put"), _threads(view, view.thread))


def _at_queue(frame: Frame) -> bool:
    return frame.file.endswith("/queue.py") and frame.own_name in _QUEUE


def _threads(view: RankView, own: ThreadSample) -> tuple[tuple[str, Frame], ...]:
    """Name and place of the other threads."""
    return tuple((t.name or str(t.tid), own_frame(t)) for t in _other_threads(view, own))


def _other_threads(view: RankView, own: ThreadSample) -> list[ThreadSample]:
    others = [t for t in python_threads(view) if t.tid != own.tid]
    return [t for t in others if not any(_PROBE.search(frame.file) for frame in t.frames)]


def python_threads(view: RankView) -> list[ThreadSample]:
    """The threads of a rank with a stack, in the last sample that has stacks."""
    with_stacks = (
        s.threads for s in reversed(view.capture.samples) if any(t.frames for t in s.threads)
    )
    return [t for t in next(with_stacks, []) if t.frames]


def own_frame(thread: ThreadSample) -> Frame:
    """The frame of a thread that says most: the user's innermost, else one outside of `threading`."""
    own = next((frame for frame in thread.frames if is_users(frame)), None)
    return own or next(
        (frame for frame in thread.frames if not frame.file.endswith("threading.py")),
        thread.frames[0],
    )


_LOOKS: tuple[Callable[[RankView], Holding | None], ...] = (
    _debugger,
    _typed_input,
    failed_child,
    _child,
    pools.find,
    _file,
    _queue,
    _lock,
)
