"""What holds a rank that stands outside of all communication, as far as its process tells: a child, a file, a lock, a person."""

from __future__ import annotations

import re
import shlex
import signal

from msgspec import Struct

from ..model import Evidence, Process, ThreadSample
from .case import on_node, short
from .view import RankView, all_states

_DEBUGGERS = re.compile(r"(?:^|/)(?:(i?pdb|pudb)(?:/|\.py$)|IPython/.*debugger\.py$|(?:debugpy|pydevd)/)")
_ON_FILE = re.compile(r"^(\w+)\((\d+) -> (.*)\)$", re.S)
_LOCK = re.compile(r"\bwith\b|\.acquire\(|\.wait\(|\.join\(|\.get\(|\.result\(")
_PROBE = re.compile(r"hangdoctor/probe/|multiprocessing/queues\.py")
_THREADS = 4  # of a process, told one by one
_WRITES = frozenset({"write", "writev", "pwrite64", "sendto", "sendmsg"})
_LOCKS = frozenset({"flock", "fcntl"})


class Holding(Struct):
    """What a rank is held by. `words` go into the sentence: "its child 12 is dead (exit code 1)"; "" adds nothing to it."""

    advice: str
    words: str = ""
    evidence: list[Evidence] = []


def find(view: RankView) -> Holding | None:
    """The nearest reason that the capture holds; None where the rank gets on, or nothing but its stack tells."""
    if view.motion in ("moved", "looping", "running"):
        return None
    for look in (_debugger, _typed_input, failed_child, _child, _file, _lock):
        held = look(view)
        if held is not None:
            return held
    return None


def _debugger(view: RankView) -> Holding | None:
    inner = next((f for f in reversed(view.path) if _DEBUGGERS.search(f.file)), None)
    if inner is None:
        return None
    name = _DEBUGGERS.search(inner.file)
    tool = (name[1] if name else "") or "a debugger"
    at = f" at {short(view.place.frame)}" if view.place.frame is not None else ""
    return Holding(
        f"Take the breakpoint{at} out, or answer {tool} where the job's input is; PYTHONBREAKPOINT=0 switches breakpoint() off.",
        f"it stands in {tool}, which waits for a command",
    )


def _typed_input(view: RankView) -> Holding | None:
    target = _ON_FILE.match(view.thread.syscall) if view.thread is not None else None
    code = view.path[-1].code if view.path else ""
    standard = target is not None and target[1] == "read" and target[2] == "0"
    if not standard and not re.search(r"\binput\(", code):
        return None
    return Holding(
        "Nobody answers a rank: take the question out of the code, or start the job with its input from /dev/null.",
        "it waits for input, which nobody types",
    )


def failed_child(view: RankView) -> Holding | None:
    """A child that ended badly or is stopped: what its parent waits for will not come."""
    target = _ON_FILE.match(view.thread.syscall) if view.thread is not None else None
    if target is not None and target[1] in _LOCKS:
        return None  # it waits for a file's lock, whatever became of its children
    for child in view.capture.children:
        state = child.samples[-1].state if child.samples else ""
        if state == "Z" and child.exit_code:
            return Holding(
                f"Find out why process {child.pid} ended (the end of its log, dmesg -T | tail{on_node(view)}): who waits for it waits for ever.",
                f"its child {child.pid} is dead ({end_words(child.exit_code)})",
            )
        if all_states(child, "Tt"):
            how = f"held by process {child.tracer}" if child.tracer else "stopped"
            what = f"Let process {child.tracer} go on or detach" if child.tracer else f"Let it go on: kill -CONT {child.pid}"
            return Holding(f"{what}{on_node(view)}.", f"its child {child.pid} is {how}")
    return None


