"""What C++, MPI's own calls, and torchrun's sweep say of who failed; and how posts show it."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

TIMED_OUT = "[rank{rank}]:[E816 00:34:01.1 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType={op} Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
STACK = """\
Fatal error in PMPI_Init: Other MPI error, error stack:
MPIR_Init_thread(467)..............:
MPID_Init(177).....................: channel initialization failed
MPIU_SHMW_Seg_create(635)..........: open failed - {}
"""


def test_the_innermost_call_of_mpich_has_the_reason(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, STACK.format("Permission denied"))
    assert [kind for kind, _ in named(verdict)] == ["error"]
    assert "(open failed - Permission denied)" in verdict.summary
    peer = diagnosed(tmp_path / "peer", STACK.format("connection refused by rank 4"))
    assert named(peer) == [] and "connection refused by rank 4" in peer.summary


def test_mpi_called_too_late(tmp_path: Path) -> None:
    text = (
        "*** The MPI_Comm_rank() function was called after MPI_FINALIZE was invoked.\n"
        "[n3:812] Local abort after MPI_FINALIZE started completed successfully\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert "n3" in verdict.summary and "after MPI_Finalize" in verdict.summary


def test_the_number_that_a_program_gave_to_mpi_abort(tmp_path: Path) -> None:
    call = "application called MPI_Abort(MPI_COMM_WORLD, {}) - process 3\n"
    assert "exit code 0" in diagnosed(tmp_path, call.format(0)).summary
    assert "exit code 7" in diagnosed(tmp_path / "seven", call.format(7)).summary


def test_an_uncaught_exception_of_cxx(tmp_path: Path) -> None:
    thrown = "terminate called after throwing an instance of 'engine::Error'\n  what():  {}\n"
    own = diagnosed(tmp_path, thrown.format("bad block size 12"))
    assert "uncaught exception of C++: bad block size 12" in own.summary
    for number, follows in enumerate(
        ("[Rank 3] NCCL watchdog thread terminated", "Connection closed by peer", "Broken promise")
    ):
        verdict = diagnosed(tmp_path / str(number), thrown.format(follows))
        assert named(verdict) == [], follows


def test_an_assertion_is_of_the_only_process_that_aborted(tmp_path: Path) -> None:
    line = "prog: /src/tree/list.c:56: list_add: Assertion `n > 0' failed.\n"
    end = "mpirun noticed that process rank 2 with PID 0 on node n5 exited on signal 6 (Aborted).\n"
    verdict = diagnosed(tmp_path, line + end)
    assert named(verdict) == [("error", [2])] and "list.c:56, 'n > 0'" in verdict.summary
    assert [ranks for _, ranks in named(diagnosed(tmp_path / "alone", line))] == [[]]


BOX = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n{}=   EXIT CODE: {}\n"


def test_older_boxes_of_hydra(tmp_path: Path) -> None:
    bare = diagnosed(tmp_path, BOX.format("", 9))
    assert "killed by SIGKILL" in bare.summary and bare.status == "failed"
    running = BOX.format("=   PID 77 RUNNING AT me@n2\n", 134)
    assert (
        "Process 77 on n2 died first: killed by SIGABRT"
        in diagnosed(tmp_path / "pid", running).summary
    )
    assert diagnosed(tmp_path / "asked", BOX.format("=   PID 77 RUNNING AT n2\n", 15)).causes == []


def test_several_exit_codes_among_those_that_were_killed(tmp_path: Path) -> None:
    def ended(rank: int, how: str) -> str:
        return f"rank {rank} in job 7  n1_4711   caused collective abort of all ranks\n  exit status of rank {rank}: {how} \n"

    text = ended(9, "killed by signal 9") + ended(4, "return code 1") + ended(2, "return code 1")
    assert named(diagnosed(tmp_path, text)) == [], "these may have lost the one that was killed"


def test_tasks_that_crash_alike_while_srun_ends_the_step(tmp_path: Path) -> None:
    text = (
        "srun: error: n7: task 1: Segmentation fault (core dumped)\n"
        "srun: Terminating job step 20.1\n"
        "srun: error: n6: task 0: {}\n"
    )
    assert named(diagnosed(tmp_path, text.format("Segmentation fault"))) == [("dead", [0, 1])]
    ended = diagnosed(tmp_path / "ended", text.format("Terminated"))
    assert named(ended) == [("dead", [1])]


STOP = "W0801 13:23:17.366000 900 torch/distributed/elastic/multiprocessing/api.py:900] Sending process {} closing signal SIGTERM\n"
FAILED = "E0801 13:23:20.000000 900 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 54) of binary: /usr/bin/python3\n"


def test_the_one_process_that_failed_while_torchrun_stopped_all_others(tmp_path: Path) -> None:
    stopped = "".join(STOP.format(pid) for pid in (51, 52, 53))
    verdict = diagnosed(tmp_path, stopped + FAILED)
    assert named(verdict) == [("dead", [3])] and "as far as the log shows" in verdict.summary
    assert verdict.causes[0].confidence < 0.5
    alone = diagnosed(tmp_path / "alone", FAILED)
    assert named(alone) == [("dead", [3])] and "as torchrun saw it" in alone.summary
    assert "while others still ran" not in alone.summary, "nothing shows that they did"
    waited = TIMED_OUT.format(rank=0, op="ALLREDUCE,")
    after = diagnosed(tmp_path / "waited", waited + stopped + FAILED)
    assert named(after) == [], "a wait came before it"


def test_a_row_of_torchruns_table_in_one_line(tmp_path: Path) -> None:
    text = "Root Cause (first observed failure) :\n[0]:\nrank6 (local rank: 6)exitcode: -9 (pid: 36)error file: <N/A>\n"
    assert named(diagnosed(tmp_path, text)) == [("dead", [6])]


def test_a_traceback_that_is_cut_behind_the_words_of_victims(tmp_path: Path) -> None:
    lost = "[rank2]: . This may indicate a possible application crash on rank 0 or a network set up issue.\n"
    cut = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/job/train.py", line 5, in main\n'
    verdict = diagnosed(tmp_path, lost + cut)
    assert named(verdict) == [] and "NCCL's id from rank 0" in verdict.summary
    assert named(diagnosed(tmp_path / "before", cut)) == [("error", [3])]


def test_what_ray_says_once_for_several(tmp_path: Path) -> None:
    text = "(Actor pid=66) Fatal Python error: Segmentation fault [repeated 3x across cluster]\n"
    summary = diagnosed(tmp_path, text).summary
    assert "Process 66 and 3 more failed alike" in summary and "failed first" not in summary


def test_the_name_of_an_operation_that_is_cut_is_no_other_one(tmp_path: Path) -> None:
    whole = TIMED_OUT.format(rank=0, op="_ALLGATHER_BASE, NumelIn=8, NumelOut=64,")
    cut = TIMED_OUT.format(rank=2, op="_ALLGATHER_BA[451/1919] n=8, NumelOut=64,")
    verdict = diagnosed(tmp_path, whole + cut)
    assert named(verdict) == [] and "several operations" not in verdict.summary


def test_bars_of_what_is_no_training(tmp_path: Path) -> None:
    load = "Loading checkpoint shards: 100%|##########| 2/2 [00:03<00:00,  1.5s/it]\n"
    assert diagnosed(tmp_path, load).status == "unknown"
    steps = "train: 100%|##########| 20/20 [00:03<00:00,  1.5s/it]\n"
    assert diagnosed(tmp_path / "steps", steps).status == "healthy"
    broken = steps + "(Actor pid=7, ip=10.0.0.4) mlx5: n4: got completion with error:\n"
    assert diagnosed(tmp_path / "broken", broken).status != "healthy"


def test_what_a_forum_makes_of_a_log(tmp_path: Path) -> None:
    quoted = (
        "> [rank1]: Traceback (most recent call last):\n"
        '> [rank1]:   File "/job/[train.py](http://train.py/)", line 5, in main\n'
        "> [rank1]: KeyError: 'x'\n"
    )
    verdict = diagnosed(tmp_path, quoted)
    assert named(verdict) == [("error", [1])] and "main (train.py:5)" in verdict.summary


def test_errors_of_one_kind_in_no_order(tmp_path: Path) -> None:
    raised = '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "/job/f.py", line {0}, in step\n[rank{0}]: torch.OutOfMemoryError: CUDA out of memory.\n'
    verdict = diagnosed(tmp_path, raised.format(6) + raised.format(2))
    assert named(verdict) == [("error", [2, 6])] and "f.py" not in verdict.summary


def test_an_error_behind_the_words_of_a_clean_end(tmp_path: Path) -> None:
    end = "Training complete\n"
    assert diagnosed(tmp_path, end).status == "healthy"
    late = diagnosed(tmp_path / "late", end + "widget: error: lost its cog\n")
    assert late.status == "unknown" and "lost its cog" in late.summary
