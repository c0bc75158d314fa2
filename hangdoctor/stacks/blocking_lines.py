"""The system call that a thread which does not move is blocked in, by the text of its line, or by
the frames of Python's own library.

A box and a copied stack show no system call. Of lines only calls that block by themselves count: a
lock or a queue of Python's has frames or an owner of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.frame import Frame
from ..text.late import late
from .inner_wait import inner_wait

_FILE_LOCK = late(r"\b(?:fcntl\.)?(?:flock|lockf)\(")
_NON_BLOCKING = late(r"\bLOCK_(?:NB|UN)\b")
_SLEEP = late(r"\btime\.sleep\(|(?<![.\w])sleep\(")
_LOCKS = late(r"(?:^|/)(?:threading|queue)\.py$")
_QUEUES = late(r"(?:^|/)(?:queue|multiprocessing/queues)\.py$")
_LIBRARY = late(r"(?:^|/)(?:threading|queue|selectors|multiprocessing/\w+)\.py$")
_NEAR = 8  # frames above a queue's own
_WAITS = ("wait", "acquire", "get", "put", "join")
_OUTPUT = late(r"\.std(?:out|err)\.read(?:line|lines)?\(")


def blocking_call(code: str) -> str:
    """``flock``, ``clock_nanosleep``, ``read``; "" where the line has none of these, or two."""
    found = [call for call, holds in _CALLS if holds(code)]
    return found[0] if len(found) == 1 else ""


def waited_in(frames: Sequence[Frame]) -> str:
    """``waitid`` for a child process, ``queue.put`` and ``queue.get`` for a queue, ``futex`` for a
    lock or a thread of its own; "" of others. The innermost frame first.
    """
    for frame in frames[:_NEAR]:
        if not _LIBRARY.search(frame.file):
            break
        if _QUEUES.search(frame.file) and frame.own_name in ("get", "put"):
            return f"queue.{frame.own_name}"
    inner = inner_wait(frames)
    if inner is not None and inner.what in ("child", "thread"):
        return "waitid" if inner.what == "child" else "futex"
    first = frames[0] if frames else None
    own_lock = first is not None and _LOCKS.search(first.file) and first.own_name in _WAITS
    return "futex" if own_lock else ""


def _locks(code: str) -> bool:
    return _FILE_LOCK.search(code) is not None and _NON_BLOCKING.search(code) is None


_CALLS = (
    ("flock", _locks),
    ("clock_nanosleep", lambda code: _SLEEP.search(code) is not None),
    ("read", lambda code: _OUTPUT.search(code) is not None),
)