def end_words(code: int) -> str:
    """``exit code 1``, ``killed by SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _child(view: RankView) -> Holding | None:
    """A living child that it waits for."""
    call = view.thread.syscall if view.thread is not None else ""
    living = [c for c in view.capture.children if not c.gone and c.ppid in (0, view.pid)]
    if not living or (view.place.kind != "child" and call not in ("wait4", "waitid")):
        return None
    child = living[-1]
    name = shlex.join(child.argv)[:80] or child.name
    where = _stands(child)
    again = (
        "subprocess.run(..., timeout=S) turns this into an error."
        if any(f.file.endswith("/subprocess.py") for f in view.path)
        else ""
    )
    return Holding(
        f"Look at what process {child.pid}{on_node(view)} waits for ({name}); ending it lets the rank go on. {again}".rstrip(),
        f"it waits for its child {child.pid} ({name})" + (f", {where}" if where else ""),
    )


def _stands(process: Process) -> str:
    last = process.samples[-1] if process.samples else None
    main = next((t for t in last.threads if t.frames or t.syscall), None) if last is not None else None
    if main is None:
        return ""
    if main.frames:
        return f"which stands at {short(main.frames[0])}"
    return f"which is blocked in {main.syscall}" if last is not None and last.state in ("S", "D") else ""


def _file(view: RankView) -> Holding | None:
    """What is behind the descriptor of the call that it is blocked in."""
    thread = view.thread
    if thread is None:
        return None
    if thread.wchan in ("wait_for_partner", "fifo_open"):
        return Holding(
            f"It opens a FIFO that nobody has open at the other end: see the path that {_at(view)} opens, and start its reader or writer."
        )
    target = _ON_FILE.match(thread.syscall)
    if target is None:
        return None
    call, number, path = target.groups()
    return Holding(_of_descriptor(view, call, number, path))


def _of_descriptor(view: RankView, call: str, number: str, path: str) -> str:
    here, writes = on_node(view), call in _WRITES
    if path.startswith("pipe:["):
        what = "The pipe is full and nobody reads it" if writes else "Nobody writes into the pipe"
        inode = path[len("pipe:[") : -1]
        return f"{what}: see who has its other end{here}: ls -l /proc/*/fd 2>/dev/null | grep {inode}."
    if path.startswith("socket:["):
        what = "The other end of its connection takes nothing" if writes else "The other end of its connection sends nothing"
        return f"{what}: see who that is{here}: ss -tnp | grep pid={view.pid},fd={number}."
    if call in _LOCKS:
        return f"{path} is locked elsewhere: see by whom{here}: fuser -v {shlex.quote(path)}; the lock ends with its process."
    what = "takes nothing" if writes else "gives nothing"
    return f"{path} {what}: see what it is and who else has it open{here}: ls -l {shlex.quote(path)}; fuser -v {shlex.quote(path)}."


def _at(view: RankView) -> str:
    return short(view.place.frame) if view.place.frame is not None else "its stack"


def _lock(view: RankView) -> Holding | None:
    """Who holds a lock of threads cannot be read; what the other threads do tells it to a person."""
    thread = view.thread
    if thread is None or thread.syscall != "futex" or not view.path:
        return None
    inner = view.path[-1]
    if not (_LOCK.search(inner.code) or inner.file.endswith("/threading.py")):
        return None
    others = _other_threads(view, thread)
    if not others:
        return Holding(
            f"It waits for a lock at {_at(view)} and has no other Python thread that could release it: the lock was taken "
            "twice, or by a thread that has ended."
        )
    told = [f"{t.name or t.tid} at {short(_own(t))}" for t in others]
    more = f" and {len(told) - _THREADS} more" if len(told) > _THREADS else ""
    says = "its other Python threads stand: " + "; ".join(told[:_THREADS]) + more
    advice = f"It waits at {_at(view)} for another thread of its own: {'; '.join(told[:2])}. Find there who holds the lock."
    return Holding(advice, evidence=[Evidence("stack", [view.rank], says)])


def _other_threads(view: RankView, own: ThreadSample) -> list[ThreadSample]:
    threads = next((s.threads for s in reversed(view.capture.samples) if any(t.frames for t in s.threads)), [])
    return [t for t in threads if t.tid != own.tid and t.frames and not any(_PROBE.search(f.file) for f in t.frames)]


def _own(thread: ThreadSample) -> object:
    """The frame of a thread that says most: the innermost outside of Python's own threading."""
    return next((f for f in thread.frames if not f.file.endswith("threading.py")), thread.frames[0])
