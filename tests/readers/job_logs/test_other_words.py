"""Jobs in which every rank gives up in the same place, one of them over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RAISED = """[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/home/me/stream.py", line 44, in barrier
[rank{0}]:     raise TimeoutError(text)
[rank{0}]: {1}
"""


def job(*errors: str) -> str:
    lines = [RAISED.format(rank, error) for rank, error in enumerate(errors)]
    return f"world_size: {len(errors)}\n" + "".join(lines)


def waited(rank: int, key: str, count: int) -> str:
    return f"TimeoutError: rank {rank}: epoch3/{key}/order has {count} of 4 after 75 s"


def test_the_rank_that_waited_for_another_key_is_named(tmp_path: Path) -> None:
    keys = [("4dad2", 3), ("4dad2", 3), ("f5e2f", 1), ("4dad2", 3)]
    found = diagnosed(tmp_path, job(*(waited(r, *key) for r, key in enumerate(keys))))
    assert named(found) == [("mismatch", [2])] and found.status == "hang"
    assert "waited for 'f5e2f' in barrier (stream.py:44) until it gave up, where" in found.summary
    assert "ranks 0-1,3 waited for '4dad2'" in found.summary


@pytest.mark.parametrize(
    "errors",
    [
        [waited(r, "4dad2", 3) for r in range(4)],  # alike: a fifth may be missing
        [waited(r, f"part{r}", 1) for r in range(4)],  # each its own
        [waited(0, "4dad2", 3), waited(1, "4dad2", 2), waited(2, "4dad2", 3)],  # a count alone
        [waited(r, "4dad2" if r % 2 else "f5e2f", 2) for r in range(4)],  # two against two
        [f"KeyError: 'layer{max(r, 2)}'" for r in range(4)],  # no wait: each failed by itself
    ],
)
def test_no_rank_is_singled_out_where_none_differs_from_all_others(
    tmp_path: Path, errors: list[str]
) -> None:
    assert "mismatch" not in dict(named(diagnosed(tmp_path, job(*errors))))
