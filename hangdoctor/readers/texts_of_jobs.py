"""Texts of unknown form that a person keeps of a job: whether they speak of its ranks or processes at all."""

from __future__ import annotations

import re

from ..text.late import late

_NAMES = late(
    rb"\b(?:ranks?|tasks?|workers?|process(?:es)?|procs?|PEs?|GPUs?|pids?)\b[ #=:_]{0,3}[\[(]?\d"
    rb"|\bPID\b|<defunct>|\bMPI_[A-Z]|\bNCCL\b|\bmpi(?:run|exec)\b|\bsrun\b|\btorchrun\b|\bSIG[A-Z]{3,6}\b"
    rb"|\b(?:hostname|node(?:name)?)\b[ =:]{1,3}[\w.-]{2,60}",
    re.IGNORECASE,
)


def speaks_of_ranks(head: bytes) -> bool:
    """Whether the text names a rank, a process, a launcher or a node."""
    return _NAMES.search(head) is not None
