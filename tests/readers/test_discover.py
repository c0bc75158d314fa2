"""Which processes are ranks, of which job, and who is missing: by tables, and with real processes
where /proc decides.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import psutil
import pytest

from hangdoctor.errors import NoRanksFound, UsageError
from hangdoctor.readers import descendants, discover, job_choice, lost_ranks, proc, rank_environment
from hangdoctor.readers.discover import Found, Job
from hangdoctor.readers.node import CaptureOptions, capture_node
from hangdoctor.text.ranges import MAX_RANKS


def found(pid: int, rank: int, ppid: int = 1, **more: Any) -> Found:
    of = {
        "world_size": 4,
        "local_rank": rank,
        "local_world_size": 4,
        "job": "j",
        "started": float(pid),
    }
    of |= {"user": "me", "argv": ["python"], "environ": {"RANK": str(rank)}}
    return Found(pid=pid, ppid=ppid, rank=rank, **(of | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
            (3, 8, 1, 2),
        ),
        ({"RANK": "0"}, (0, 0, -1, 0)),
        ({"RANK": " 5 ", "SLURM_PROCID": "1"}, (5, 0, -1, 0)),
        ({"RANK": "five", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, (1, 4, -1, 0)),
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_NTASKS": "4",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_LOCALID": "0",
            },
            (1, 2, 0, 0),
        ),
        ({"SLURM_STEP_NUM_TASKS": "2"}, None),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            (2, 4, 1, 2),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, -1, 0)),
        (
            {
                "PALS_RANKID": "1",
                "PALS_SIZE": "2",
                "PALS_LOCAL_RANKID": "0",
                "PALS_LOCAL_SIZE": "1",
            },
            (1, 2, 0, 1),
        ),
        ({"RANK": str(MAX_RANKS - 1), "WORLD_SIZE": str(MAX_RANKS)}, (MAX_RANKS - 1, 0, -1, 0)),
        ({"RANK": str(MAX_RANKS)}, None),
        ({"RANK": "-1"}, None),
        ({"RANK": ""}, None),
        ({"WORLD_SIZE": "4"}, None),
        ({}, None),
    ],
)
def test_a_rank_by_its_environment(environ: dict[str, str], told: object) -> None:
    assert rank_environment.rank_of(environ) == told


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("torchrun --nproc 2 train.py", True),
        ("/usr/bin/srun python", True),
        ("mpiexec.hydra -n 2", True),
        ("prterun -n 2", True),
        ("python torchrun x", True),
        ("/opt/bin/python3.11 -m torch.distributed.run x", True),
        ("python -m torch.distributed.launch x", True),
        ("python -m hangdoctor run", True),
        ("python -u -m deepspeed.launcher.runner", True),
        ("python -u /usr/bin/deepspeed x", True),
        ("python train.py -m torch.distributed.run", False),
        ("python -m train", False),
        ("python -m", False),
        ("python train.py torchrun", False),
        ("mytorchrun", False),
        ("bash torchrun", False),
        ("python", False),
        ("", False),
        ("torchrun.py", False),
        ("python -O -B -u -s -E -m torch.distributed.run", False),
    ],
)
def test_a_launcher_by_its_command_line(line: str, is_one: bool) -> None:
    assert rank_environment.is_launcher(line.split()) == is_one


@pytest.mark.parametrize(
    ("devices", "local_rank", "gpu"),
    [
        (None, 1, ""),
        ("", 0, "none"),
        ("7", 3, "7"),
        ("4,5,6", 1, "5"),
        ("4, 5", 0, "4"),
        ("4,5", 2, "4,5"),
        ("4,5", -1, "4,5"),
        ("GPU-ab,GPU-cd", 1, "GPU-cd"),
    ],
)
def test_the_gpu_of_a_rank(devices: str | None, local_rank: int, gpu: str) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        environ = {} if devices is None else {name: devices}
        assert rank_environment.gpu_of(environ, local_rank) == gpu


def pids(those: list[Found]) -> list[int]:
    return [c.pid for c in those]


def test_of_a_family_the_topmost_is_the_rank() -> None:
    worker, other = found(11, 0, ppid=10), found(12, 1, ppid=10)
    assert pids(discover._topmost([found(10, 0), worker])) == [10]
    assert pids(discover._topmost([found(10, 0), other])) == [10, 12], (
        "another rank below it is one"
    )
    another = found(13, 0, ppid=10, job="k")
    assert pids(discover._topmost([found(10, 0), another])) == [10, 13]


def test_what_a_scheduler_numbered_and_starts_ranks_is_their_launcher() -> None:
    task = found(10, 0, world_size=1, environ={"SLURM_PROCID": "0"})
    ranks = [found(20 + n, n, ppid=10) for n in range(2)]
    assert pids(discover._topmost([task, *ranks])) == [20, 21]
    same = found(10, 0, environ={"SLURM_PROCID": "0"})
    assert pids(discover._topmost([same, ranks[0]])) == [10], "it gave its own number on: a helper"
    alone = found(21, 1, ppid=10, world_size=1)
    assert pids(discover._topmost([task, alone])) == [10, 21], "a job of one rank is nobody's"


def test_an_ancestor_is_found_over_processes_that_are_no_candidates() -> None:
    """Of two sleeping processes below this one: their parent's parent is what `_above` comes to."""
    child = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert child.stdout is not None
        below = int(child.stdout.readline())
        top, low = found(os.getpid(), 0), found(below, 0, ppid=child.pid)
        parents: dict[int, int] = {}
        assert discover._above(low, {top.pid: top}, parents) is top
        assert parents == {child.pid: os.getpid()}
        assert discover._above(low, {}, parents) is None
        assert discover._above(low, {top.pid: top}, {child.pid: 0}) is None
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=20)


