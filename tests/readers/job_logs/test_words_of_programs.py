"""Reasons that programs print above an end: below a heading, with their own rank, and what a GPU or a network card
refused.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed

_ABORT = "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0\n"


def _said(tmp_path: Path, text: str) -> str:
    verdict = diagnosed(tmp_path, text)
    return "\n".join([verdict.summary, *(cause.advice for cause in verdict.causes)])


def test_a_line_below_a_heading_is_the_reason(tmp_path: Path) -> None:
    text = "lake model 4\nERROR:\nLakes::divide: at least 7 basins of water, or the other program\nFile: /x/lakes.cpp line: 81\n"
    said = _said(tmp_path, text + _ABORT)
    assert "Rank 0 failed first: it printed 'Lakes::divide: at least 7 basins" in said


def test_an_error_that_names_its_rank_is_that_ranks(tmp_path: Path) -> None:
    text = "".join(
        f"Error testing lakes on the card failed\nError rank {rank}: lakeAlloc failed: unknown error\n"
        for rank in (4, 5)
    )
    table = (
        "Primary job  terminated normally, but 1 process returned\n"
        "a non-zero exit code.. Per user-direction, the job has been aborted.\n"
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[471,1],5]\n  Exit code:    1\n"
    )
    said = _said(tmp_path, f"{text}Error: lakeInfo fails, unknown error\n{table}")
    assert "Rank 5 failed first: it printed 'Error rank 5: lakeAlloc failed: unknown error'" in said


def test_an_error_of_mpi_behind_the_rank_that_printed_it(tmp_path: Path) -> None:
    text = "  3: MPI_ERR_COUNT: invalid count argument\nterminate called after throwing an instance of 'LakeError'\n"
    said = _said(tmp_path, text)
    assert (
        "Rank 3 failed first: it called MPI wrongly (MPI_ERR_COUNT: invalid count argument)" in said
    )


def test_queues_of_a_network_card_are_no_memory_of_the_node(tmp_path: Path) -> None:
    text = "".join(
        f"[1600000000.10{pid}] [n7:{pid}:0]  ib_iface.c:90  UCX  ERROR ibv_create_srq(n=9) failed: Cannot allocate memory\n"
        f"[n7:{pid}] pml_ucx.c:30  Error: Failed to create UCP worker\n"
        for pid in (811, 812)
    )
    said = _said(tmp_path, text)
    assert "2 processes on n7 failed alike" in said
    assert "its network card gave it no further queue or key (ibv_create_srq)" in said
    assert "no lack of the node's memory" in said


def test_memory_of_the_node_stays_that(tmp_path: Path) -> None:
    said = _said(tmp_path, "[rank3]: OSError: [Errno 12] Cannot allocate memory\n")
    assert "did not get the memory that it asked the node for" in said


def test_a_full_gpu_above_the_ends_of_two_tasks(tmp_path: Path) -> None:
    text = (
        "Unhandled exception of type 'Oops' with message 'Cannot reserve 512 MiB as there is only 3 MiB free device memory left', terminating\n"
        "srun: error: n12: tasks 2,5: Exited with exit code 1\n"
        "srun: Terminating StepId=44.0\n"
        "srun: error: n12: tasks 0-1,3-4: Terminated\n"
    )
    said = _said(tmp_path, text)
    assert (
        "Rank 2 or 5 on n12 (the log does not show which) failed first: the GPU's memory is full"
        in said
    )


def test_a_full_gpu_above_the_abort_of_several_ranks(tmp_path: Path) -> None:
    text = "CUDA error !!!!! <out of memory> !!!!!\nat CUDA call error code: # 77\n" + "".join(
        f"Abort(1) on node {r} (rank {r} in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process {r}\n"
        for r in (1, 3)
    )
    said = _said(tmp_path, text)
    assert "Ranks 1,3 failed first: the GPU's memory is full" in said


def test_the_library_that_is_not_there_is_named(tmp_path: Path) -> None:
    line = "/x/lakes: error while loading shared libraries: libreeds.so.13: cannot open shared object file: No such file or directory\n"
    assert "a shared library is missing or of another version: libreeds.so.13" in _said(
        tmp_path, line * 3
    )


def test_a_bus_error_is_looked_for_in_shared_memory(tmp_path: Path) -> None:
    text = "[n7:811:0:811] Caught signal 7 (Bus error: nonexistent physical address)\n==== backtrace (tid: 811) ====\n"
    frames = " 0 0x0000000000055a45 lake_wait()  /x/lake.h:41\n 1 0x000000000040193e main()  /x/main.c:9\n"
    said = _said(tmp_path, text + frames)
    assert "in lake_wait (lake.h:41)" in said and "df /dev/shm" in said
    assert "Process 811 on n7 failed first" in said
    container = _said(tmp_path, (text + frames).replace("[n7:", "[8d6bf97c3bf4:"))
    assert "Process 811 on 8d6bf97c3bf4 failed first" in container


def test_the_stamp_of_a_library_is_none_of_its_words(tmp_path: Path) -> None:
    text = "[1600000000.1] [n7:811:0]   lake.c:3  UCX  ERROR lake_alloc() failed: Operation not supported\n"
    said = _said(tmp_path, text)
    assert "Process 811 on n7" in said and "'lake.c:3  UCX  ERROR lake_alloc() failed" in said


def test_what_jax_prints_below_a_programs_own_error_is_not_its_reason(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/job/orbits.py", line 60, in <module>\n    main()\n'
        '  File "/job/orbits.py", line 41, in next_block\n    raise ValueError("bad checksum")\n'
        "ValueError: bad checksum\n"
        "DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::4437574753115815085::0. This usually happens because a task "
        "triggered the barrier too early or too slowly.\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert [c.kind for c in verdict.causes] == ["error"]
    assert "ValueError in next_block (orbits.py:41): bad checksum" in verdict.summary
