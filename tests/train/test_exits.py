"""Ways to leave a training early, and what is logged beside the usual: callbacks in one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from hangdoctor.train import __main__ as command  # noqa: E402
from hangdoctor.train import sizes  # noqa: E402
from hangdoctor.train.callbacks.log import Window, log_line  # noqa: E402
from hangdoctor.train.callbacks.signals import Signals  # noqa: E402
from hangdoctor.train.callbacks.tensorboard import Tensorboard  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.train_state import Step, TrainState  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trainer(*flags: str) -> Any:
    config = load_config(["--parallel.dp", "1", *flags])
    return SimpleNamespace(config=config, state=TrainState(iteration=1), stop="")


def after_a_step(made: Any, rank: int = 0) -> str:
    signals = Signals(CPU, rank)
    signals.on_start(made)
    try:
        signals.after_step(made, Step())
    finally:
        signals.on_end(made)
    return str(made.stop)


def test_nothing_asked_for_nothing_happens() -> None:
    assert after_a_step(trainer()) == ""
    assert after_a_step(trainer("--train.exit_minutes", "60")) == ""


def test_minutes_are_over() -> None:
    made = trainer("--train.exit_minutes", "1e-9")
    assert after_a_step(made) == "1e-09 minutes of this run are over"


def test_the_file_ends_the_training_and_only_rank_0_looks(tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    made = trainer("--train.kill_switch", str(switch))
    assert after_a_step(made) == ""
    switch.touch()
    assert after_a_step(made, rank=1) == ""
    assert after_a_step(made) == f"{switch} is there (--train.kill_switch)"


def test_a_file_system_that_fails_ends_nothing(tmp_path: Path) -> None:
    assert after_a_step(trainer("--train.kill_switch", f"{tmp_path}/{'x' * 300}")) == ""


def test_a_signal_is_said_before_the_rest(tmp_path: Path) -> None:
    made = trainer("--train.kill_switch", str(tmp_path))
    signals = Signals(CPU, 0)
    signals.on_start(made)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        signals.after_step(made, Step())
    finally:
        signals.on_end(made)
    assert made.stop == "SIGUSR1 received"


def test_nothing_starts_while_the_file_is_there(tmp_path: Path, capsys: Any) -> None:
    switch = tmp_path / "stop"
    switch.touch()
    assert command.main(["--train.kill_switch", str(switch)]) == 0
    said = capsys.readouterr().out
    assert said == f"stopped: {switch} is there (--train.kill_switch): remove it to train\n"


EXTRA = {"num zeros": 12.0, "params norm": 3.5, "memory MB": 812.4}


def test_the_log_line_has_them_where_megatron_has_them() -> None:
    made, window = trainer(), Window()
    step = Step(extra=dict(EXTRA), seconds=1.0, batch_size=8)
    window.add(step)
    line = log_line(made, step, window, {"samples_per_second": 1.0, "tflops": 1.0})
    middle = "| num zeros: 12.0 | params norm: 3.500 | peak memory (MB): 812 | number of skipped"
    assert middle in line
    bare = Step(seconds=1.0)
    assert "num zeros" not in log_line(made, bare, window, {"samples_per_second": 1, "tflops": 1})


def test_tensorboard_has_them(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    made = trainer()
    board = Tensorboard(str(tmp_path), 384)
    board.after_step(made, Step(extra=dict(EXTRA), seconds=1.0))
    board.on_end(made)
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    for name in ("num-zeros", "params-norm", "memory-MB"):
        assert f"{name}/{name}" in events.Tags()["scalars"]


def test_memory_is_what_the_kernel_says() -> None:
    held = torch.ones(50_000_000)
    assert sizes.peak_memory(CPU) > held.nbytes