def split(*those: Found) -> list[tuple[str, list[int], int]]:
    return [(j.key, pids(j.ranks), len(j.notes)) for j in discover._split("j", list(those))]


def test_two_runs_under_one_key() -> None:
    assert split(found(12, 1), found(11, 0)) == [("j", [11, 12], 0)]
    two = [found(11, 0, ppid=5), found(12, 1, ppid=5), found(21, 0, ppid=6), found(22, 1, ppid=6)]
    assert split(*two) == [("j/5", [11, 12], 0), ("j/6", [21, 22], 0)]
    left = found(9, 0, ppid=1)
    assert split(found(11, 0, ppid=5), found(12, 1, ppid=5), left) == [("j", [11, 12], 1)]
    assert split(found(11, 0, ppid=5), found(12, 0, ppid=5)) == [("j", [11], 1)], "the oldest"
    assert discover._job("j", two).started == 22.0


TWO = {"local_world_size": 2, "world_size": 2, "argv": ["python", "-u", "/a/train.py", "--x"]}
ALONE = TWO | {"local_world_size": 1, "world_size": 1}
JOBS = [
    Job("b:1", [found(1, 0, **ALONE)], 9.0),
    Job("a:10", [found(2, 0, **TWO), found(3, 1, **TWO)], 5.0),
    Job("a:1", [found(4, 0, user="x", **ALONE)], 1.0),
]


def test_which_job_is_shown() -> None:
    job, chosen = job_choice.select_job(JOBS)
    assert job.key == "a:10", "it has several ranks, b:1 runs alone"
    age = r"[\d.]+ (s|min|h)"
    assert re.fullmatch(
        rf"a:10 \(of me, 2 ranks of train.py, pid 2, {age}\), the newest with several "
        rf"ranks \(choose another with --job KEY\); also on this host: b:1 \(of me, 1 rank of "
        rf"train.py, pid 1, {age}\), a:1 \(of x, 1 rank of train.py, pid 4, {age}\)",
        chosen,
    )
    job, chosen = job_choice.select_job(JOBS, "a:1")
    assert job.key == "a:1" and ", named by --job; also on this host: " in chosen
    assert job_choice.select_job(JOBS, "10")[0].key == "a:10"
    assert job_choice.select_job(JOBS[:1]) == (JOBS[0], "")
    alike = [Job("a", [found(1, 0)], 9.0), Job("a", [found(2, 0), found(3, 1)], 5.0)]
    assert job_choice.select_job(alike, "a")[0] is alike[1], (
        "a process that only borrows the name is alone"
    )
    with pytest.raises(NoRanksFound, match="no job 'zz' on this host") as error:
        job_choice.select_job(JOBS, "zz")
    assert error.value.help.startswith("Running here: b:1 (of me, 1 rank of train.py, pid 1,")
    with pytest.raises(NoRanksFound, match="no rank processes found"):
        job_choice.select_job([], "a")


