"""A traceback that the lines of another rank tore: the rest of its message stands behind them."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import caught

BEGIN = 'Traceback (most recent call last):\n  File "/job/model.py", line 167, in on_epoch_end\n    scores = metric.compute()\n             ^^^^^^^^^'
REST = "api.cpp:27, please report it. Can't find f: /lib64/libx.so.1: undefined symbol: f\n"
WAITED = caught(1, 63, size=1)


def test_the_rest_of_the_message_says_what_it_was(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, BEGIN + WAITED + REST)
    assert (found.status, named(found)) == ("failed", [("error", [])]), found.summary
    said = "failed first in on_epoch_end (model.py:167): a shared library is missing"
    assert said in found.summary and found.causes[0].confidence <= 0.5


def test_of_two_that_were_torn_nothing_shows_whose_it_is(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, BEGIN + "\n" + BEGIN + WAITED + REST)
    assert "an exception whose last line is missing" in found.summary


def test_what_another_rank_says_is_not_the_rest(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, BEGIN + WAITED + f"[rank1]: {REST}")
    assert "shared library" not in found.summary, found.summary


def test_a_connection_that_was_lost_is_not_the_rest(tmp_path: Path) -> None:
    lost = "The client socket has failed to connect to [n1]:47389 (errno: 110).\n"
    found = diagnosed(tmp_path, BEGIN + WAITED + lost)
    assert "an exception whose last line is missing" in found.summary, found.summary
