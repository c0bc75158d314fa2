"""Work that does not end in time: whether it waited or ran meanwhile."""

from __future__ import annotations

import threading
import time

import pytest

from hangdoctor.time_limit import OutOfTime, within


def test_what_waits_is_told_apart_from_what_runs() -> None:
    end = threading.Event()

    def runs() -> None:
        while not end.is_set():
            time.monotonic()

    try:
        with pytest.raises(OutOfTime) as waited:
            within(0.5, lambda: end.wait(60))
        with pytest.raises(OutOfTime) as ran:
            within(0.5, runs)
    finally:
        end.set()
    assert waited.value.ran_s < 0.1
    assert ran.value.ran_s > 0.25, "on a processor, or in its queue"
