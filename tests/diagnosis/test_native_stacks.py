"""What is said of programs without Python: which rank, or which process, is elsewhere than the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

BARRIER = "PMPI_Barrier () from /m/libmpi.so.12"
MAIN = "main (argc=1) at /u/app.c:30"


def stack(*names: str) -> str:
    return "\n".join(f"#{n}  0x1f in {name}" for n, name in enumerate(names)) + "\n"


WAITS = stack("sched_yield ()", BARRIER, "settle () at /u/app.c:12", MAIN)
FINAL = stack("read ()", "PMPI_Finalize () from /m/libmpi.so.12", "main (argc=1) at /u/app.c:44")
AT_WORK = stack("relax (n=4) at /u/grid.c:7", "main (argc=1) at /u/app.c:22")


def judged(folder: Path, **texts: str) -> Diagnosis:
    """Of texts by the names of their files."""
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return diagnose(read([folder / f"{name}.txt" for name in texts]))


def test_the_rank_that_is_in_its_own_code_is_named(tmp_path: Path) -> None:
    said = judged(tmp_path, rank0=WAITS, rank1=WAITS, rank2=AT_WORK)
    [cause] = said.causes
    assert (said.status, cause.kind, cause.ranks) == ("hang", "not_entered", [2])
    assert (
        "never reached MPI_Barrier in settle (app.c:12); it is in relax (grid.c:7)" in said.summary
    )
    assert "py-spy" not in cause.advice
    headed = judged(tmp_path, all=f"Rank 0:\n{WAITS}\nRank 1:\n{AT_WORK}\nRanks 2-3:\n{WAITS}")
    assert [c.ranks for c in headed.causes] == [[1]]


def test_ranks_that_all_wait_do_not_show_that_all_are_there(tmp_path: Path) -> None:
    said = judged(tmp_path, rank0=WAITS, rank1=WAITS)
    assert (said.status, said.causes, said.job.world_size) == ("unknown", [], 0)
    assert "ranks 0-1 wait in MPI_Barrier" in said.summary and "more ranks" in said.summary


def test_one_rank_in_its_own_code_alone_shows_no_hang(tmp_path: Path) -> None:
    said = judged(tmp_path, rank0=AT_WORK)
    assert said.status == "unknown" and "relax (grid.c:7)" in said.summary


def test_no_rank_is_made_up_where_none_is_named(tmp_path: Path) -> None:
    said = judged(tmp_path, stuck=AT_WORK, others=WAITS)
    [cause] = said.causes
    assert (said.status, cause.kind, cause.ranks, said.ranks) == ("hang", "not_entered", [], [])
    assert said.summary == (
        "The process of stuck.txt has not reached MPI_Barrier in settle (app.c:12), in which the process of "
        "others.txt waits; it is in relax (grid.c:7)."
    )
    by_pid = judged(tmp_path, all=f"gdb -p 811\n{WAITS}gdb -p 812\n{WAITS}gdb -p 813\n{AT_WORK}")
    assert by_pid.summary.startswith("Process 813 has not reached MPI_Barrier")
    assert "rank " not in by_pid.summary.lower()


def test_finalize_waits_for_who_is_still_inside(tmp_path: Path) -> None:
    inside = stack("sched_yield ()", "opal_progress ()", "opal_free_list_wait (f=1) at f.h:3")
    said = judged(tmp_path, inside=inside, leaving=FINAL)
    assert [c.kind for c in said.causes] == ["end_stall"]
    assert said.summary.startswith("The process of inside.txt is still in a call of MPI, while")
    assert any("opal_free_list_wait" in e.says for e in said.causes[0].evidence)


def test_waiters_alone_are_no_culprits(tmp_path: Path) -> None:
    one = judged(tmp_path, gdb=WAITS)
    assert (one.status, one.causes) == ("unknown", [])
    assert "the process of gdb.txt waits in MPI_Barrier in settle (app.c:12)" in one.summary
    receive = stack("poll ()", "MPI_Recv ()", "pull () at /u/app.c:9", MAIN)
    both = judged(tmp_path, a=WAITS, b=receive)
    assert (both.status, both.causes) == ("unknown", [])
    # A receive may wait for a third process.
    third = judged(tmp_path, a=AT_WORK, b=receive)
    assert (third.status, third.causes) == ("unknown", [])


def test_who_is_past_the_call_of_the_others_has_not_missed_it(tmp_path: Path) -> None:
    past = stack("relax (n=4) at /u/grid.c:7", "main (argc=1) at /u/app.c:41")
    said = judged(tmp_path, a=past, b=WAITS)
    assert (said.status, said.causes) == ("unknown", [])


def test_the_stack_of_a_crash_is_no_wait(tmp_path: Path) -> None:
    crash = "Program terminated with signal SIGSEGV, Segmentation fault.\n" + AT_WORK
    said = judged(tmp_path, core=crash)
    assert (said.status, said.causes) == ("unknown", [])
    assert "the process of core.txt was ended by SIGSEGV in relax (grid.c:7)" in said.summary


def test_calls_of_oneccl_by_their_names(tmp_path: Path) -> None:
    inside = stack(
        "ccl_executor::wait(ccl_request const*) () from /c/libccl.so.1",
        "ccl_allgather_impl(void const*, void*, unsigned long) () from /c/libccl.so.1",
        "train (n=4) at /u/train.cpp:7",
        MAIN,
    )
    said = judged(tmp_path, stuck=inside)
    assert said.status == "unknown" and "waits in ccl::allgather" in said.summary


HOOK = ("__lll_lock_wait ()", "pthread_mutex_lock ()", "ofi_watch_note () from /m/libfabric.so.1")
LOCKED = stack(*HOOK, "_hook_munmap () from /m/libopen-pal.so.80", "{inside}", "{call}", MAIN)


@pytest.mark.parametrize(
    ("inside", "where"),
    [
        ("malloc ()", "malloc"),
        ("__libc_free (p=0x1)", "free"),
        ("<signal handler called>", "a signal handler"),
    ],
)
def test_a_lock_inside_of_the_allocator_waits_for_no_process(
    tmp_path: Path, inside: str, where: str
) -> None:
    text = LOCKED.format(inside=inside, call="ofi_cache_find () from /m/libfabric.so.1")
    said = judged(tmp_path, stuck=text)
    assert f"in a lock inside of {where}" in said.summary
    assert "no other process" in said.summary and "MPI" not in said.summary


def test_a_rank_at_such_a_lock_keeps_the_others(tmp_path: Path) -> None:
    text = LOCKED.format(inside="realloc ()", call=BARRIER)
    said = judged(tmp_path, rank0=WAITS, rank1=text, rank2=WAITS)
    assert [cause.ranks for cause in said.causes] == [[1]]
    assert "a lock inside of realloc" in said.summary


def test_a_lock_of_the_library_may_be_held_in_a_wait(tmp_path: Path) -> None:
    said = judged(tmp_path, stuck=stack(*HOOK, "PMPI_Send () from /m/libmpi.so.12", MAIN))
    assert "waits in MPI_Send" in said.summary
    held = stack(
        "__lll_lock_wait ()", "pthread_mutex_lock ()", "uct_progress () from /m/libuct.so.0"
    )
    assert "a lock inside" not in judged(tmp_path, stuck=held + "#3  0x1f in main ()\n").summary


def test_a_frame_that_the_debugger_shows_again_is_no_second_stack(tmp_path: Path) -> None:
    again = "(gdb) frame 3\n#3  0x1f in main (argc=1) at /u/app.c:30\n30\t  settle(n);\n"
    said = judged(tmp_path, stuck=f"(gdb) bt\n{WAITS}{again}")
    assert "waits in MPI_Barrier" in said.summary and "stack 2" not in said.summary


TWO = stack(
    "epoll_wait ()", "ompi_coll_base_barrier_intra_two_procs () from /m/coll.so", BARRIER, MAIN
)
SYNC = stack(
    "opal_progress ()", "PMPI_File_sync () from /m/libmpi.so.12", "save () at /u/io.c:8", MAIN
)
SHUT = stack(
    "opal_progress ()", "PMPI_File_close () from /m/libmpi.so.12", "save () at /u/io.c:9", MAIN
)


def test_different_calls_that_wait_for_all_have_parted(tmp_path: Path) -> None:
    said = judged(tmp_path, one=SYNC, two=SHUT)
    assert said.causes == [] and "took different ways" in said.summary
    assert "MPI_File_sync" in said.summary and "MPI_File_close" in said.summary


def test_a_receive_beside_a_barrier_has_not_parted_from_it(tmp_path: Path) -> None:
    recv = stack("poll ()", "PMPI_Recv () from /m/libmpi.so.12", "pull () at /u/app.c:19", MAIN)
    assert "took different ways" not in judged(tmp_path, one=WAITS, two=recv).summary


def test_none_is_missing_where_all_that_are_shown_wait_in_one_call(tmp_path: Path) -> None:
    said = judged(tmp_path, one=WAITS, some_ranks=WAITS)
    assert said.causes == [] and "None of these is missing" in said.summary
    assert "the group of some_ranks.txt" in said.summary
    assert "is missing" not in judged(tmp_path, one=WAITS).summary


def test_a_call_of_two_processes_has_both(tmp_path: Path) -> None:
    said = judged(
        tmp_path, a=f"[ada@east ~]$ pstack 811\n{TWO}", b=f"[ada@west ~]$ pstack 92\n{TWO}"
    )
    assert "process 811 on east and process 92 on west" in said.summary
    assert said.causes == [] and "both are in it" in said.summary
    assert "all ranks" not in said.summary


def test_stacks_beside_a_log_are_read_too(tmp_path: Path) -> None:
    log = "step 10 loss 1.0\nstep 11 loss 0.9\n"
    (tmp_path / "job.out").write_text(log)
    (tmp_path / "notes.txt").write_text("nothing that is known\n")
    texts = {"rank0": WAITS, "rank1": WAITS, "rank2": AT_WORK}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    said = diagnose(read(sorted(tmp_path.iterdir())))
    assert [cause.ranks for cause in said.causes] == [[2]]
    assert any("notes.txt: no line of it is known" in note for note in said.notes)


def test_what_a_log_names_counts_more_than_stacks_without_ranks(tmp_path: Path) -> None:
    raised = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/u/t.py", line 3, in f\n[rank1]: ValueError: odd\n'
    (tmp_path / "job.out").write_text("step 1 loss 1.0\n" + raised)
    (tmp_path / "one.txt").write_text(WAITS)
    (tmp_path / "two.txt").write_text(WAITS)
    said = diagnose(read(sorted(tmp_path.iterdir())))
    assert (said.status, [cause.ranks for cause in said.causes]) == ("failed", [[1]])
    (tmp_path / "job.out").write_text("step 1 loss 1.0\nstep 2 loss 0.9\n")
    assert "wait in MPI_Barrier" in diagnose(read(sorted(tmp_path.iterdir()))).summary