def test_which_zombie_was_which_rank() -> None:
    """Ranks 0, 2 and 3 of six live; the launcher has other dead children too."""
    ranks = [found(10 + n, n, started=100.0 + n) for n in (0, 2, 3)]
    gone = [1, 4, 5]
    match = lost_ranks.match
    assert match(gone, ranks, [(101.0, 7), (104.0, 8), (105.0, 9)]) == {1: 7, 4: 8, 5: 9}
    older, later = (50.0, 5), (900.0, 6)
    assert match(gone, ranks, [older, (101.0, 7)]) == {1: 7}
    assert match(gone, ranks, [older, (101.0, 7), later]) == {1: 7}, "as many, and not they"
    every = [older, (101.0, 7), (104.0, 8), (105.0, 9), later]
    assert match(gone, ranks, every) == {1: 7, 4: 8, 5: 9}
    assert match(gone, ranks, [(100.5, 6), (101.0, 7)]) == {}, "two, and one rank is missing"
    assert match([1], ranks, [(99.0, 4)]) == {1: 4}, "started in another order"
    assert match([1], ranks, []) == {}


def test_a_shells_loop_began_with_local_rank_0() -> None:
    """Ranks that one parent started, with RANK and LOCAL_RANK alone: also the first may have ended."""

    def of_loop(rank: int, local: int) -> Found:
        environ = {"RANK": str(rank), "LOCAL_RANK": str(local)}
        one = found(10 + rank, rank, environ=environ, local_rank=local, local_world_size=0)
        one.world_size, one.ppid = 8, 77
        return one

    expected = lost_ranks._expected
    assert expected([of_loop(1, 1), of_loop(3, 3)]) == {0, 1, 2, 3}
    assert expected([of_loop(5, 1), of_loop(6, 2)]) == {4, 5, 6}, "the second host of four each"
    assert expected([of_loop(1, 1)]) == {1}, "one alone is no loop"


