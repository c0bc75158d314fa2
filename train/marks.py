"""Phase and iteration marks for hangdoctor's probe; nothing where the probe is not installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

_probe: Any = None
try:
    from hangdoctor import probe as _probe
except ImportError:
    pass

_NOTHING = nullcontext()


def phase(name: str) -> AbstractContextManager[Any]:
    """Mark what the rank is doing: data, forward, backward, reduce, pipeline, optimizer, checkpoint, evaluate."""
    return _NOTHING if _probe is None else _probe.phase(name)


def iteration(number: int) -> None:
    if _probe is not None:
        _probe.iteration(number)
