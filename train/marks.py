"""Phase and iteration marks for hangdoctor's probe; nothing where the probe is not installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

_probe: Any = None
with suppress(ImportError):
    from hangdoctor import probe as _probe

_NOTHING = nullcontext()


def phase(name: str) -> AbstractContextManager[Any]:
    """Mark what the rank is doing: data, forward, backward, reduce, pipeline, optimizer,
    checkpoint, evaluate.
    """
    return _NOTHING if _probe is None else _probe.phase(name)


def iteration(number: int) -> None:
    """Tell the probe which iteration begins; nothing without a probe."""
    if _probe is not None:
        _probe.iteration(number)


def micro_batch(number: int) -> None:
    """Which forward pass of the iteration begins, from 1."""
    if _probe is not None:
        _probe.micro_batch(number)


def event(kind: str, text: str, number: int) -> None:
    """Say once what the training saw of itself, at this iteration: the sidecar may act for it."""
    if _probe is not None:
        _probe.event(kind, text, number)


def layout(dp: int, pp: int, tp: int) -> None:
    """How ranks map to coordinates: a configuration file does not show on the command line."""
    if _probe is not None:
        _probe.layout(dp=dp, pp=pp, tp=tp)
