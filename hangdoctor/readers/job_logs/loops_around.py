"""The loops around the lines at which ranks waited, where this machine has the program that a
traceback shows: a phase of a step that goes all its rounds by itself is told from one that is
called for each.
"""

from __future__ import annotations

from msgspec import structs

from ...model.frame import Frame
from ...model.log_facts import JobLogs, PythonError
from ...stacks.user_code import is_users
from ...text import redaction
from .. import rank_conditions, retry_loops
from .. import source_lines as sources

_WAITS = ("gloo_timeout", "peer_closed")  # rules of errors
_MOST = 512  # tracebacks


def add_loops(logs: JobLogs) -> None:
    """To the frames of the user's, in place; the file is the one that ran if the line is the same."""
    errors = [f for f in logs.facts if isinstance(f, PythonError) and f.rule in _WAITS]
    for error in errors[:_MOST]:
        error.frames = [_with_loop(frame) for frame in error.frames]


def _with_loop(frame: Frame) -> Frame:
    if not frame.code or not is_users(frame) or not frame.file.startswith("/"):
        return frame
    if sources.line(frame.file, frame.line) != frame.code.strip():
        return frame
    lines = sources.lines(frame.file)
    return structs.replace(
        frame,
        counts=retry_loops.counted(lines, frame.line),
        turns=retry_loops.begins(lines, frame.line),
        only=redaction.code(rank_conditions.condition(lines, frame.line)),
    )
