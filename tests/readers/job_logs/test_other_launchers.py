"""mpirun's and Hydra's tables, Horovod's list of stalled operations, a logger's own prefix with a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RULE = "-" * 74 + "\n"
OPEN_MPI = (
    "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per "
    f"user-direction, the job has been aborted.\n{RULE}{RULE}mpirun detected that one or more "
    "processes exited with non-zero status, thus causing\nthe job to be terminated. The first "
    f"process to do so was:\n\n  Process name: {{name}}\n  Exit code:    {{code}}\n{RULE}"
)


@pytest.mark.parametrize("name", ["[[29973,1],3]", "[prterun-n7-812@1,3]"])
@pytest.mark.parametrize(("code", "says"), [(7, "exit code 7"), (139, "SIGSEGV")])
def test_the_process_that_mpirun_saw_first(tmp_path: Path, name: str, code: int, says: str) -> None:
    verdict = diagnosed(tmp_path, OPEN_MPI.format(name=name, code=code))
    assert named(verdict) == [("dead", [3])] and says in verdict.summary
    assert verdict.status == "failed"


def test_a_process_that_said_why_before_mpirun_ended_the_job(tmp_path: Path) -> None:
    text = (
        "[1,3]<stderr>:Traceback (most recent call last):\n"
        '[1,3]<stderr>:  File "/job/train.py", line 9, in main\n'
        "[1,3]<stderr>:    read()\n"
        "[1,3]<stderr>:KeyError: 'shard'\n"
    )
    verdict = diagnosed(tmp_path, text + OPEN_MPI.format(name="[[29973,1],3]", code=1))
    assert named(verdict) == [("error", [3])]


HYDRA = (
    "===================================================================================\n"
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n{lines}"
    "===================================================================================\n"
)


def test_hydra_tells_rank_node_and_signal(tmp_path: Path) -> None:
    lines = "=   RANK 3 PID 1234 RUNNING AT n7\n=   KILLED BY SIGNAL: 9 (Killed)\n"
    verdict = diagnosed(tmp_path, HYDRA.format(lines=lines))
    assert named(verdict) == [("dead", [3])] and verdict.causes[0].nodes == ["n7"]
    assert "SIGKILL" in verdict.summary


def test_hydra_of_mpich_tells_the_node_alone(tmp_path: Path) -> None:
    lines = "=   PID 1234 RUNNING AT n7\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n"
    verdict = diagnosed(tmp_path, HYDRA.format(lines=lines))
    assert [(c.kind, c.ranks, c.nodes) for c in verdict.causes] == [("dead", [], ["n7"])]
    assert "SIGKILL" in verdict.summary


STALL = (
    "[2026-07-20 04:51:42.894382: W horovod/common/stall_inspector.cc:105] One or more tensors were "
    "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than 60 seconds.\n"
)


@pytest.mark.parametrize(
    "listed",
    [
        "Stalled ranks:\n2: [allreduce.grad_1, allreduce.grad_2]\n5: [allreduce.grad_1]\n",
        "Stalled ops:\nallreduce.grad_1 [missing ranks: 2, 5]\nallreduce.grad_2 [missing ranks: 2]\n",
    ],
)
def test_horovod_lists_the_ranks_that_have_not_come(tmp_path: Path, listed: str) -> None:
    verdict = diagnosed(tmp_path, STALL + listed + "3: [no such line]\n"[:0])
    assert (verdict.status, named(verdict)) == ("hang", [("not_entered", [2, 5])])
    assert "Horovod's list of stalled operations" in verdict.summary
    assert "#-1" not in verdict.summary


READY = "Stalled ops: adam_1 [ready ranks: 4, 6, 1, 5, 3, 2], adam_2 [ready ranks: {}],\n"


@pytest.mark.parametrize(
    ("second", "late"),
    [
        ("1, 2, 3, 4, 5, 6", [0]),  # another order of ranks
        ("0", [0]),  # it is in another operation, alone
        ("0, 1, 2, 4, 5, 6", []),  # rank 3 of this one, rank 0 of the other
    ],
)
def test_ranks_that_are_not_among_the_ready_ones_have_not_come(
    tmp_path: Path, second: str, late: list[int]
) -> None:
    verdict = diagnosed(tmp_path, STALL + READY.format(second))
    assert [cause.ranks for cause in verdict.causes] == ([late] if late else [])


def test_a_numbered_list_elsewhere_is_no_stalled_rank(tmp_path: Path) -> None:
    text = STALL + "Stalled ranks:\n2: [allreduce.a]\nstep 4\n7: [data]\n"
    assert named(diagnosed(tmp_path, text)) == [("not_entered", [2])]


@pytest.mark.parametrize(
    "before",
    ["[2026-05-31T14:29:44.164170Z] dc5b74e6 [rank={}] || ", "INFO:trainer: (rank {}) "],
)
def test_a_rank_in_a_loggers_own_prefix(tmp_path: Path, before: str) -> None:
    lines = [
        (0, "step 3"),
        (3, "Traceback (most recent call last):"),
        (0, "step 4"),
        (3, '  File "/job/data.py", line 40, in load_batch'),
        (3, "    raise_it()"),
        (3, "ValueError: bad sample"),
        (0, "RuntimeError: [pair.cc:547] Connection closed by peer [10.0.0.1]:1"),
    ]
    text = "".join(before.format(rank) + line + "\n" for rank, line in lines)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [3])]
    assert "load_batch (data.py:40)" in verdict.summary
