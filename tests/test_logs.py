"""A log that a flood cannot fill."""

from __future__ import annotations

import logging

from hangdoctor.clock import FakeClock
from hangdoctor.logs import _IN_ALL, _OF_A_KIND, Sparing


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def logger_of(clock: FakeClock) -> tuple[logging.Logger, Lines, Sparing]:
    lines = Lines()
    sparing = Sparing(lines, clock.monotonic)
    logger = logging.Logger("flooded")
    logger.addHandler(sparing)
    return logger, lines, sparing


def test_a_flood_of_one_kind_is_counted_and_said_once() -> None:
    clock = FakeClock()
    logger, lines, _ = logger_of(clock)
    for i in range(10_000):
        logger.info("peer %d is cut off", i)
    logger.info("something else")
    assert len(lines.said) == _OF_A_KIND + 1 and lines.said[-1] == "something else"
    clock.sleep(61)
    logger.info("later")
    left = 10_000 - _OF_A_KIND
    assert lines.said[-2:] == [
        f"{left} more lines like this were not logged: peer 0 is cut off",
        "later",
    ]
    logger.info("peer 7 is cut off")
    assert lines.said[-1] == "peer 7 is cut off", "the next one is written again"


def test_kinds_without_end_do_not_fill_it_either() -> None:
    clock = FakeClock()
    logger, lines, sparing = logger_of(clock)
    for i in range(5_000):
        logger.warning("".join(chr(97 + int(d)) for d in str(i)) + "!")
    assert len(lines.said) <= _IN_ALL and len(sparing._kinds) < 1000
    sparing.close()
    assert any("were not logged" in said for said in lines.said), "the end says what is missing"