def test_which_ranks_are_expected_on_a_host() -> None:
    slurm = {"SLURM_GTIDS": "4,5,x,-1"}
    assert lost_ranks._expected([found(1, 4, environ=slurm, world_size=8)]) == {4, 5}
    assert lost_ranks._expected([found(1, 4, environ=slurm, world_size=5)]) == {4}
    torchrun = found(1, 5, local_rank=1, local_world_size=4, world_size=8)
    assert lost_ranks._expected([torchrun]) == {4, 5, 6, 7}
    mpi = [found(1, n, local_rank=n // 2, local_world_size=2, environ={}) for n in (0, 2)]
    assert lost_ranks._expected(mpi) == set(), "they go round the hosts"
    assert lost_ranks._expected(mpi[:1]) == {0, 1}
    untold = found(1, 7, local_rank=-1, local_world_size=2, environ={})
    assert lost_ranks._expected([mpi[0], untold]) == {0, 1}, "who has no local rank says nothing"
    alone = {"local_rank": -1, "local_world_size": 0, "world_size": 3}
    for address, told in (("127.0.0.1", {0, 1, 2}), ("localhost", {0, 1, 2}), ("10.0.0.1", set())):
        one = found(1, 0, environ={"RANK": "0", "MASTER_ADDR": address}, **alone)
        assert lost_ranks._expected([one]) == told
    many = found(
        1, 0, environ={"RANK": "0", "MASTER_ADDR": "::1"}, **(alone | {"world_size": 4096})
    )
    assert len(lost_ranks._expected([many])) == 4096
    many.world_size = 4097
    assert lost_ranks._expected([many]) == set(), "no host has so many"


def test_who_has_ended_on_this_host() -> None:
    """Two children that nobody has waited for: their numbers follow from their order."""
    children = [subprocess.Popen(["sh", "-c", f"exit {code}"]) for code in (3, 4)]
    try:
        for child in children:
            while proc.stat_fields(child.pid)[:1] != ["Z"]:
                time.sleep(0.01)
        mine = [found(os.getpid(), n, ppid=os.getpid()) for n in (0, 2)]
        with subprocess.Popen(["sleep", "600"]) as living:
            zombies = {pid for _, pid in lost_ranks._zombies({os.getpid()})}
            living.kill()
        assert living.pid not in zombies and {c.pid for c in children} <= zombies
        lost = lost_ranks.lost_ranks(Job("j", mine), "n1")
        assert [(r.rank, r.node, r.world_size, r.gone) for r in lost] == [
            (1, "n1", 4, True),
            (3, "n1", 4, True),
        ]
        if zombies == [c.pid for c in children]:  # else the runner has some of its own
            assert [(r.pid, r.exit_code) for r in lost] == [
                (children[0].pid, 3),
                (children[1].pid, 4),
            ]
        three = lost_ranks.lost_ranks(Job("j", mine[:1]), "n1")
        assert [r.rank for r in three] == [1, 2, 3]
        assert all((r.pid, r.exit_code) == (0, None) for r in three) or len(zombies) == 3
        everybody = [found(n, n) for n in range(4)]
        assert lost_ranks.lost_ranks(Job("j", everybody), "n1") == []
    finally:
        for child in children:
            child.wait(timeout=20)


def test_a_user_by_name_and_number() -> None:
    me = psutil.Process().username()
    assert discover.uid_of(me) == os.geteuid() and discover.uid_of("4242") == 4242
    assert discover.uid_of("") == (None if os.geteuid() == 0 else os.geteuid())
    with pytest.raises(UsageError, match="there is no user 'no-such-user' on this host"):
        discover.uid_of("no-such-user")


def test_a_process_whose_memory_is_locked_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading its environment never ends; the rank beside it is found, and the gap is no dead rank."""
    environ = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "locked",
    }
    code = "import time; print('up', flush=True); time.sleep(600)"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            env=environ | {"RANK": str(n), "LOCAL_RANK": str(n)},
            stdout=subprocess.PIPE,
        )
        for n in range(2)
    ]
    over = threading.Event()
    read = discover.candidate

    def locked(pid: int, uid: int | None) -> Found | None:
        if pid == ranks[1].pid:
            over.wait(60)
        return read(pid, uid)

    try:
        for process in ranks:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert [f.rank for j in discover.find_jobs() if "locked" in j.key for f in j.ranks] == [
            0,
            1,
        ]
        monkeypatch.setattr(discover, "candidate", locked)
        options = CaptureOptions(job="locked", timeout_s=6.0, settle_s=0.1)
        capture = capture_node(options, "n1")
        assert [(r.rank, r.gone) for r in capture.ranks] == [(0, False)]
        assert any(n.startswith("1 process of n1 could not be read within") for n in capture.notes)
    finally:
        over.set()
        for process in ranks:
            process.kill()
            process.communicate(timeout=20)


def test_descendants_nearest_first_and_no_more_than_are_told_of() -> None:
    most = descendants._MOST
    family = {1: [2, 3], 2: [4], 4: [5]}
    assert descendants._below(1, family) == [2, 3, 4, 5] and descendants._below(5, family) == []
    assert len(descendants._below(1, {1: list(range(2, most + 2))})) == most
    assert len(descendants._below(1, {1: list(range(2, most + 3))})) == most


def test_a_chain_of_parents_without_end_has_one() -> None:
    """/proc is read while processes come and go: numbers can be used again."""
    assert discover._above(found(9, 0, ppid=7), {}, {7: 8, 8: 7}) is None


def test_processes_that_an_earlier_search_still_reads_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discover.psutil, "pids", lambda: [1, 2, 3])
    asked: list[int] = []
    held = {2}

    def read(pid: int, uid: int | None) -> Found | None:
        assert held == {2, pid}, "the one that is read is held meanwhile"
        asked.append(pid)
        return found(pid, pid)

    [job] = discover.find_jobs(held=held, read=read)
    assert (asked, held, [f.rank for f in job.ranks]) == ([1, 3], {2}, [1, 3])
    asked.clear()
    [job], not_read = discover.search("", 30, held={2}, read=lambda pid, _: found(pid, pid))
    assert ([f.rank for f in job.ranks], not_read) == ([1, 3], 1)


def test_a_job_is_called_what_its_black_boxes_call_it_too() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    job = Job("key", [found(2, 0, environ=environ), found(3, 1)])
    assert job.names == ["key", "slurm-7.0"] and job.is_named("slurm-7.0")
    assert Job("key", []).names == ["key"]


def test_what_a_shells_loop_started_lies_between_its_other_ranks() -> None:
    def one(rank: int, parent: int, local: int) -> Found:
        alone = {"local_world_size": 0, "world_size": 8, "environ": {"RANK": str(rank)}}
        started = found(10 + rank, rank, local_rank=local, **alone)
        started.ppid = parent
        return started

    loop = [one(rank, 3, rank) for rank in (0, 1, 3)]
    assert lost_ranks._expected(loop) == {0, 1, 2, 3}, "the last ones may be on another host"
    assert lost_ranks._expected([one(0, 3, 0), one(3, 4, 3)]) == {0, 3}, "of two shells"
    apart = [one(0, 3, 0), one(4, 3, 0)]
    assert lost_ranks._expected(apart) == {0, 4}, "one on each of several hosts, by their numbers"
    assert lost_ranks._expected([one(0, 3, 0), one(1 << 40, 3, 1 << 40)]) == set()
