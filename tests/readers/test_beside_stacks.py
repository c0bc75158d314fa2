"""Other texts beside the stacks of a folder: errors of py-spy on one node, what nvidia-smi shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers import idle_gpus
from hangdoctor.readers.offline import read

WAITS = (
    'Thread 4711 (active): "MainThread"\n'
    "    barrier (torch/distributed/distributed_c10d.py:2784)\n"
    "    settle (train/loop.py:81)\n    <module> (train/run.py:9)\n"
)
TRIED = (
    "ssh gpu-n06\npgrep -P 12 | xargs -I {} py-spy dump --pid {} > t/n06.out\n"
    "Error: Failed to suspend process\nReason: EPERM: Operation not permitted\n"
)
HEAD = "power.draw [W], utilization.gpu [%], temperature.gpu\n"


def smi(*percents: int) -> str:
    return HEAD + "".join(f"80.1 W, {percent} %, 30\n" for percent in percents)


def judged(folder: Path, **texts: str) -> Diagnosis:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return diagnose(read([folder / f"{name}.txt" for name in texts]))


def test_a_node_on_which_a_process_could_not_be_stopped(tmp_path: Path) -> None:
    said = judged(tmp_path, stacks=WAITS, tried=TRIED, smi=smi(0, 100, 100, 98))
    assert said.causes == [] and "could not stop a process on gpu-n06" in said.summary
    assert any("GPU 0 of 4 is idle" in note for note in said.notes)


def test_an_error_without_its_node_names_none(tmp_path: Path) -> None:
    said = judged(tmp_path, stacks=WAITS, tried=TRIED.partition("\n")[2])
    assert "could not stop" not in said.summary


@pytest.mark.parametrize(
    ("percents", "idle"),
    [
        ((100, 100, 3, 100), [2]),
        ((0, 0, 0, 100), []),  # mostly idle
        ((0, 60, 100, 100), []),  # they are at work
        ((100, 100, 100, 100), []),
        ((0, 100), []),
    ],
)
def test_which_gpus_stand_out(percents: tuple[int, ...], idle: list[int]) -> None:
    assert idle_gpus.idle_of(smi(*percents))[0] == idle


def test_gpus_by_their_own_index() -> None:
    rows = "".join(f"{gpu}, {0 if gpu == 5 else 99} %\n" for gpu in (4, 5, 6, 7))
    assert idle_gpus.idle_of(f"index, utilization.gpu [%]\n{rows}") == ([5], 4)
    assert idle_gpus.idle_of("no table\n1, 2\n") == ([], 0)
