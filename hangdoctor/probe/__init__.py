"""Inside a rank: writes what it does into its black box (docs/blackbox.md).

    import hangdoctor.probe
    hangdoctor.probe.install()             # or: hangdoctor run -- CMD, without touching the code

    hangdoctor.probe.iteration(n)
    with hangdoctor.probe.phase("forward"):
        ...

Imports the standard library alone; torch is never imported, only hooked when the job has imported
it. Without `install` every function here does nothing. It never changes what the job computes,
returns, raises or prints.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # loaded by every Python below `hangdoctor run`: no more imports than needed
    from types import TracebackType
    from typing import Any

_installed = False
_state: Any = None  # hangdoctor.probe.process_probe.probe, loaded when there is something to record


def install() -> bool:
    """Hook torch.distributed, now or when it is imported; safe to repeat.

    Returns:
        Whether the probe is installed; False with HANGDOCTOR_DISABLE=1.
    """
    global _installed
    if os.environ.get("HANGDOCTOR_DISABLE", "") not in ("", "0"):
        return False
    if not _installed:
        _installed = True
        from . import hook

        hook.when_imported()
        if os.environ.get("HANGDOCTOR_TRACE"):
            from .process_probe import probe

            probe.trace_from_start()
    return True


def _load() -> Any:
    """The probe's state, or None while it is not installed."""
    global _state
    if _state is None and _installed:
        from .process_probe import probe

        _state = probe
    return _state


class _Phase:
    """What `phase` returns: leaving the block goes back to the phase before."""

    __slots__ = ("_before",)

    def __init__(self, before: str) -> None:
        self._before = before

    def __enter__(self) -> _Phase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        _state.set_phase(self._before)


class _NoPhase:
    __slots__ = ()

    def __enter__(self) -> _NoPhase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        return None


_NO_PHASE = _NoPhase()


def phase(name: str) -> _Phase | _NoPhase:
    """Say what the training does from now on ("forward", "evaluate", "checkpoint" ...); also ``with
    phase(name):``.
    """
    state = _state or _load()
    return _NO_PHASE if state is None else _Phase(state.set_phase(name))


def iteration(n: int) -> None:
    """Say which iteration begins."""
    state = _state or _load()
    if state is not None:
        state.set_iteration(n)


def micro_batch(n: int) -> None:
    """Say which micro-batch of the iteration begins."""
    state = _state or _load()
    if state is not None:
        state.set_micro_batch(n)


def event(kind: str, text: str = "", iteration: int | None = None) -> None:
    """Say once what the training saw of itself ("spike", "loss 14 at iteration 7020"): the sidecar
    keeps it and runs the operator's actions for it. Call it on one rank.

    Args:
        kind: a word that actions are chosen by, at most 23 bytes.
        text: a sentence for people, at most 199 bytes.
        iteration: the iteration that it is about, by default that of now.
    """
    state = _state or _load()
    if state is not None:
        state.add_event(kind, text, iteration)


def layout(dp: int, pp: int, tp: int) -> None:
    """Say how ranks map to data, pipeline and tensor parallel coordinates."""
    state = _state or _load()
    if state is not None:
        state.set_layout(f"dp={dp} pp={pp} tp={tp}")
