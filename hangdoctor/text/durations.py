"""How durations are written everywhere: docs/voice.md, "How things are written"."""

from __future__ import annotations

_TENTHS_BELOW_S = 10
_SECONDS_UP_TO_S = 120
_MINUTES_UP_TO_S = 7200


def duration(seconds: float) -> str:
    """``0.4 s``, ``2.5 s``, ``5 s``, ``41 s``, ``12 min``, ``3.2 h``."""
    if round(seconds, 1) < _TENTHS_BELOW_S:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    if seconds < _SECONDS_UP_TO_S:
        return f"{seconds:.0f} s"
    if seconds < _MINUTES_UP_TO_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
