"""py-spy's dump of one process alone, which shows no rank: none is made up for it."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed

DUMP = """\
Process {pid}: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    {inner}
    main (/app/train.py:52)
    <module> (/app/train.py:60)
"""
AT_WORK = "build (/app/attention.py:307)"
IN_CALL = "all_reduce (torch/distributed/distributed_c10d.py:2806)"


def test_it_is_called_a_process_and_no_rank(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, DUMP.format(pid=422, inner=AT_WORK))
    assert (found.status, found.causes) == ("unknown", [])
    assert "process 422 is in build (attention.py:307)" in found.summary
    assert "rank 0" not in found.summary and found.job.world_size == 0


def test_two_are_numbered_as_before(tmp_path: Path) -> None:
    both = DUMP.format(pid=422, inner=AT_WORK) + "\n" + DUMP.format(pid=423, inner=IN_CALL)
    found = diagnosed(tmp_path, both)
    assert [c.ranks for c in found.causes] == [[0]], found.summary
