"""Lines that were printed into one, told apart by the time with which every line of the file
begins.
"""

from __future__ import annotations

import pytest

from hangdoctor.readers.job_logs.glued_lines import GluedLines

CLOCK = [f"12:45:0{n}.389 INFO band{n} | step {n}" for n in range(8)]


def parted(line: str, sample: list[str]) -> list[str]:
    return list(GluedLines(sample).parted(line))


@pytest.mark.parametrize(
    "stamp", ["12:45:02.38{}", "[2026-11-27 12:45:0{}]", "2026-11-27T12:45:0{}Z"]
)
def test_a_second_time_begins_a_line(stamp: str) -> None:
    one, two = f"{stamp.format(1)} INFO band0 loaded", f"{stamp.format(2)} INFO band1 loaded"
    sample = [f"{stamp.format(n)} INFO step" for n in range(8)]
    assert parted(one + two, sample) == [one, two]
    assert parted(one, sample) == [one]


@pytest.mark.parametrize(
    "line",
    [
        "12:45:01.389 INFO started at 12:44:59.002, now at step 3",
        "12:45:01.389 INFO eta=12:44:59.002",
        "12:45:01.389 INFO window [12:44:59.002 12:45:00.102]",
        "12:45:01.389 INFO elapsed 112:44:59.002",
        "12:45:01.389 INFO run_12:44:59.002 or a|12:44:59.002 or @12:44:59.002",
    ],
)
def test_a_time_among_its_words_does_not(line: str) -> None:
    assert parted(line, CLOCK) == [line]


def test_a_second_object_of_json_is_another_line() -> None:
    one, two = '{"rank": 0, "at": {"step": 4}}', '{"rank": 1, "at": {"step": 4}}'
    assert parted(one + two, [one, two] * 3) == [one, two]
    assert parted(one, [one, two] * 3) == [one]


def test_where_few_lines_begin_so_nothing_is_parted() -> None:
    line = CLOCK[0] + CLOCK[1]
    assert parted(line, [*CLOCK[:3], "loss 1", "loss 2", "loss 3", "loss 4"]) == [line]
    assert parted("3 a3 b", ["1 a", "2 b"]) == ["3 a3 b"]
