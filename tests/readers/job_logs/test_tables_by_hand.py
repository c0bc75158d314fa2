"""Tables of ranks and places as people print or write them."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

MOST = "ranks [0, 1, 3]  stopped at  grid.py:88 in reduce_all\n       via  halo.py:40 in exchange\n       via  step.py:17 in advance\n"
ODD = "rank  [2]        stopped at  step.py:25 in advance\n"


def test_one_that_took_another_way_in_the_function_of_all(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, {"report.txt": MOST + ODD + "\n=> look at rank 2\n"})
    assert (found.status, named(found)) == ("hang", [("not_entered", [2])])
    assert "step.py:25" in found.summary and "line 17 of advance" in found.summary


def test_tables_that_name_nobody(tmp_path: Path) -> None:
    elsewhere = ODD.replace("step.py:25 in advance", "other.py:4 in load")
    two = ODD.replace("[2]", "[2, 4, 5]")
    gap = ODD.replace("[2]", "[7]")
    for odd in (elsewhere, two, gap):
        assert diagnosed(tmp_path, {"report.txt": MOST + odd}).causes == [], odd
    plain = (MOST + ODD).replace("stopped at", ":")
    assert diagnosed(tmp_path, {"report.txt": plain}).causes == [], "they may have moved"
    error = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "a.py", line 2, in f\n[rank0]: ValueError: bad\n'
    assert named(diagnosed(tmp_path, {"report.txt": MOST + ODD + error})) == [("error", [0])]


def test_a_collective_in_a_table_below_a_head(tmp_path: Path) -> None:
    table = "| rank | host | where |\n|---|---|---|\n"
    rows = "".join(
        f"| {rank} | n{rank} | all_reduce (torch/distributed/distributed_c10d.py:2841) |\n"
        for rank in (0, 1, 3)
    )
    odd = "| 2 | n2 | read_batch (data.py:40) |\n"
    found = diagnosed(tmp_path, {"notes.md": table + rows + odd})
    assert named(found) == [("not_entered", [2])] and found.causes[0].nodes == ["n2"]
