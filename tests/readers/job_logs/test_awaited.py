"""A program's own time limit: its error says for which rank it waited, and that one is what to look
at.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named


def raised(rank: int, says: str, error: str = "HaloTimeout") -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/u/halo.py", line 80, in <module>',
        "    main()",
        '  File "/home/u/halo.py", line 61, in exchange',
        "    raise HaloTimeout(what)",
        f"halo.{error}: {says}",
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def test_the_rank_that_it_waited_for_is_named(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, raised(3, "step 300: no progress for 10 s: halo from rank 2"))
    assert (said.status, named(said)) == ("hang", [("not_entered", [2])]), said.summary
    assert "Rank 2 has not sent what rank 3 waited for until it gave up" in said.summary
    assert said.causes[0].confidence <= 0.6


def test_one_that_waited_itself_leads_on(tmp_path: Path) -> None:
    log = raised(4, "gave up: no data from rank 3 after 9 s") + raised(3, "no data from rank 1")
    assert named(diagnosed(tmp_path, log)) == [("not_entered", [1])]


@pytest.mark.parametrize(
    "log",
    [
        raised(3, "no answer from rank 2 in 10 s") + raised(2, "no answer from rank 3 in 10 s"),
        raised(3, "no answer from rank 2 or from rank 4 in 10 s"),
        raised(3, "bad header in shard of rank 2", error="ShardError"),
        raised(3, "no answer from rank 3 within 10 s"),
        raised(3, "no data for rank 2: 4 shards and 8 ranks", error="ValueError"),
        raised(3, "no data word in header from rank 2", error="ShardError"),
        raised(3, "timeout must be the same on all ranks: 30 s from rank 2", error="ConfigError"),
        raised(3, "no message for rank 2 in plan", error="KeyError"),
    ],
    ids=[
        *("a ring", "two ranks", "no wait", "of itself"),
        *("of a shard", "no seconds", "a setting", "a key"),
    ],
)
def test_else_the_first_error_stays(tmp_path: Path, log: str) -> None:
    said = diagnosed(tmp_path, log)
    assert all("waited for until it gave up" not in cause.summary for cause in said.causes)


def test_an_error_of_the_awaited_rank_comes_before_the_limit(tmp_path: Path) -> None:
    log = raised(2, "could not read shard 7", error="ShardError")
    log += raised(3, "no progress for 10 s: halo from rank 2")
    assert named(diagnosed(tmp_path, log)) == [("error", [2])]
