"""Who failed stands beside the error: in a command line, before the words, below a debugger's prompt, in
srun's line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

DEEPSPEED = "[2024-03-04 10:00:00,100] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'fit.py', '--local_rank={}', '--deepspeed'] exits with return code = -9\n"
GDB = """\
Thread 1 "heat" received signal SIGSEGV, Segmentation fault.
(gdb) bt
#0  0x00007f01 in halo_copy (n=4) at halo.c:12
#1  0x00007f02 in main () at heat.c:80
(gdb) {}
$1 = {}
"""
TORCHRUN = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 5 (pid: 71) of binary: /bin/python\n"
SRUN = "srun: error: fen{}: task {}: Exited with exit code 1\n"


def test_the_only_process_of_deepspeeds_launcher_is_number_0(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, DEEPSPEED.format(0))) == [("dead", [0])]


def test_the_last_of_several_is_only_the_last_that_was_started(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, DEEPSPEED.format(7))) == [("dead", [])]


@pytest.mark.parametrize("prefix", ["Proc 3: ", "Process 3: ", "[Process 3] ", "proc #3> "])
def test_a_programs_own_number_of_its_process(tmp_path: Path, prefix: str) -> None:
    verdict = diagnosed(tmp_path, f"{prefix}cannot open grid file basin.nc, aborting\n")
    assert named(verdict) == [("error", [3])]


@pytest.mark.parametrize("prefix", ["Process 48211: ", "Processing 3: ", "In process 3 of 5: "])
def test_other_numbers_are_no_ranks(tmp_path: Path, prefix: str) -> None:
    verdict = diagnosed(tmp_path, f"{prefix}cannot open grid file basin.nc, aborting\n")
    assert named(verdict) == [("error", [])]


@pytest.mark.parametrize("asked", ["print rank", "p my_rank", "p world_rank", "print myid"])
def test_the_rank_that_a_debugger_was_asked_for(tmp_path: Path, asked: str) -> None:
    assert named(diagnosed(tmp_path, GDB.format(asked, 4))) == [("dead", [4])]


@pytest.mark.parametrize("asked", ["print n", "p local_rank", "p rank + 1", "print ranks"])
def test_another_value_is_no_rank(tmp_path: Path, asked: str) -> None:
    assert named(diagnosed(tmp_path, GDB.format(asked, 4))) == [("dead", [])]


def test_two_answers_name_none(tmp_path: Path) -> None:
    text = GDB.format("p rank", 4) + GDB.format("p rank", 5)
    assert all(ranks == [] for _, ranks in named(diagnosed(tmp_path, text)))


def test_the_only_task_of_srun_is_where_the_worker_died(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, TORCHRUN + SRUN.format(7, 130))
    assert verdict.summary.startswith("The process with local rank 5 on fen7 died first")
    assert verdict.causes[0].ranks == []  # of the job its number is another


def test_of_two_tasks_none_is_chosen(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, TORCHRUN + SRUN.format(7, 130) + SRUN.format(8, 131))
    assert "on fen" not in verdict.summary
