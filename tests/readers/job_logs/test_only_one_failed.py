"""An error's line without a tag, and what else in the logs tells whose it is: launchers' words on who ended,
MPICH's on the same node, the file that tail shows. Where several can have said it, they are given as such.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RAISED = """\
Traceback (most recent call last):
  File "/job/fit.py", line 88, in <module>
    main()
  File "/job/fit.py", line 51, in main
    cfg.check()
ValueError: 3 heads do not divide 64
"""
TORCHRUN = "E0505 21:53:43.59 23 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /bin/python\n"
SIGTERM = "W0505 21:53:43.02 23 torch/distributed/elastic/multiprocessing/api.py:858] Sending process {} closing signal SIGTERM\n"
SRUN = "srun: error: {}: task {}: Exited with exit code {}\n"
ABORT = "MPI_ABORT was invoked on rank {} in communicator MPI_COMM_WORLD\nwith errorcode 7.\n"
FORTRAN = "forrtl: severe (174): SIGSEGV, segmentation fault occurred\n"


@pytest.mark.parametrize(
    ("end", "who"),
    [
        (TORCHRUN.format(code=1, local=2, pid=71), "Rank 2"),
        (SRUN.format("n4", 6, 1), "Rank 6 (n4)"),
        (SRUN.format("n4", 6, 1).replace("srun", "yhrun"), "Rank 6 (n4)"),
        (ABORT.format(5), "Rank 5"),
    ],
)
def test_the_only_text_is_of_the_only_one_that_failed(tmp_path: Path, end: str, who: str) -> None:
    found = diagnosed(tmp_path, RAISED + end)
    assert found.summary.startswith(f"{who} failed first: ValueError in main (fit.py:51)")


def test_also_where_another_file_names_it(tmp_path: Path) -> None:
    left = "prterun has exited due to process rank 5 with PID 31 on node n8 calling\n"
    found = diagnosed(tmp_path, {"a.log": RAISED, "mpi.log": ABORT.format(5) + left})
    assert found.summary.startswith("Rank 5 (n8) failed first: ValueError"), found.summary


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        ("$ torchrun --nproc_per_node 1 fit.py", True),
        ("$ torchrun --nnodes 1 --nproc-per-node=1 fit.py", True),
        ("$ torchrun --nnodes 2 --nproc-per-node=1 fit.py", False),
        ("$ torchrun --nproc-per-node=16 fit.py", False),
        ("$ mpirun -np 1 ./fit --size 1", True),
        ("$ mpirun -np 1 ./fit : -np 3 ./feed", False),
        ("$ mpirun -np 12 ./fit -n 1 --fast", False),
        ("$ mpirun --bind-to core -x PATH -np 1 ./fit", True),
        ("$ srun -n 1 python fit.py", True),
        ("$ python fit.py -n 1 --use mpirun", False),
    ],
)
def test_a_job_of_one_process(tmp_path: Path, command: str, alone: bool) -> None:
    found = diagnosed(tmp_path, f"{command}\n{RAISED}")
    assert found.causes[0].ranks == ([0] if alone else []), found.summary


def test_the_output_of_another_nodes_launcher_is_none_of_its_ranks(tmp_path: Path) -> None:
    end = TORCHRUN.format(code=1, local=2, pid=71)
    found = diagnosed(tmp_path, {"a.log": RAISED + SIGTERM.format(55), "b.log": end})
    assert not any(c.ranks and "ValueError" in c.summary for c in found.causes), found.summary
    found = diagnosed(tmp_path / "pasted", {"a.log": RAISED, "b.log": end})
    assert found.summary.startswith("Rank 2 failed first: ValueError"), found.summary


@pytest.mark.parametrize(
    "text",
    [
        SRUN.format("n4", 6, 1) + RAISED,  # it was said later
        RAISED + SRUN.format("n4", 6, 143),  # it was asked to end
        RAISED + "RuntimeError: another one\n" + SRUN.format("n4", 6, 1),
        RAISED + "Segmentation fault (core dumped)\n" + SRUN.format("n4", 6, "x"),
        RAISED + ABORT.format(5) + ABORT.format(6),
        RAISED + "[rank1]: step 4\n" + "exits with return code = 1 --local_rank=3\n",
    ],
)
def test_where_nothing_shows_whose_it_is(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, text)
    assert not any(cause.ranks and "ValueError" in cause.summary for cause in found.causes)


def test_an_exit_code_of_fortrans_is_no_signal(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, FORTRAN + SRUN.format("n4", 6, 174))
    assert named(found) == [("error", [6])] and found.causes[0].nodes == ["n4"]
    assert "signal 46" not in str(found)


def test_a_crash_is_not_of_who_exited_otherwise(tmp_path: Path) -> None:
    crash = "Program received signal SIGSEGV: Segmentation fault - invalid memory reference.\n"
    killed = "srun: error: n4: task 6: Segmentation fault\n"
    assert named(diagnosed(tmp_path, crash + killed)) == [("dead", [6])]
    found = diagnosed(tmp_path, crash + SRUN.format("n4", 6, 1))
    assert all(cause.kind != "dead" or not cause.ranks for cause in found.causes), found.summary


def test_what_a_launcher_raises_is_no_ranks(tmp_path: Path) -> None:
    agent = RAISED.replace(
        "/job/fit.py", "/v/site-packages/torch/distributed/elastic/agent/server/api.py"
    )
    found = diagnosed(tmp_path, agent + SRUN.format("n4", 6, 1))
    assert found.causes[0].ranks == [] and "which runs no rank" in found.summary
    server = RAISED.replace(
        "/job/fit.py", "/v/site-packages/sglang/srt/managers/detokenizer_manager.py"
    )
    assert diagnosed(tmp_path, server).summary.startswith("SGLang's detokenizer, which runs no")
    found = diagnosed(tmp_path, RAISED.replace("main()", "sglang.detokenizer()"))
    assert found.summary.startswith("A rank (the log does not show which)")


def test_uncaught_alike_of_several_processes(tmp_path: Path) -> None:
    """Python itself prints such a traceback once a process; the launcher ended the others."""
    end = SIGTERM.format(70) + TORCHRUN.format(code=1, local=1, pid=71)
    found = diagnosed(tmp_path, RAISED * 3 + end)
    assert found.summary.startswith("Rank 1 and 2 more failed alike"), found.summary
    assert found.causes[0].confidence < 0.9
    caught = RAISED.replace("<module>", "wrapper")
    assert diagnosed(tmp_path, caught * 3 + end).summary.startswith("Rank 1 failed first")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("3 more processes have sent help message help-mpi-api.txt / mpi-abort", "and 3 more"),
        ("1 more process has sent help message help-mpi-api.txt / mpi-abort", "and 1 more"),
        ("3 more processes have sent help message help-btl.txt / no device", "called MPI_Abort"),
    ],
)
def test_others_that_open_mpi_counts(tmp_path: Path, more: str, words: str) -> None:
    found = diagnosed(tmp_path, f"{ABORT.format(2)}[n3:41] {more}\n")
    assert named(found) == [("dead", [2])] and words in found.summary
    assert ("which was first does not show" in found.summary) == ("and " in words)


MPICH = "MPICH ERROR [Rank {}] [job id 4711.0] [Mon Feb 15 14:58:48 2021] [unknown] [{}] - Abort(672797967) (rank {} in comm 0): Fatal error in PMPI_Isend: Other MPI error, error stack:\n"
UCX = "[1613401128.440695] [{}:{}:0] ib_md.c:325 UCX ERROR ibv_reg_mr(address=0xab, length=26400, access=0xf) failed: Cannot allocate memory\n"


def test_a_librarys_line_is_of_the_rank_that_mpich_names_there(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, UCX.format("n7", 811) + MPICH.format(14, "n7", 14))
    assert found.causes[0].ranks == [14] and found.causes[0].nodes == ["n7"], found.summary
    two = UCX.format("n7", 811) + MPICH.format(14, "n7", 14) + MPICH.format(15, "n7", 15)
    assert diagnosed(tmp_path, two).summary.startswith("Process 811 on n7 failed first")
    other = UCX.format("n7", 811) + MPICH.format(14, "n8", 14)
    assert diagnosed(tmp_path, other).summary.startswith("Process 811 on n7 failed first")
    several = UCX.format("n7", 811) + UCX.format("n7", 812) + MPICH.format(14, "n7", 14)
    assert diagnosed(tmp_path, several).causes[0].ranks == []


CRASH = "[{0}:{1}] *** Process received signal ***\n[{0}:{1}] Signal: Segmentation fault (11)\n"
KILLED = "srun: error: {}: task {}: Segmentation fault\n"


def test_crashes_are_of_those_that_ended_by_the_signal_there(tmp_path: Path) -> None:
    text = CRASH.format("n1", 51) + CRASH.format("n2", 52) + KILLED.format("n1", 0)
    found = diagnosed(tmp_path, text + KILLED.format("n2", 2))
    assert named(found) == [("dead", [0, 2])]
    assert "which of them was first does not show" in found.summary
    both = CRASH.format("n1", 51) + CRASH.format("n1", 53) + KILLED.format("n1", 0)
    assert diagnosed(tmp_path, both).summary.startswith("Rank 0 (n1) and 1 more on n1 failed")
    none = CRASH.format("n1", 51) + CRASH.format("n1", 53)
    assert diagnosed(tmp_path, none).summary.startswith("2 processes on n1 failed alike")


def test_a_crash_with_a_rank_and_a_process_is_one(tmp_path: Path) -> None:
    line = "[n1:16633:0:16633] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x140)\n"
    found = diagnosed(tmp_path, "step 1\n[1,279]<stderr>:" + line)
    assert named(found) == [("dead", [279])] and "more" not in found.summary


def test_crashes_and_an_end_on_another_node(tmp_path: Path) -> None:
    left = "mpirun noticed that process rank 14 with PID 9 on node n2 exited on signal 11 (Segmentation fault).\n"
    found = diagnosed(tmp_path, CRASH.format("n1", 51) + CRASH.format("n1", 53) + left)
    assert found.summary.startswith("Rank 14 (n2) and 2 more on n1 failed alike"), found.summary
    assert found.causes[0].nodes == ["n1", "n2"]


def test_a_worker_that_its_engine_says_has_died(tmp_path: Path) -> None:
    fault = "Memory access fault by GPU node-2 (Agent handle: 0x5e) on address 0x7f5b000. Reason: Unknown.\n"
    lost = "(EngineCore_DP0) ERROR multiproc_executor.py:284] Worker proc VllmWorker-{} died unexpectedly, shutting down executor.\n"
    found = diagnosed(tmp_path, fault + lost.format(3))
    assert found.summary.startswith("Worker VllmWorker-3 failed first: a kernel"), found.summary
    found = diagnosed(tmp_path, fault + lost.format(3) + lost.format(1))
    assert "VllmWorker-3 failed first: a kernel" not in found.summary


def test_an_actor_is_named_by_its_process_and_address(tmp_path: Path) -> None:
    died = "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::Rollout.__init__() (pid=4811, ip=10.0.0.9, actor_id=ab01)\n"
    found = diagnosed(tmp_path, RAISED.rpartition("ValueError")[0] + died)
    assert found.summary.startswith("Process 4811 on 10.0.0.9"), found.summary


def test_the_file_that_tail_shows(tmp_path: Path) -> None:
    text = (
        "==> rsl.out.0025 <==\ntile 1\n\n==> rsl.error.0028 <==\n\n"
        "Program received signal SIGSEGV: Segmentation fault - invalid memory reference.\n"
        "\n==> rsl.out.0000 <==\ntile 2\n"
    )
    assert named(diagnosed(tmp_path, text)) == [("dead", [28])]
    plain = text.replace("rsl.error.0028", "model.log")
    assert named(diagnosed(tmp_path, plain)) == [("dead", [])], "no rank of the file before"


def test_the_file_that_grep_found_it_in(tmp_path: Path) -> None:
    lines = "".join(f"run/rank_{n}.log:step 4\n" for n in range(4))
    found = diagnosed(tmp_path, lines + "run/rank_2.log:ValueError: 3 heads do not divide 64\n")
    assert named(found) == [("error", [2])], found.summary


def test_the_place_where_a_workers_exception_was_raised(tmp_path: Path) -> None:
    text = RAISED.replace(
        "3 heads do not divide 64", "Caught ValueError in DataLoader worker process 3."
    )
    text += "Original Traceback (most recent call last):\n"
    text += '  File "/job/rows.py", line 12, in __getitem__\n    return int(row[1])\n'
    found = diagnosed(tmp_path, text + "ValueError: bad row\n")
    assert "ValueError in __getitem__ (rows.py:12): bad row (caught in DataLoader" in found.summary
    assert len(found.causes) == 1 and "rows.py:12" in found.causes[0].advice
    library = text.replace("/job/rows.py", "/v/lib/python3.11/site-packages/torch/utils/fetch.py")
    assert "main (fit.py:51)" in diagnosed(tmp_path, library + "ValueError: bad row\n").summary


def test_numbers_of_jobs_are_no_ranks(tmp_path: Path) -> None:
    lines = "".join(f"263{n}901: reached step 3, then nothing\n" for n in range(4))
    assert "rank" not in diagnosed(tmp_path, lines).summary


def test_a_device_with_another_line_glued_to_it(tmp_path: Path) -> None:
    line = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000NCCL error in: x.cpp:12\n"
    found = diagnosed(tmp_path, line)
    assert "1000)" in found.summary and "1000NCCL" not in found.summary
