"""Stacks of one node of an inference server that was started on several."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read
from hangdoctor.readers.pyspy_text import node_of

SERVER = "python3 -m sglang.launch_server --model-path /m/big --tp-size {} --nnodes 2 --node-rank 0"
WAITS = [
    "synchronize (torch/cuda/streams.py:102)",
    "__init__ (device_communicators/pynccl.py:121)",
    "init_model (model_runner.py:812)",
    "run_scheduler_process (scheduler.py:3139)",
]
READY = ["_recv (multiprocessing/connection.py:395)", "launch_server (http_server.py:1894)"]


def process(pid: int, command: str, frames: list[str]) -> str:
    stack = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: {command}\nPython v3.12.1\n\nThread {pid} (active): "MainThread"\n{stack}\n'


def judged(folder: Path, schedulers: range, asked: int) -> Diagnosis:
    workers = [process(100 + tp, f"sglang::scheduler_TP{tp}", WAITS) for tp in schedulers]
    (folder / "schedulers01.txt").write_text("".join(workers))
    (folder / "server.txt").write_text(process(90, SERVER.format(asked), READY))
    return diagnose(read([folder / "schedulers01.txt", folder / "server.txt"]))


def test_the_half_that_was_not_captured_is_missed(tmp_path: Path) -> None:
    said = judged(tmp_path, range(4), 8)
    assert (said.status, said.causes, said.job.world_size) == ("unknown", [], 8)
    assert "ranks 4-7 were not captured" in said.summary
    assert said.job.nodes == [], "the name of the file is no node"


def test_all_of_them_are_all_members(tmp_path: Path) -> None:
    said = judged(tmp_path, range(4), 4)
    assert [cause.kind for cause in said.causes] == ["in_communication"]


def test_one_title_alone_does_not_show_how_many_there_are(tmp_path: Path) -> None:
    (tmp_path / "stacks.txt").write_text(process(103, "sglang::scheduler_DP1_TP3", WAITS))
    said = diagnose(read([tmp_path / "stacks.txt"]))
    assert (said.causes, said.job.world_size) == ([], 0)


@pytest.mark.parametrize("name", ["017", "stacks", "schedulers0007", "workers-2"])
def test_names_of_files_that_are_no_nodes(name: str) -> None:
    assert node_of(Path(f"/tmp/{name}.txt")) == ""


@pytest.mark.parametrize("name", ["trace-n17", "n17", "worker-2", "gpu-node-003"])
def test_names_of_files_that_are_nodes(name: str) -> None:
    assert node_of(Path(f"/tmp/{name}.txt")) == name.removeprefix("trace-")
