"""How a rank ended that its launcher has waited for, so that not even a zombie is left of it.

torchrun and torch.multiprocessing.spawn send SIGTERM to all other ranks as soon as they see one
fail. Where these run on, and SIGTERM ends each of them at once, that one ended with exit code 0.

Sources: `PContext.wait` in torch/distributed/elastic/multiprocessing/api.py, `ProcessContext.join`
in torch/multiprocessing/spawn.py.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import psutil

from ..text.plural import ranks
from .discover import Found
from .rank_environment import is_launcher

_OTHERWISE = ("SigBlk", "SigIgn", "SigCgt")  # man 5 proc: signals that do not end it at once
_BIT = 1 << (signal.SIGTERM - 1)
_UNREACHED = ("T", "t", "D", "Z", "X")  # states in which no signal ends it at once


def ended_well(living: Sequence[int]) -> bool:
    """Whether each of these processes runs and would have ended at SIGTERM."""
    return bool(living) and all(map(_ends_at_sigterm, living))


def _ends_at_sigterm(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        told = dict(line.split(":", 1) for line in lines if ":" in line)
        masks = [int(told[name], 16) for name in _OTHERWISE]
        return not any(mask & _BIT for mask in masks) and told["State"].split()[0] not in _UNREACHED
    except (OSError, KeyError, ValueError, IndexError):
        return False


def by_torchrun(living: Sequence[Found]) -> bool:
    """Whether one torchrun, which is there, started all of these."""
    parents = {found.ppid for found in living}
    if len(parents) != 1 or not all("TORCHELASTIC_RUN_ID" in found.environ for found in living):
        return False
    try:
        return is_launcher(psutil.Process(parents.pop()).cmdline())
    except psutil.Error:
        return False


def note(some: Sequence[int], launcher: str) -> str:
    """What shows that these ranks ended with exit code 0."""
    return (
        f"{ranks(some)} ended with exit code 0: of any other, {launcher} would have ended all ranks"
    )
