"""Times of day as people write them."""

from __future__ import annotations

import time

from ..errors import UsageError
from .late import late

_AGO = late(r"^([0-9]{1,6})([mhd])$")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")


def time_of(told: str, now: float) -> float:
    """The time of day that `30m`, `12h` or `7d` (before `now`) or a local time means; 0 for "".

    Raises:
        UsageError: it is none.
    """
    if not told:
        return 0.0
    if (ago := _AGO.match(told)) is not None:
        return now - int(ago[1]) * _SECONDS[ago[2]]
    for form in _FORMS:
        try:
            return time.mktime(time.strptime(told, form))
        except (ValueError, OverflowError):
            continue
    raise UsageError(
        f"'{told[:80]}' is not a time", "For example --since 7d, or --since 2026-11-22T03:10"
    )
