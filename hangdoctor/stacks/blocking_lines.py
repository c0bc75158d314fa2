"""The system call that a thread which does not move is blocked in, by the text of its line.

A box and a copied stack show no system call. Only calls that block by themselves count: a lock or a
queue of Python's has frames or an owner of its own.
"""

from __future__ import annotations

from ..text.late import late

_FILE_LOCK = late(r"\b(?:fcntl\.)?(?:flock|lockf)\(")
_NON_BLOCKING = late(r"\bLOCK_(?:NB|UN)\b")
_SLEEP = late(r"\btime\.sleep\(|(?<![.\w])sleep\(")
_OUTPUT = late(r"\.std(?:out|err)\.read(?:line|lines)?\(")


def blocking_call(code: str) -> str:
    """``flock``, ``clock_nanosleep``, ``read``; "" where the line has none of these, or two."""
    found = [call for call, holds in _CALLS if holds(code)]
    return found[0] if len(found) == 1 else ""


def _locks(code: str) -> bool:
    return _FILE_LOCK.search(code) is not None and _NON_BLOCKING.search(code) is None


_CALLS = (
    ("flock", _locks),
    ("clock_nanosleep", lambda code: _SLEEP.search(code) is not None),
    ("read", lambda code: _OUTPUT.search(code) is not None),
)
