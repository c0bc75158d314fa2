"""Ranks of JAX and MPI: a box without operations, with who they are, where, and how they end.

The libraries here are stand-ins of a few lines; the real ones run in tests/frameworks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.readers.blackbox import Contents, read_box
from tests.support.probe_ranks import environment

JAX = """
class State:
    process_id = 0
    num_processes = 1
    coordinator_address = None

    def initialize(self, coordinator_address, num_processes, process_id):
        "Joins."
        if num_processes < 0:
            raise RuntimeError('nobody answers')
        self.process_id, self.num_processes = process_id, num_processes
        self.coordinator_address = coordinator_address
        return 'joined'


global_state = State()
"""
MPI = """
class COMM_WORLD:
    @staticmethod
    def Get_rank():
        return 2

    @staticmethod
    def Get_size():
        return 5


def Is_initialized():
    return True


def Is_finalized():
    return False
"""
JOIN = "from jax._src import distributed as d\nprint(d.global_state.initialize('n1:1', {}, 1))\n"


def run(
    tmp_path: Path, code: str, mpi: str = MPI, jax: str = JAX
) -> subprocess.CompletedProcess[str]:
    """Python with the probe and the stand-ins."""
    for name, text in (("jax/_src/distributed.py", jax), ("mpi4py/MPI.py", mpi)):
        file = tmp_path / "libraries" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in {file.parent, tmp_path / "libraries" / name.partition("/")[0]}:
            (folder / "__init__.py").write_text("")
        file.write_text(text)
    env = environment(tmp_path / "boxes")
    env["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'libraries'}"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, text=True, capture_output=True, timeout=60)


def boxes(tmp_path: Path) -> list[Contents]:
    return [read_box(path) for path in (tmp_path / "boxes").glob("*.blackbox")]


@pytest.mark.parametrize(
    ("join", "rank", "size"),
    [(JOIN.format(3), 1, 3), ("from mpi4py import MPI\n", 2, 5)],
    ids=["jax", "mpi"],
)
def test_an_error_of_such_a_rank_is_left_in_its_box(
    tmp_path: Path, join: str, rank: int, size: int
) -> None:
    ended = run(tmp_path, f"{join}raise ValueError('bad tile')\n")
    assert ended.returncode == 1 and "ValueError: bad tile" in ended.stderr
    assert "hangdoctor" not in ended.stderr
    [contents] = boxes(tmp_path)
    assert (contents.box.rank, contents.box.world_size, contents.box.uncounted) == (
        rank,
        size,
        True,
    )
    assert contents.box.end_text.startswith("ValueError\nbad tile")
    assert contents.ops.operations == []


def test_a_good_end_leaves_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, JOIN.format(3) + "import inspect\nprint(d.State.initialize.__doc__)\n")
    assert (ended.stdout, ended.stderr) == ("joined\nJoins.\n", "")
    assert boxes(tmp_path) == []


def test_one_process_alone_is_no_rank(tmp_path: Path) -> None:
    run(tmp_path, JOIN.replace(", 1)", ", 0)").format(1) + "raise ValueError\n")
    assert boxes(tmp_path) == []


WAITS = """
import os, pathlib, sys
boxes = lambda: list(pathlib.Path(os.environ["HANGDOCTOR_DIR"]).glob("*.blackbox"))
from jax._src import distributed as d
d.State.initialize.__wrapped__.__globals__["at_start"] = lambda: print(len(boxes()))
"""


def test_a_process_that_waits_for_the_others_has_a_box_already(tmp_path: Path) -> None:
    """The stand-in looks for it from within its `initialize`."""
    told = JAX.replace('"Joins."', '"Joins."\n        at_start()')
    code = WAITS + "d.global_state.initialize('n1:1', {}, 1)\n"
    ended = run(tmp_path, code.format(3).replace("{}", "3"), jax=told)
    assert (ended.stdout, ended.stderr) == ("1\n", "")
    alone = run(tmp_path, code.format(1).replace(", 1)", ", 0)"), jax=told)
    assert alone.stdout == "0\n", "one process alone is no rank"


@pytest.mark.torch
def test_mpi_is_seen_after_torch_was_imported(tmp_path: Path) -> None:
    code = "import torch.distributed\nfrom mpi4py import MPI\nraise ValueError('bad tile')\n"
    run(tmp_path, code)
    [contents] = boxes(tmp_path)
    assert (contents.box.rank, contents.box.world_size) == (2, 5)


def test_a_rank_that_could_not_join_is_none_and_sees_its_own_error(tmp_path: Path) -> None:
    ended = run(tmp_path, JOIN.format(-1))
    assert ended.stderr.endswith("RuntimeError: nobody answers\n")
    assert boxes(tmp_path) == []


def test_another_version_of_the_library_is_left_alone(tmp_path: Path) -> None:
    odd = "import jax._src as s, sys, types\ns.distributed = None\n"
    ended = run(tmp_path, odd + "from mpi4py import MPI\ndel MPI.COMM_WORLD\nprint('on')\n")
    assert (ended.stdout, ended.stderr) == ("on\n", "")


def test_what_mpi_refuses_the_probe_does_not_reach_the_job(tmp_path: Path) -> None:
    refuses = MPI.replace("return 2", "raise Exception('no such communicator')")
    code = "class Exception(RuntimeError):\n    pass\n"
    ended = run(tmp_path, "from mpi4py import MPI\nprint('on')\n", mpi=code + refuses)
    assert (ended.stdout, ended.stderr) == ("on\n", "")


def test_the_wait_for_torch_goes_on_after_the_library_has_come(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom jax._src import distributed\nfrom mpi4py import MPI\n"
        "print([type(f).__name__ for f in sys.meta_path].count('_Finder'))\n"
    )
    assert run(tmp_path, code).stdout == "1\n"


@pytest.mark.parametrize(
    ("launched_by", "job"),
    [({}, "jax-n1:1"), ({"SLURM_JOB_ID": "12"}, "slurm-12.x")],
    ids=["hand", "slurm"],
)
def test_ranks_of_jax_that_were_started_by_hand_are_one_job_by_their_coordinator(
    tmp_path: Path, launched_by: dict[str, str], job: str
) -> None:
    by = f"import os; os.environ.update({launched_by})\n"
    ended = run(tmp_path, f"{by}{JOIN.format(3)}raise ValueError('bad tile')\n")
    assert "bad tile" in ended.stderr
    [box] = boxes(tmp_path)
    assert box.box.job == job
