"""Processes that run no rank, as their titles or stacks show: none is called a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

AGENT = """\
    sleep (time.py:1)
    {where} (torch/distributed/elastic/agent/server/api.py:900)
    run (torch/distributed/elastic/agent/server/api.py:711)
    launch_agent (torch/distributed/launcher/api.py:138)
    run (torch/distributed/run.py:910)
    <module> (torchrun:8)
"""
ENGINE = """\
    recv (vllm/distributed/device_communicators/shm_broadcast.py:90)
    dequeue (vllm/distributed/device_communicators/shm_broadcast.py:70)
    get_response (vllm/v1/executor/multiproc_executor.py:300)
    run_busy_loop (vllm/v1/engine/core.py:700)
    _bootstrap (multiprocessing/process.py:314)
"""
WORKER = """\
    dequeue (vllm/distributed/device_communicators/shm_broadcast.py:70)
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:500)
    worker_main (vllm/v1/executor/multiproc_executor.py:440)
    _bootstrap (multiprocessing/process.py:314)
"""
ALONE = """\
    all_reduce (torch/distributed/distributed_c10d.py:3000)
    forward (vllm/model_executor/layers/linear.py:12)
    execute_model (vllm/v1/worker/gpu_model_runner.py:80)
    run_busy_loop (vllm/v1/engine/core.py:700)
"""
DIRECTOR = """\
    wait (ray/_private/worker.py:2900)
    poll_status (ray/train/v2/_internal/execution/controller/controller.py:90)
"""
RANK = """\
    all_reduce (torch/distributed/distributed_c10d.py:2900)
    step (train.py:12)
    main (train.py:30)
    wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:355)
    <module> (train.py:40)
"""


def dump(pid: int, title: str, frames: str) -> str:
    return f'Process {pid}: {title}\nPython v3.11.9 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n{frames}\n'


def judged(folder: Path, *dumps: str) -> Diagnosis:
    (folder / "stacks.txt").write_text("".join(dumps))
    return diagnose(read([folder / "stacks.txt"]))


@pytest.mark.parametrize(
    ("title", "frames", "said"),
    [
        (
            "python -m job",
            AGENT.format(where="_exit_barrier"),
            "torchrun's agent (process 7) runs no rank, and waits at its exit",
        ),
        ("python -m job", AGENT.format(where="_invoke_run"), "torchrun's agent (process 7)"),
        (
            "VLLM::EngineCore",
            ENGINE,
            "vLLM's engine (process 7) runs no rank, and waits for an answer",
        ),
        ("ray::TrainController.run()", DIRECTOR, "Ray's controller (process 7)"),
        ("VLLM::APIServer", "    select (selectors.py:468)\n", "vLLM's API server (process 7)"),
    ],
)
def test_it_is_called_what_it_is(tmp_path: Path, title: str, frames: str, said: str) -> None:
    found = judged(tmp_path, dump(7, title, frames))
    assert (found.status, found.causes, found.ranks) == ("unknown", [], [])
    assert said in found.summary and "rank 0" not in found.summary
    assert not any("rank 0" in note for note in found.notes)


@pytest.mark.parametrize(
    ("title", "frames"),
    [
        ("python train.py", RANK),
        ("VLLM::EngineCore", ALONE),
        ("VLLM::Worker_TP0", WORKER),
        ("python serve.py", WORKER),
        ("ray::RayTrainWorker.execute()", RANK),
        ("ray::MyTrainControllerless.run()", RANK),
    ],
)
def test_what_runs_the_model_is_a_rank(tmp_path: Path, title: str, frames: str) -> None:
    assert [row.rank for row in judged(tmp_path, dump(7, title, frames)).ranks] == [0]


def test_beside_ranks_it_is_not_counted(tmp_path: Path) -> None:
    agent = dump(5, "python -m job", AGENT.format(where="_invoke_run"))
    found = judged(tmp_path, agent, *(dump(n, "python train.py", RANK) for n in (8, 9)))
    assert found.job.world_size == 2
    assert any("1 torchrun's agent" in note for note in found.notes)


def test_a_forked_rank_has_its_agents_frames_around_its_own(tmp_path: Path) -> None:
    inner = (
        RANK
        + "    run (multiprocessing/process.py:108)\n    _bootstrap (multiprocessing/process.py:314)\n"
    )
    found = judged(tmp_path, dump(8, "python nb.py", inner + AGENT.format(where="_start")))
    assert [row.rank for row in found.ranks] == [0]


CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f01 (most recent call first):
  File "/v/torch/distributed/elastic/utils/store.py", line 60 in barrier
{frames}
"""
IN_AGENT = '  File "/v/torch/distributed/elastic/agent/server/api.py", line 9 in _exit_barrier\n'
IN_RANK = '  File "/u/train.py", line 9 in step\n'


@pytest.mark.parametrize(("frames", "agent"), [(IN_AGENT, True), (IN_RANK, False)])
def test_who_crashed_by_its_stack(tmp_path: Path, frames: str, agent: bool) -> None:
    (tmp_path / "job.log").write_text(CRASH.format(frames=frames))
    found = diagnose(read([tmp_path / "job.log"]))
    assert ("Torchrun's agent, which runs no rank," in found.summary) is agent
    assert found.summary.startswith("A rank (") is not agent
