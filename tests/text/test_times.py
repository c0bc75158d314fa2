"""Times as people write them behind --since."""

from __future__ import annotations

import pytest

from hangdoctor.errors import UsageError
from hangdoctor.text.times import time_of


def test_since_is_a_time_or_how_long_ago() -> None:
    assert time_of("", 1e9) == 0 and time_of("2h", 1e9) == 1e9 - 7200
    assert time_of("2026-11-22T03:10", 0) - time_of("2026-11-22", 0) == 3 * 3600 + 600
    for wrong in ("yesterday", "7", "2026-13-01", "-1d"):
        with pytest.raises(UsageError, match="is not a time"):
            time_of(wrong, 0)
