"""Errors that a launcher or an engine met while it ended other processes: something had failed before, or the job
was over.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.frame import Frame
from ...text.late import late

_ENDS = late(
    r"_{0,2}(?:terminate|kill|stop|shut_?down|clean_?up|reap|destroy|close)_(?:[a-z]{1,20}_){0,2}"
    r"(?:procs?|process(?:es)?|process_tree|child|children|workers?|subprocess(?:es)?|trainers?|actors?|executors?)$"
)
_INNERMOST = 3  # frames
_AGENT = late(r"/torch/distributed/elastic/agent/")


def is_of_end(frames: Sequence[Frame]) -> bool:
    """Whether a traceback, innermost frame first, comes from the function that ends other processes."""
    return any(_ENDS.match(frame.name) for frame in frames[:_INNERMOST])


def is_agents(frames: Sequence[Frame]) -> bool:
    """Whether torchrun's agent raised it, which waits for the other agents and runs no rank."""
    return any(_AGENT.search(frame.file) for frame in frames)
