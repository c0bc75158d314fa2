"""What a paste lacks at its end is not said to be missing: lines of waits, rows of torchelastic's table."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

WAIT = (
    "[E ProcessGroupNCCL.cpp:563] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, "
    "OpType={}, NumelIn={}, NumelOut={}, Timeout(ms)=600000) ran for 600{} milliseconds before timing out.\n"
)
ROW = """[{0}]:
  time      : {1}
  host      : b2
  rank      : {0} (local_rank: {0})
"""
END = "  exitcode  : {0} (pid: 44{1})\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 44{1}\n"
HEAD = "train.py FAILED\n-----\nFailures:\n"
FIRST = "-----\nRoot Cause (first observed failure):\n"


def wait(rank: int, seq: int = 70, op: str = "ALLREDUCE", size: int = 8) -> str:
    return WAIT.format(rank, seq, op, size, size, 120 + rank)


def test_a_wait_that_is_cut_is_one(tmp_path: Path) -> None:
    whole = wait(0) + wait(2) + wait(4) + wait(5)
    line = wait(3)
    for end in ("OpType=ALLR", "OpType=ALLREDUCE, NumelIn=8", "ran for 600", "SeqNum=70, "):
        cut = line[: line.index(end) + len(end)]
        found = diagnosed(tmp_path, whole + cut)
        assert found.causes == [] and "ranks 0,2-5" in found.summary, cut
        assert "none of rank 1" in found.summary and "middle of a line" in found.summary
    found = diagnosed(tmp_path, whole + line)
    assert "the log has no such line of rank 1" in found.summary


def test_what_a_cut_line_lacks_is_no_other_size(tmp_path: Path) -> None:
    line = wait(3)
    cut = line[: line.index("NumelIn") + 9]
    assert diagnosed(tmp_path, wait(0) + wait(1) + wait(2) + cut).causes == []
    lone = wait(0)[: wait(0).index("LREDUCE")]
    assert diagnosed(tmp_path, lone).causes == [], "half a name is no operation"


def test_a_line_that_is_broken_in_two_is_read_once(tmp_path: Path) -> None:
    line = wait(3, size=9)
    at = line.index("NumelOut")
    broken = line[:at] + "\n" + line[at:]
    text = wait(0) + wait(1) + wait(2) + broken
    assert named(diagnosed(tmp_path, text)) == [("mismatch", [3])]


def test_the_first_observed_failure_whose_row_is_cut(tmp_path: Path) -> None:
    stamp = "2025-03-02_11:40:05"
    told = ROW.format(1, stamp) + END.format(-7, 1)
    found = diagnosed(tmp_path, HEAD + told + FIRST + ROW.format(0, stamp))
    assert found.causes[0].ranks == [0, 1] and "rank 1 killed by SIGBUS" in found.summary
    assert "row of rank 0" in found.summary and found.causes[0].nodes == ["b2"]
    whole = HEAD + told + FIRST + ROW.format(0, stamp) + END.format(-7, 0)
    assert "row of" not in diagnosed(tmp_path, whole).summary


def test_a_row_cut_in_the_middle_of_the_table(tmp_path: Path) -> None:
    stamp = "2025-03-02_11:40:05"
    cut, killed = ROW.format(2, stamp), ROW.format(3, stamp) + END.format(-9, 3)
    found = diagnosed(tmp_path, HEAD + cut + "...\n" + killed)
    assert found.causes[0].ranks == [2, 3] and "row of rank 2" in found.summary
    later = ROW.format(2, "2025-03-02_11:40:55")
    assert named(diagnosed(tmp_path, HEAD + killed + later)) == [("dead", [3])]
