"""Stacks that a tool has merged into one tree: who is where, by rank or by number."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers import merged_stacks
from hangdoctor.readers.offline import read

TABLE = """\
Processes,Threads,Function
6,6,main (melt.c:31)
6,6,  PMPI_Waitall (pwaitall.c:80)
2,2,    ompi_request_default_wait_all (req_wait.c:280)
4,4,    opal_progress (opal_progress.c:231)
10,10,main (melt.c:37)
10,10,  PMPI_Allreduce (pallreduce.c:113)
"""
PADB = """\
-----------------
[0-1,3] (3 processes)
-----------------
main() at melt.c:37
  PMPI_Barrier() at ?:?
    opal_progress() at ?:?
-----------------
[2] (1 processes)
-----------------
main() at melt.c:31
  pour() at melt.c:12
"""
DOT = """\
digraph G {
	0 [pos="0,0", label="/", fillcolor="#fff"];
	1 [pos="0,0", label="main@melt.c:37", fillcolor="#fff"];
	2 [pos="0,0", label="PMPI_Barrier", fillcolor="#fff"];
	3 [pos="0,0", label="pour@melt.c:12", fillcolor="#fff"];
	0 -> 1 [label="4:[0-3](a)"];
	1 -> 2 [label="3:[0-1,3](b)"];
	1 -> 3 [label="1:[2](c)"];
}
"""


@pytest.mark.parametrize("text", [PADB, DOT], ids=["padb", "stat"])
def test_each_rank_of_a_group_has_its_stack(tmp_path: Path, text: str) -> None:
    stacks = {p.rank: [f.name for f in p.threads[0].frames] for p in merged_stacks.read(text)}
    assert stacks[2] == ["pour", "main"]
    assert [stacks[rank] for rank in (0, 1, 3)] == [["PMPI_Barrier", "main"]] * 3
    (tmp_path / "merged.txt").write_text(text)
    found = diagnose(read([tmp_path / "merged.txt"]))
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert "pour (melt.c:12)" in found.summary


def test_groups_of_which_only_the_number_is_known(tmp_path: Path) -> None:
    (tmp_path / "stacks.csv.txt").write_text(TABLE)
    found = diagnose(read([tmp_path / "stacks.csv.txt"]))
    assert found.status == "unknown" and found.causes == []
    assert "a group of 6 processes waits in MPI_Waitall in main (melt.c:31)" in found.summary
    assert "a group of 10 processes waits in MPI_Allreduce" in found.summary


@pytest.mark.parametrize(
    "text",
    ["Processes: 4\n1,2,three\n", "[0-3] (four processes)\nmain() at a.c:1\n", "a -> b [x]\n", ""],
)
def test_texts_that_are_no_merged_stacks(text: str) -> None:
    assert merged_stacks.read(text) == []


def test_stacks_of_glibc_behind_the_number_of_the_rank(tmp_path: Path) -> None:
    def dump(rank: int, call: str) -> str:
        frames = ("MPL_backtrace_show", "", call)
        lines = [f"[{rank}] /m/libmpi.so.12({name}+0x39) [0x7f64]\n" for name in frames]
        return f"[{rank}] [1.009] 1 pending requests\n{''.join(lines)}[{rank}] ./melt(main+0x91) [0x56]\n"

    text = dump(2, "MPI_Barrier") + dump(0, "MPI_Recv") + dump(1, "MPI_Barrier")
    (tmp_path / "hang.txt").write_text(text)
    found = diagnose(read([tmp_path / "hang.txt"]))
    assert "MPI_Barrier" in found.summary and "MPI_Recv" in found.summary
    assert merged_stacks.read(dump(0, "MPI_Recv")) == [], "of one rank alone it is left to others"


def test_ranks_beyond_all_bounds_take_no_memory() -> None:
    assert len(merged_stacks.read(PADB.replace("0-1,3", "0-999999"))) <= 4097


def of_program(ranks: str, *frames: str) -> str:
    lines = [f"melt{{{ranks}}}: #{n}  0x00001f in {frame}\n" for n, frame in enumerate(frames)]
    return "".join(lines)


LEAVES = ("pmi_join", "pmi_gather", "site_fence at fence.c:5", "PMPI_Finalize at pfinalize.c:46")


def test_frames_behind_the_ranks_of_a_program(tmp_path: Path) -> None:
    text = of_program("0..1,3", "poll", "PMPI_Barrier ()", "main () at melt.c:37")
    text += of_program("2", "pour at melt.c:12", "main at melt.c:31")
    (tmp_path / "all.txt").write_text(text)
    found = diagnose(read([tmp_path / "all.txt"]))
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert "pour (melt.c:12)" in found.summary


def test_a_last_stack_that_was_cut_blames_nobody(tmp_path: Path) -> None:
    text = of_program("4..5", *LEAVES, "main") + of_program("9", *LEAVES, "main")
    (tmp_path / "all.txt").write_text(text + of_program("7", *LEAVES[:3]))
    found = diagnose(read([tmp_path / "all.txt"]))
    assert (found.status, found.causes) == ("unknown", [])
    assert "MPI_Finalize" in found.summary


def test_one_rank_of_which_mpich_reports_that_it_does_not_get_on(tmp_path: Path) -> None:
    names = ("MPL_backtrace_show", "", "MPI_Allreduce")
    frames = "".join(f"[5] /m/libmpi.so.12({name}+0x39) [0x7f64]\n" for name in names)
    text = f"$ mpirun -l ./melt\n[5] [1.009] 1 pending requests in pool 0\n{frames}[5] ./melt(+0x91) [0x56]\n"
    (tmp_path / "job.log").write_text(text)
    found = diagnose(read([tmp_path / "job.log"]))
    assert found.causes == [] and "rank 5 in MPI_Allreduce" in found.summary
