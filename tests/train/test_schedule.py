"""Learning rate, ramp-up, FLOPs, log lines: numbers that can be checked by hand or against
published ones.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.train import flops  # noqa: E402
from hangdoctor.train.callbacks.checkpoint import Checkpoint  # noqa: E402
from hangdoctor.train.callbacks.log import Log, Window, log_line, timers_line  # noqa: E402
from hangdoctor.train.config import Config, ModelConfig, TrainConfig  # noqa: E402
from hangdoctor.train.flops import padded_vocab  # noqa: E402
from hangdoctor.train.schedule import BatchSize, LearningRate, batch_size  # noqa: E402
from hangdoctor.train.train_state import Step, TrainState  # noqa: E402


def test_learning_rate_warms_up_and_decays_by_samples() -> None:
    rate = LearningRate(lr=1.0, min_lr=0.2, warmup_samples=100, decay_samples=300, style="cosine")
    assert [rate.at(s) for s in (0, 50, 100, 200, 300, 900)] == pytest.approx(
        [0.0, 0.5, 1.0, 0.6, 0.2, 0.2]
    )
    linear = LearningRate(1.0, 0.0, 0, 100, "linear")
    assert [linear.at(s) for s in (0, 25, 100)] == [1.0, 0.75, 0.0]
    assert LearningRate(1.0, 0.0, 10, 100, "constant").at(5000) == 1.0


def test_ramp_up_of_the_176b_training() -> None:
    """--rampup-batch-size 192 16 9_765_625 to 2048: (2048 - 192) / 16 = 116 steps."""
    batch = batch_size(TrainConfig(global_batch=2048, rampup="192 16 9_765_625", micro_batch=2))
    assert len(batch.sizes()) == 117
    assert (batch.at(0), batch.at(9_765_624), batch.at(9_765_625)) == (192, 2032, 2048)
    assert batch.at(9_765_625 // 116 + 1) == 208


def test_samples_of_a_number_of_iterations() -> None:
    batch = BatchSize(final=8, start=4, increment=4, ramp_samples=8)
    assert [batch.samples_after(n) for n in (0, 1, 2, 3, 5)] == [0, 4, 8, 16, 32]


def test_flops_follow_the_published_formula() -> None:
    """175B, Narayanan et al. 2021 table 1: 96 layers, h 12288, batch 1536, V 51200, s 2048: 24.2 s
    at 141 TFLOP/s on 1024.
    """
    model = ModelConfig(layers=96, hidden_size=12288, heads=96, seq_length=2048)
    done = flops.step_flops(model, 51200, 1536, ffn=4 * 12288, recompute=True)
    expected = (
        96 * 1536 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    )
    assert done == pytest.approx(expected)
    plain = 72 * 1536 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (12 * 96 * 12288))
    found = flops.step_flops(model, 51200, 1536, ffn=4 * 12288, recompute=False)
    assert found == pytest.approx(plain)
    assert flops.utilization(312e12 * 10, 20.0, 1, 312.0) == pytest.approx(0.5)


def test_parameter_count_is_that_of_the_model() -> None:
    """BLOOM-176B's formula: l (12 h^2 + 13 h) + v h + s h + 2 h, for 104B: 64 layers of 11600."""
    model = ModelConfig(layers=64, hidden_size=11600, heads=80, seq_length=2048)
    h, layers, v, s = 11600, 64, 50257, 2048
    assert (
        flops.parameter_count(model, 4 * h, v)
        == layers * (12 * h * h + 13 * h) + v * h + s * h + 2 * h
    )


@pytest.mark.parametrize(
    ("size", "tp", "rows"), [(50257, 1, 50304), (257, 1, 384), (257, 2, 512), (256, 1, 256)]
)
def test_vocabulary_is_padded_to_a_multiple_of_128_per_rank(size, tp, rows) -> None:
    assert padded_vocab(size, 128, tp) == rows


class FakeTrainer:
    """The state and configuration that the log line is made of."""

    def __init__(self) -> None:
        self.config, self.state = Config(), TrainState(iteration=7000, consumed_samples=260912)
        self.state.consumed_tokens = 260912 * 128
        self.config.train.iterations = 159576
        self.stop, self.diverged = "", False


def test_log_line_is_megatrons() -> None:
    window = Window()
    window.add(Step(loss=6.444662, batch_size=96, seconds=18.7061))
    step = Step(
        loss=6.444662, batch_size=96, learning_rate=6e-5, loss_scale=2048.0, grad_norm=98258.265
    )
    line = log_line(FakeTrainer(), step, window, {"samples_per_second": 5.132, "tflops": 108.47})
    assert line == (
        " iteration     7000/  159576 | consumed samples:       260912 | consumed tokens:     33396736 | "
        "elapsed time per iteration (ms): 18706.1 | learning rate: 6.000E-05 | global batch size:    96 | "
        "lm loss: 6.444662E+00 | loss scale: 2048.0 | grad norm: 98258.265 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 | samples per second: 5.132 | TFLOPs: 108.5 |"
    )


def test_timers_line_is_megatrons() -> None:
    line = timers_line({"optimizer": 0.5, "forward-compute": 1.0}, 10)
    assert line == "time (ms) | forward-compute: 100.00 | optimizer: 50.00"


def test_nan_iterations_are_counted_and_stop_the_training() -> None:
    window = Window()
    for loss in (2.0, float("nan"), 4.0):
        window.add(Step(loss=loss, batch_size=1, seconds=1))
    assert (window.mean_loss, window.nan) == (3.0, 1)
    trainer, log = FakeTrainer(), Log(rank=1, vocab=257)
    trainer.config.train.stop_after_nan = 2
    for loss in (float("nan"), 1.0, float("inf"), float("nan")):
        assert not trainer.stop
        log.after_step(trainer, Step(loss=loss, batch_size=1, seconds=1))
    assert "2 times in a row" in trainer.stop
    assert trainer.diverged


class FakeStore:
    def __init__(self) -> None:
        self.saved: list[int] = []
        self.topology = SimpleNamespace(rank=1)

    def save(self, state: TrainState, rate: object) -> None:
        self.saved.append(state.iteration)

    def wait(self) -> None: ...


def test_nothing_is_saved_over_the_good_checkpoint_also_where_a_save_was_due() -> None:
    trainer, store = FakeTrainer(), FakeStore()
    trainer.config.checkpoint.interval, trainer.learning_rate = 1000, None
    callback = Checkpoint(store)
    callback.after_step(trainer, Step())
    trainer.state.iteration, trainer.diverged = 8000, True
    callback.after_step(trainer, Step())
    callback.on_end(trainer)
    assert store.saved == [7000]
