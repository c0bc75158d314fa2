"""Whose an error is: by how the processes ended, by the same error with a rank, by who prints it.

Texts by the formats of the programs' own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import traceback

PLAIN = traceback(0, "{}").replace("[rank0]: ", "")
CANCELLED = "slurmstepd: error: *** STEP 41.0 ON n1 CANCELLED AT 2026-07-09T17:52:24 ***\n"


def plain(error: str) -> str:
    return PLAIN.format(error)


def killed(*tasks: int) -> str:
    return "".join(f"srun: error: n{task}: task {task}: Killed\n" for task in tasks)


def test_a_sweep_over_all_tasks_follows_from_a_ranks_own_error(tmp_path: Path) -> None:
    log = traceback(16, "RuntimeError: gemm.cc:1147 Check failed: 27 <= 26")
    sweep = killed(1) + "srun: Terminating StepId=57.1\n" + killed(3, 2, 0)
    verdict = diagnosed(tmp_path, log + sweep)
    assert named(verdict) == [("error", [16])]
    # Four nodes with one task each start more ranks than four: no task is a rank.
    assert named(diagnosed(tmp_path, "[rank16]: step 3\n" + killed(1, 3, 2, 0)))[0][1] == []
    assert named(diagnosed(tmp_path, "[rank3]: step 3\n" + killed(1, 2)))[0][1] == [1]


def test_what_srun_ends_after_the_first_is_no_death_of_its_own(tmp_path: Path) -> None:
    sweep = "[rank3]: step 3\n" + killed(1) + "srun: Terminating StepId=57.1\n" + killed(0, 2)
    assert diagnosed(tmp_path, sweep).summary.startswith("Task 1 on n1 died first")


def test_a_kill_for_lack_of_memory_is_no_sweep(tmp_path: Path) -> None:
    log = traceback(2, "RuntimeError: what its neighbour left") + killed(1, 3, 0, 2)
    log += "slurmstepd: error: Detected 1 oom_kill event in StepId=57.1\n"
    assert named(diagnosed(tmp_path, log))[0][0] == "dead"


def test_the_only_error_is_that_of_the_task_that_exited_first(tmp_path: Path) -> None:
    bar = "Epoch 0:   0%|          | 0/356 [00:13<?, ?it/s]"
    error = plain("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 MiB")
    stop = "srun: launch/slurm: _step_signal: Terminating StepId=88.2\n"
    first = f"{bar}srun: error: n1: task 2: Exited with exit code 1\n{stop}{CANCELLED}"
    later = "srun: error: n2: task 3: Exited with exit code 1\nsrun: error: n1: task 1: Killed\n"
    verdict = diagnosed(tmp_path, error + first + later)
    assert [(c.ranks, c.nodes) for c in verdict.causes] == [([2], ["n1"])]
    # Two errors: whose each is does not show.
    verdict = diagnosed(tmp_path, error + plain("KeyError: 'x'") + first + later)
    assert verdict.causes[0].ranks == []


TABLE = """\
E0616 20:34:38.106000 140 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 0 (pid: 700) of binary: /usr/bin/python3
Failures:
[1]:
  time      : 2024-06-16_20:34:34
  host      : n1
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 702)
Root Cause (first observed failure):
[0]:
  time      : 2024-06-16_20:34:34
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 700)
"""


def stopped(*pids: int) -> str:
    return "".join(
        f"W0616 20:34:34.710000 140 torch/distributed/elastic/multiprocessing/api.py:851] Sending process {pid} closing signal SIGTERM\n"
        for pid in pids
    )


def test_ranks_that_failed_alike_are_named_together(tmp_path: Path) -> None:
    own = traceback(4, "torch._dynamo.exc.BackendCompilerFailed: backend raised:")
    verdict = diagnosed(tmp_path, own + stopped(701, 703, 704) + TABLE)
    assert named(verdict) == [("error", [0, 2, 4])]
    # Of another node: that the two have failed before it does not show.
    verdict = diagnosed(tmp_path, own.replace("rank4", "rank9") + stopped(701, 703) + TABLE)
    assert named(verdict) == [("error", [9])]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_errors_without_a_rank_as_many_as_ranks_that_ended(tmp_path: Path, times: int) -> None:
    log = plain("FileNotFoundError: [Errno 2] No such file: 'a.yaml'") * times
    verdict = diagnosed(tmp_path, log + stopped(701) + TABLE)
    assert named(verdict) == [("error", [0, 2])]
    assert "this rank" not in verdict.summary
    one_of = verdict.summary.startswith("Rank 0 or 2 on n1 (the log does not show which)")
    assert one_of == (times == 1), verdict.summary


def test_the_only_error_is_that_of_the_only_rank_that_was_not_stopped(tmp_path: Path) -> None:
    only = "Root Cause" + TABLE.partition("Root Cause")[2].replace("rank: 0", "rank: 2")
    table = only.replace("rank      : 0", "rank      : 2")
    error = plain("torch.cuda.OutOfMemoryError: CUDA out of memory. GPU 2 has 23.65 GiB")
    assert named(diagnosed(tmp_path, error + stopped(701, 703) + table)) == [("error", [2])]
    assert named(diagnosed(tmp_path, error + table)) == [("error", [2])]
    other = plain("KeyError: 'x'")
    assert named(diagnosed(tmp_path, error + other + table)) == [("error", [])]


def test_the_earliest_of_two_launchers_tables(tmp_path: Path) -> None:
    late = TABLE.replace("20:34:34", "20:35:25").replace("E0616", "E0617")
    early = TABLE.partition("Root Cause")
    first = "Root Cause" + early[2].replace("rank      : 0 (l", "rank      : 4 (l")
    log = late.partition("\n")[2] + first.replace("pid: 700", "pid: 690")
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("dead", [4])]
    near = diagnosed(tmp_path, log.replace("20:34:34", "20:35:23"))
    assert named(near) == [("dead", [0, 2, 4])], "clocks of two launchers do not part them"
    assert "does not show" in near.summary


ECC = "CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(
    "line",
    [
        f"[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: {ECC}",
        f"  what():  [Rank 1] NCCL watchdog thread terminated with exception: {ECC}",
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: {ECC}",
    ],
)
def test_the_same_error_printed_again_with_its_rank(tmp_path: Path, line: str) -> None:
    verdict = diagnosed(tmp_path, f"{plain(f'RuntimeError: {ECC}')}{line}\n")
    assert named(verdict) == [("error", [1])] and "ECC" in verdict.summary


def test_the_number_in_a_smaller_group_is_no_rank(tmp_path: Path) -> None:
    line = f"  what():  [PG ID 2 PG GUID 3(mesh_tp) Rank 1] Process group watchdog thread terminated with exception: {ECC}\n"
    assert named(diagnosed(tmp_path, plain(f"RuntimeError: {ECC}") + line)) == [("error", [])]


def test_a_spawned_processs_error_that_was_cut(tmp_path: Path) -> None:
    log = (
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
        'Traceback (most recent call last):\n  File "/job/train.py", line 41, in main\n    return train()\n'
    )
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("error", [1])] and "main (train.py:41)" in verdict.summary


@pytest.mark.parametrize(
    "end",
    [
        "  Process name: [[29973,1],2]\n  Exit code:    1\n",
        "ERROR:composer.cli.launcher:Rank 2 crashed with exit code 1.\n",
    ],
)
def test_the_only_error_is_that_of_the_first_end_of_a_parent(tmp_path: Path, end: str) -> None:
    error = plain("ValueError: bad batch")
    assert named(diagnosed(tmp_path, error + end)) == [("error", [2])]
    verdict = diagnosed(tmp_path, error + plain("KeyError: 'x'") + end)
    assert verdict.causes[0].ranks == []


def test_horovods_stamps_before_the_rank(tmp_path: Path) -> None:
    def stamped(rank: int, error: str) -> str:
        lines = plain(error).splitlines()
        return "".join(f"Fri Sep 25 16:52:57 2020[{rank}]<stderr>:{line}\n" for line in lines)

    lost = "horovod.common.exceptions.HorovodInternalError: Broken pipe"
    log = stamped(0, lost) + stamped(1, "ValueError: x")
    assert named(diagnosed(tmp_path, log)) == [("error", [1])]


def test_the_launchers_own_traceback_is_no_ranks(tmp_path: Path) -> None:
    log = (
        "E1128 21:12:50.390000 31 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 3 (pid: 34) of binary: /bin/python\n"
        'Traceback (most recent call last):\n  File "/opt/venv/bin/accelerate", line 7, in <module>\n    sys.exit(main())\n'
    )
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("dead", [3])] and "as torchrun saw it" in verdict.summary
    assert "SIGABRT" in verdict.summary and "no line that is known here says why" in verdict.summary


MODULE = """\
Traceback (most recent call last):
  File "/opt/py/lib/python3.11/runpy.py", line 196, in _run_module_as_main
    return _run_code(code, main_globals, None,
  File "/opt/py/lib/python3.11/site-packages/torch/distributed/launch.py", line 208, in <module>
    main()
  File "/opt/py/lib/python3.11/site-packages/decorators_of_ours.py", line 3, in wrapper
    return arg(*args, **kwargs)
"""


def test_a_launcher_that_python_started_as_a_module(tmp_path: Path) -> None:
    end = "E0505 21:53:43.59 23 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1) local_rank: 2 (pid: 71) of binary: /bin/python\n"
    verdict = diagnosed(tmp_path, end + MODULE)
    assert named(verdict) == [("dead", [2])] and "as torchrun saw it" in verdict.summary
    own = MODULE.replace("site-packages/torch/distributed/launch.py", "site-packages/ours/run.py")
    assert "last line is missing" in diagnosed(tmp_path, own).summary, "a program's own module"


JOIN = """\
Traceback (most recent call last):
  File "fit.py", line 64, in <module>
    start(args)
  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 171, in spawn
    while not context.join():
  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 77, in join
    timeout=timeout,
"""


def test_a_parent_that_waits_for_its_ranks_is_none(tmp_path: Path) -> None:
    stopped = diagnosed(tmp_path, JOIN + "KeyboardInterrupt\n")
    assert stopped.causes == [] and "the parent of the ranks" in stopped.summary
    assert diagnosed(tmp_path, JOIN).causes == [], "it was cut, and is not a rank's either"


def test_ranks_that_told_others_of_their_own_time_out_waited(tmp_path: Path) -> None:
    words = "Received a dump signal due to a collective timeout from this local rank and we will try our best"
    log = "".join(
        f"[rank{n}]:[E1128 21:11:49.04 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank {n}] {words}\n"
        for n in (1, 2)
    )
    verdict = diagnosed(tmp_path, log)
    assert verdict.causes == [] and "ranks 1-2 timed out in an operation alike" in verdict.summary
    counted = log.replace(
        "best\n", "best. Last enqueued NCCL work: 22, last completed NCCL work: 21.\n"
    )
    behind = (
        counted.splitlines(keepends=True)[0].replace("rank1]", "rank0]").replace("Rank 1", "Rank 0")
    )
    behind = behind.replace("work: 22", "work: 21").replace("this local rank", " rank 1")
    assert diagnosed(tmp_path, counted).causes == []
    verdict = diagnosed(tmp_path, counted + behind)
    assert named(verdict) == [("not_entered", [0])]
    assert "never enqueued operation #22; its last one is #21" in verdict.summary


@pytest.mark.parametrize(
    ("log", "ranks", "says"),
    [
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.\n", [2], "SIGBUS"),
        (
            "ERROR:composer.cli.launcher:Global rank 5 (PID 208865) exited with code -11\n",
            [5],
            "SIGSEGV",
        ),
        (
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n",
            [3],
            "exit code 1",
        ),
        (
            "Rank 6 [Mon Nov  2 08:01:02 2026] [c1-0c0s1n3] application called MPI_Abort(MPI_COMM_WORLD, 1) - process 6\n",
            [6],
            "exit code 1",
        ),
        (
            "subprocess.CalledProcessError: Command '['python', '-u', 'train.py', '--local_rank=3']' died with <Signals.SIGKILL: 9>.\n",
            [],
            "SIGKILL",
        ),
        (
            "E1009 15:47:38.568412 1 service.cc:1170] /job:jax_worker/replica:0/task:6 has been set to ERROR in coordination service: "
            "UNAVAILABLE: Task /job:jax_worker/replica:0/task:6 heartbeat timeout. This indicates that the remote task has failed\n",
            [6],
            "JAX's coordinator",
        ),
        (
            "The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:2\n"
            "/job:jax_worker/replica:0/task:3\nThe tasks have crashed.\n",
            [2, 3],
            "JAX's coordinator",
        ),
    ],
)
def test_who_ended_by_a_launchers_words(
    tmp_path: Path, log: str, ranks: list[int], says: str
) -> None:
    verdict = diagnosed(tmp_path, "starting\nloading\n" + log)
    assert [c.ranks for c in verdict.causes] == [ranks] and says in verdict.summary
