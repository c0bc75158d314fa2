"""The analyzer's older line, and the tables that it prints instead of blocks.

Texts by the formats of torch's own strings.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers import fr_trace_text
from tests.support.confined import confined
from tests.support.read_logs import diagnosed, named

OLDER = """\
Not all ranks joining collective: sequence number: 31117
internal record id: 31116
group info: 0:default_pg
collective: nccl:all_reduce
missing ranks: {3, 4}
input sizes: [[1571911]]
world size: 5
expected ranks: {0, 1, 2, 3, 4}
collective state: scheduled
"""
TABLE = """\
  --- Collectives ---
    id  group_id    pass_check  collective_seq_id  collective_name    collective_state  missing_ranks
     0  main_comm   True        0                  nccl:all_reduce    scheduled
     4  main_comm   True        4                  nccl:all_reduce    scheduled         {1}

  --- NCCL Calls ---
    id  collective_id  group_id   global_rank  collective_type
     0              0  main_comm            0  nccl:all_reduce
     1              0  main_comm            1  nccl:all_reduce
     2              0  main_comm            2  nccl:all_reduce
     8                 main_comm            0  nccl:all_reduce
     9                 main_comm            2  nccl:all_reduce
"""


def test_the_older_line(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, OLDER)) == [("not_entered", [3, 4])]


def test_the_rank_that_a_row_misses(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, TABLE)
    assert named(verdict) == [("not_entered", [1])]
    assert "all_reduce #4. Ranks 0,2 are waiting" in verdict.summary


def test_the_missing_are_members_though_not_listed_as_expected(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, OLDER.replace("{0, 1, 2, 3, 4}", "{0, 1, 2}"))
    assert named(said) == [("not_entered", [3, 4])]


def test_blocks_of_millions_are_refused_before_they_are_written_out(tmp_path: Path) -> None:
    block = OLDER.replace("{0, 1, 2, 3, 4}", "1999999")
    path = tmp_path / "analyzed.txt"
    path.write_text(block * 40)
    said = confined(lambda: fr_trace_text.read_file(path))
    assert "more members of groups than are read" in said
