"""Ranks that gave up waiting for one that had been killed before, by a log that does not say which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

KILLED = "/home/u/job.sh: line 9:  {} Killed                  RANK=$r python merge.py\n"
LATE = "TimeoutError: shard list of epoch 4 is not complete after 50 s"


def raised(rank: int, says: str = LATE) -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/u/merge.py", line 80, in <module>',
        "    main()",
        '  File "/home/u/merge.py", line 44, in await_shards',
        "    raise",
        says,
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def test_the_one_that_had_been_killed_is_named(tmp_path: Path) -> None:
    log = "epoch 3 done\n" + KILLED.format(17) + "".join(map(raised, (3, 0, 2)))
    found = diagnosed(tmp_path, log)
    assert (found.status, named(found)) == ("failed", [("dead", [1])]), found.summary
    assert "killed by SIGKILL" in found.summary


def test_of_several_that_are_missing_it_is_a_process(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, KILLED.format(17) + "".join(map(raised, (4, 1))))
    assert named(found) == [("dead", [])] and "Process 17" in found.summary, found.summary


@pytest.mark.parametrize(
    "log",
    [
        "".join(map(raised, (3, 0, 2))) + KILLED.format(17),
        KILLED.format(17)
        + "".join(raised(r, "ValueError: bad header in shard 7") for r in (3, 0, 2)),
    ],
    ids=["killed after them", "an error of their own"],
)
def test_else_the_errors_are_what_failed(tmp_path: Path, log: str) -> None:
    found = diagnosed(tmp_path, log)
    assert [kind for kind, _ in named(found)] == ["error"], found.summary
