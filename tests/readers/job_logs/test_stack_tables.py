"""Tables of ranks and frames, as people write them from stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

DIST = "torch/distributed/distributed_c10d.py"


def table(*rows: tuple[str, str]) -> str:
    return "".join(f"{who}:   {where}\n" for who, where in rows)


WAITS = f"all_reduce   ({DIST}:2841)\n    sync (train.py:44)"
LOADS = "read_shard  (data.py:17)\n    batches (data.py:60)\n    main (train.py:66)"


@pytest.mark.parametrize("prefix", ["rank ", "Rank", "ranks ", "DP", "TP", "worker ", "- rank "])
def test_the_rank_that_is_elsewhere_in_a_table_is_named(tmp_path: Path, prefix: str) -> None:
    text = table((f"{prefix}0,1,3-7", WAITS), (f"{prefix}2", LOADS))
    found = diagnosed(tmp_path, text + "\nall the same 10 min later\n")
    assert named(found) == [("not_entered", [2])], found.summary
    assert "read_shard (data.py:17)" in found.summary
    assert named(diagnosed(tmp_path, text)) == [("not_entered", [2])], "at the end of the file"


@pytest.mark.parametrize(
    "text",
    [
        table(("rank 0-3", WAITS), ("rank 2", LOADS)),
        table(("rank 0-3", WAITS), ("DP2", LOADS)),
        table(("rank 0-3", WAITS)),
        table(("rank 0", WAITS), ("rank 1", LOADS)),
        "rank 0: loading a shard (data.py:17)\nrank 1: ready to sync (train.py:44)\n"
        "rank 2: ready to sync (train.py:44)\n",
    ],
    ids=["a rank twice", "two kinds of numbers", "one row", "two ranks", "words of a logger"],
)
def test_what_is_no_table_of_stacks_names_nobody(tmp_path: Path, text: str) -> None:
    assert named(diagnosed(tmp_path, "step 5 loss 0.3\n" + text)) == []


def test_a_failure_beside_a_table_is_what_counts(tmp_path: Path) -> None:
    error = '[rank5]: Traceback (most recent call last):\n[rank5]:   File "/app/t.py", line 5, in main\n[rank5]: ValueError: bad shard\n'
    text = table(("rank 0,1,3-7", WAITS), ("rank 2", LOADS))
    assert named(diagnosed(tmp_path, text + "\n" + error)) == [("error", [5])]
