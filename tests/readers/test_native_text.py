"""Native stacks as people paste them: frames, headings, and which process or rank each stack is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers import native_frames, native_headings
from hangdoctor.readers.native_text import parse, rank_of
from hangdoctor.readers.offline import read
from hangdoctor.stacks.rank_thread import rank_thread

POLLS = "#0  0x0000153a in poll () from /lib64/libc.so.6"


@pytest.mark.parametrize(
    ("line", "name", "place"),
    [
        ("#0  relax (n=4) at grid.cpp:140", "relax", "grid.cpp:140"),
        ("#2  0x1f in opal_progress () from /o/libopen-pal.so.40", "opal_progress", "/o/libopen-pal.so.40"),
        ("#5  0x1f in Box<Cell<int> >::move<Way<A> > (this=0x1) at b.C:9", "Box::move", "b.C:9"),
        ("#1  0x1f in (anonymous namespace)::run (x=1) at a.cc:3", "(anonymous namespace)::run", "a.cc:3"),
        ("#1  0x1f in Task::operator() (this=0x1) at a.cc:3", "Task::operator()", "a.cc:3"),
        ("#7  0x1f in operator<< <char> (o=..., s=1) at x.h:2", "operator<<", "x.h:2"),
        ("#3  0x1f in MPIR_Wait_impl.part.0 () from /m/libmpi.so.12", "MPIR_Wait_impl", "/m/libmpi.so.12"),
        ("#4  0x1f in ?? ()", "??", ""),
        ("#0  0x1f __poll - /usr/lib64/libc-2.17.so", "__poll", "/usr/lib64/libc-2.17.so"),
        ("  * frame #0: 0x1f halo`step(n=3) at halo.c:12:5 [opt]", "step", "halo.c:12"),
        ("    frame #2: 0x1f libmpi.40.dylib`MPI_Waitall + 104", "MPI_Waitall", "libmpi.40.dylib"),
    ],
)  # fmt: skip
def test_a_frame_of_each_tool(line: str, name: str, place: str) -> None:
    found = native_frames.read(line)
    assert found is not None
    assert (found.frame.name, found.frame.place) == (name, place)


@pytest.mark.parametrize(
    "line", ["#3 the third attempt", "# 4 steps", "#0-0 (ab12) INCOMPLETE", "frame #1: lost"]
)
def test_lines_that_only_begin_like_a_frame(line: str) -> None:
    assert native_frames.read(line) is None


def test_a_frame_that_was_wrapped_is_one() -> None:
    lines = [
        "#2  0x1f in send_all (fd=11, ",
        "    text=0x2) at link.c:15",
        "#3  0x1f in main ()",
        "    at app.c:4",
    ]
    assert list(native_frames.joined(lines)) == [
        "#2  0x1f in send_all (fd=11, text=0x2) at link.c:15",
        "#3  0x1f in main () at app.c:4",
    ]


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("Rank 3:", (3,)),
        ("=== rank 12 ===", (12,)),
        ("--- MPI rank 2 (pid 4899) ---", (2,)),
        ("==> rank0_gdb.txt <==", (0,)),
        ("Backtrace of rank 7", (7,)),
        ("Ranks 1-3:", (1, 2, 3)),
        ("ranks 1, 4:", (1, 4)),
        ("task 5 hangs here:", (5,)),
        ("STACK TRACE FOR PROC [[4032,1],6] (n2, PID 811)", (6,)),
        ("Rank 3 waits in a receive", ()),
        ("rank 0 is fine, the others are not", ()),
        ("Process 2", ()),
        ("local rank 2:", ()),
    ],
)
def test_a_number_is_a_ranks_where_a_heading_says_so(line: str, ranks: tuple[int, ...]) -> None:
    heading = native_headings.read(line)
    assert (heading.ranks if heading is not None else ()) == ranks


@pytest.mark.parametrize(
    ("name", "rank"), [("rank0", 0), ("gdb.rank-12", 12), ("task_3", 3), ("local_rank2", -1), ("frank2", -1), ("n3", -1)]
)  # fmt: skip
def test_the_rank_in_a_files_name(name: str, rank: int) -> None:
    assert rank_of(name) == rank


def stack(*names: str) -> str:
    return "\n".join(f"#{n}  0x1f in {name}" for n, name in enumerate(names)) + "\n"


CALL = "PMPI_Barrier () from /m/libmpi.so.12"
MAIN = "main (argc=1) at app.c:30"


def test_processes_are_told_apart_by_what_stands_between_their_stacks() -> None:
    one = stack("poll () from /lib64/libc.so.6", CALL, MAIN)
    by_command = f"$ gdb -p 71\n(gdb) bt\n{one}$ gdb -p 72\n(gdb) bt\n{one}"
    assert [p.pid for p in parse(by_command, "")] == [71, 72]
    by_order = f"(gdb) bt\n{one}\n(gdb) bt\n{one}"
    assert [p.pid for p in parse(by_order, "")] == [0, 0]
    detached = "".join(f"{one}[Inferior 1 (process {pid}) detached]\n" for pid in (7, 8))
    assert [p.pid for p in parse(detached, "")] == [7, 8]
    numbered = parse(f"Process 1\n{one}Process 2\n{one}", "")
    assert [(p.number, p.rank, p.pid) for p in numbered] == [(1, -1, 0), (2, -1, 0)]


def test_all_threads_are_of_one_process_and_the_first_is_its_main_one() -> None:
    one = stack("poll () from /lib64/libc.so.6", MAIN)
    threads = "".join(f"Thread {n} (Thread 0x7f (LWP {90 - n})):\n{one}" for n in (3, 2, 1))
    [process] = parse(f"Attaching to process 89\n{POLLS}\n(gdb) thread apply all bt\n{threads}", "")
    assert process.pid == 89 and len(process.threads) == 3
    assert process.threads[-1].name == "MainThread"


def test_a_frame_that_was_shown_alone_is_no_stack_of_its_own() -> None:
    [process] = parse(f"{POLLS}\n(gdb) bt\n{stack('poll () from /lib64/libc.so.6', MAIN)}", "")
    assert [frame.name for frame in process.threads[0].frames] == ["poll", "main"]


def test_a_process_that_was_let_run_is_a_later_sample() -> None:
    first, second = stack("step () at a.c:3", MAIN), stack("step () at a.c:5", MAIN)
    [process] = parse(f"{first}(gdb) c\nContinuing.\n^C\n(gdb) bt\n{second}", "")
    assert process.earlier[0].frames[0].line == 3 and process.threads[0].frames[0].line == 5


def test_launchers_are_no_ranks(tmp_path: Path) -> None:
    listed = f"me  71  60  1 09:54 pts/0  00:00:00 mpirun -np 3 ./app\n$ gdb -p 71\n{POLLS}\n"
    with pytest.raises(BadInput, match="launchers"):
        parse(listed, "")
    with pytest.raises(BadInput):
        parse(stack("poll ()", "orterun (argc=4) at orterun.c:133", "main () at main.c:13"), "")
    rank = stack("step () at a.c:3", MAIN)
    assert [p.pid for p in parse(f"{listed}$ gdb -p 72\n(gdb) bt\n{rank}", "")] == [72]


@pytest.mark.parametrize(
    ("frames", "kind", "op"),
    [
        (["poll ()", CALL, MAIN], "collective", "MPI_Barrier"),
        (["poll ()", CALL, "pmpi_barrier_ () from /m/libmpifort.so.12", "heat () at heat.f90:61"], "collective", "MPI_Barrier"),
        (["opal_progress ()", "ompi_coll_base_allreduce_intra_ring (n=1) at c.c:9"], "collective", "MPI_Allreduce"),
        (["MPIC_Wait ()", "MPIR_Bcast_intra_binomial () from /m/libmpi.so.12"], "collective", "MPI_Bcast"),
        (["opal_progress ()", "mca_pml_ob1_recv (n=1)", "MPI_Recv ()", MAIN], "p2p", "MPI_Recv"),
        (["read ()", "PMI2_KVS_Fence ()", "ompi_mpi_finalize ()", "PMPI_Finalize ()", MAIN], "end", "MPI_Finalize"),
        (["connect ()", "PMPI_Init ()", MAIN], "start", "MPI_Init"),
        (["opal_progress ()", "opal_free_list_wait (fl=0x1) at f.h:3", "post_all (e=1) at btl.h:7"], "collective", "a call of MPI"),
        (["?? () from /m/libmpi.so.40", "?? () from /m/libmpi.so.40"], "collective", "a call of MPI"),
        (["sched_yield ()", "ncclGroupEnd () from /n/libnccl.so.2", "train () at t.cu:8", MAIN], "collective", "ncclGroupEnd"),
        (["poll ()", "ncclCommInitRank () from /n/libnccl.so.2", MAIN], "start", "ncclCommInitRank"),
        (["?? () from /d/libcuda.so.1", "cudaStreamSynchronize () from /d/libcudart.so.12", MAIN], "device", "cudaStreamSynchronize"),
        (["?? () from /d/libcuda.so.1", "own (x=1) at t.cu:3", MAIN], "device", "GPU driver"),
        (["poll ()", "gloo::transport::tcp::Pair::recv ()", "gloo::allreduce (o=...) at a.cc:3", MAIN], "collective", "gloo allreduce"),
        # The program's own code, also where it calls MPI for something that does not wait.
        (["relax (n=1) at grid.c:3", MAIN], "code", ""),
        (["read ()", "fill (n=1) at cfg.c:3", MAIN], "code", ""),
        (["PMPI_Wtime ()", "step () at a.c:3", MAIN], "code", ""),
        (["sleep ()", "PMPI_Abort ()", "fail () at a.c:3", MAIN], "code", ""),
        (["fi_integrate (n=1) at fluid.c:3", MAIN], "code", ""),
        # Not known: cut off, or without names.
        (["poll () from /lib64/libc.so.6"], "", ""),
        (["?? ()", "?? ()", MAIN], "", ""),
    ],
)  # fmt: skip
def test_the_place_of_a_native_stack(frames: list[str], kind: str, op: str) -> None:
    [process] = parse(stack(*frames), "")
    _, place = rank_thread(process.threads)
    assert (place.kind, place.op) == (kind, op)


def test_a_stack_without_its_innermost_frames_shows_no_place() -> None:
    [process] = parse("#3  0x1f in step () at a.c:3\n#4  0x1f in main () at a.c:9\n", "")
    assert rank_thread(process.threads)[1].kind == ""


def test_a_thread_that_is_joined_shows_where_the_rank_is() -> None:
    worker = "Thread 2 (LWP 8):\n" + stack(
        "poll ()", CALL, "work (x=1) at w.c:3", "start_thread ()"
    )
    main = "Thread 1 (LWP 7):\n" + stack("pthread_join ()", "run () at r.c:3", MAIN)
    [process] = parse(worker + main, "")
    assert rank_thread(process.threads)[1].op == "MPI_Barrier"
    # A thread of the library's own is none.
    helper = "Thread 2 (LWP 8):\n" + stack("epoll_wait ()", "opal_event_loop ()", "start_thread ()")
    [process] = parse(helper + "Thread 1 (LWP 7):\n" + stack("relax () at r.c:3", MAIN), "")
    assert rank_thread(process.threads)[1].kind == "code"


def test_pythons_own_frames_under_gdb_are_not_the_programs() -> None:
    [process] = parse(stack("poll ()", "_PyEval_EvalFrameDefault (f=1) at c.c:3", "main ()"), "")
    assert rank_thread(process.threads)[1].kind == ""


def test_the_launchers_command_line_shows_the_size(tmp_path: Path) -> None:
    text = f"mpirun -np 4 ./heat\nrank 0:\n{stack('poll ()', CALL, MAIN)}"
    (tmp_path / "all.txt").write_text(text)
    capture = read([tmp_path / "all.txt"])
    assert (capture.world_size, capture.part, capture.names) == (4, False, [])
    (tmp_path / "all.txt").write_text(text.partition("\n")[2])
    assert read([tmp_path / "all.txt"]).part


def test_two_files_that_name_one_rank_name_none(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a-rank0.txt", "b-rank0.txt")]
    for path in paths:
        path.write_text(stack("poll ()", CALL, MAIN))
    assert len(read(paths).names) == 2
