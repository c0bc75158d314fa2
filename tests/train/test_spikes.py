"""train.spikes: what a log and event files say of jumps, NaN and a sliding loss scale."""

from __future__ import annotations

import json
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from hangdoctor.train.callbacks.spikes import Spikes
from hangdoctor.train.config import load_config
from hangdoctor.train.options import ConfigError
from hangdoctor.train.spikes.__main__ import main
from hangdoctor.train.spikes.read import from_lines, points
from hangdoctor.train.spikes.watch import Point, Watch
from hangdoctor.train.train_state import Step
from hangdoctor.train.validate import Machine, check


def line(iteration: int, loss: float, norm: float, **more: Any) -> str:
    """A line of the 104B training's log."""
    rate, scale, nan = more.get("rate", 6e-5), more.get("scale", 2048.0), more.get("nan", 0)
    shown = f"{loss:.6E}" if math.isfinite(loss) else "NAN"
    return (
        f" iteration {iteration:8d}/  159576 | consumed samples: {iteration * 96 - 411088:12d} | "
        f"elapsed time per iteration (ms): 18706.1 | learning rate: {rate:.3E} | global batch size:    96 | "
        f"lm loss: {shown} | loss scale: {scale:.1f} | grad norm: {norm:.3f} | num zeros: 0.0 | "
        f"number of skipped iterations:   0 | number of nan iterations: {nan:3d} |\n"
    )


def chronicle() -> list[str]:
    """Experiment 1: 6.4 at iteration 7000, 11.4 at 7010, 7.2 at 7220 and there it stays, then NaN.

    The learning rate has risen until 6960. The values at 7000, 7010 and 7220 are those of the log.
    """
    noise = random.Random(42)
    lines = ["[default7]:using world size: 256\n"]
    for i in range(6000, 7010, 10):
        loss = 6.444662 if i == 7000 else 6.45 + noise.gauss(0, 0.03)
        norm = 98258.265 if i == 7000 else 95000 * math.exp(noise.gauss(0, 0.1))
        lines.append(line(i, loss, norm, rate=6e-5 * min(1, i / 6960)))
    lines.append(line(7010, 11.42026, 219645.978))
    for i in range(7020, 7220, 10):
        lines.append(line(i, 14 - (i - 7020) / 30, 90000))
    for i in range(7220, 8000, 10):
        lines.append(line(i, 7.155109 + noise.gauss(0, 0.01), 16921.991))
    lines += [line(i, math.nan, math.nan, nan=10) for i in range(8000, 8050, 10)]
    return [f"[default7]:{text}" if text.startswith(" it") else text for text in lines]


def run(capsys: Any, *words: object) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().out


def test_the_glitch_of_the_104b_training_is_found_in_its_log(tmp_path, capsys) -> None:
    log = tmp_path / "main_log.txt"
    log.write_text("".join(chronicle()))
    code, said = run(capsys, log, "--json", tmp_path / "found.json")
    assert code == 10
    assert said.splitlines()[1].split()[:6] == "7010-7250 on lm loss 14 7020".split()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["warm_up_end"] == 6960
    loss, norm, *nans = found["spikes"]
    assert (loss["what"], loss["first"], loss["is_over"]) == ("lm loss", 7010, False)
    assert loss["after_warm_up"] == 50 and loss["score"] > 20
    assert (norm["what"], norm["first"], norm["last"]) == ("grad norm", 7010, 7010)
    assert norm["is_over"] and norm["value"] == 219645.978
    ends = [(s["what"], s["kind"], s["first"], s["last"], s["value"]) for s in nans]
    assert ends == [(what, "nan", 8000, 8040, "nan") for what in ("lm loss", "grad norm")]
    assert loss["says"].startswith("spike at iteration 7010: lm loss 14 (at 7020) is ")
    assert loss["says"].endswith("; 50 iterations after the end of the warm-up")


def test_a_training_that_learns_has_none(tmp_path, capsys) -> None:
    """Steep at first, noisy, with gradient norms over two decades."""
    noise = random.Random(1)
    lines = [
        line(
            i,
            3 + 8 * math.exp(-i / 200) + noise.gauss(0, 0.05),
            20 * math.exp(noise.gauss(-i / 500, 0.3)),
        )
        for i in range(1, 2001)
    ]
    (tmp_path / "log").write_text("".join(lines))
    code, said = run(capsys, tmp_path / "log")
    assert (code, said) == (0, "2000 points, 0 spikes\n")


def steady(watch: Watch, first: int, last: int, **values: float) -> list[Any]:
    noise = random.Random(first)
    found = []
    for i in range(first, last + 1):
        loss = values.get("loss", 5.0) + noise.gauss(0, 0.02)
        found += watch.add(Point(i, loss, grad_norm=1.0, loss_scale=values.get("scale")))
    return found


def test_a_spike_that_is_over_has_its_worst_point() -> None:
    watch = Watch()
    assert steady(watch, 1, 60) == []
    for i, loss in ((61, 6.0), (62, 9.0), (63, 6.5)):
        watch.add(Point(i, loss))
    assert steady(watch, 64, 80) == []
    (spike,) = watch.spikes
    assert (spike.first, spike.last, spike.peak, spike.value) == (61, 63, 62, 9.0)
    assert spike.is_over and spike.usual == pytest.approx(5.0, abs=0.02)


def test_a_loss_scale_that_halves_again_and_again_slides_but_not_at_the_start() -> None:
    """As before the 104B training diverged; fp16 begins at 2^16 and finds its scale."""
    watch, at = Watch(), 0
    for scale in (65536, 32768, 16384, 8192, 4096, 2048, 1024, 2048, 4096, 2048, 4096):
        at += 1
        assert watch.add(Point(at, loss_scale=scale)) == []
    found = []
    for scale in (2048, 1024, 512, 256, 256, 128):
        at += 1
        found += watch.add(Point(at, loss_scale=scale))
    (slide,) = found
    assert (slide.kind, slide.first, slide.usual, slide.last, slide.value) == (
        "slide",
        14,
        4096,
        17,
        128,
    )


def test_overflows_that_fp16_skips_are_no_nan() -> None:
    watch = Watch()
    steady(watch, 1, 20)
    assert watch.add(Point(21, 5.0, grad_norm=math.inf, skipped=1)) == []
    assert [s.kind for s in watch.add(Point(22, 5.0, grad_norm=math.inf))] == ["nan"]


def test_a_log_that_goes_back_is_compared_with_what_was_before() -> None:
    """Restarted from 40 in the same log: 41 to 60 come again, and the spike at 61 too."""
    watch = Watch()
    steady(watch, 1, 60)
    for _ in range(2):
        assert [s.first for s in watch.add(Point(61, 9.0))] == [61]
        assert steady(watch, 41, 60) == []


def test_event_files_say_the_same_as_the_log(tmp_path, capsys) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for point in from_lines(chronicle()):
            i = point.iteration
            writer.add_scalar("lm-loss-training/lm loss", point.loss, i)
            writer.add_scalar("lm-loss-training/lm loss vs samples", 99.0, i * 96)
            writer.add_scalar("grad-norm", point.grad_norm, i)
            writer.add_scalar("learning-rate/learning-rate", point.learning_rate, i)
    code, said = run(capsys, tmp_path, "--json", "-")
    found = json.loads(said)
    firsts = [(s["what"], s["kind"], s["first"], s["after_warm_up"]) for s in found["spikes"]]
    assert code == 10 and firsts == [
        ("lm loss", "jump", 7010, 50),
        ("grad norm", "jump", 7010, 50),
        ("lm loss", "nan", 8000, 1040),
        ("grad norm", "nan", 8000, 1040),
    ]


def test_what_has_no_points_is_an_error_that_says_what_is_read(tmp_path, capsys) -> None:
    (tmp_path / "log").write_text("iteration one\n")
    for source in (tmp_path / "log", tmp_path, tmp_path / "missing"):
        assert main([str(source)]) == 1
    said = capsys.readouterr().err
    assert "give a job's log, an event file, or the folder of event files" in said
    assert "No such file" in said
    with pytest.raises(ConfigError, match="no chart of the loss"):
        list(points(tmp_path))


@pytest.mark.parametrize("words", [[], ["log", "--window", "5"], ["log", "--threshold", "0"]])
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--log.on_spike", "page"], "--log.on_spike needs --log.spikes true"),
        (["--log.spikes", "true", "--log.on_spike", "page 'me"], "No closing quotation"),
        (["--log.adam_variance", "true", "--optimizer.kind", "adam8bit"], "have 8 bits"),
    ],
)
def test_a_command_that_would_not_run_is_refused(flags: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check(load_config(flags), Machine(1, has_gpu=False))


def test_a_command_that_fails_is_a_line_in_the_log(capsys) -> None:
    for command in ("/no/such/command", "sh -c 'exit 3'", "sh -c 'test {iteration} = 61'"):
        callback, trainer = Spikes(command), SimpleNamespace(state=SimpleNamespace(iteration=0))
        for i in range(1, 62):
            trainer.state.iteration = i
            callback.after_step(trainer, Step(loss=9.0 if i == 61 else 5.0, loss_scale=1.0))
        callback.on_end(trainer)
    lines = [line for line in capsys.readouterr().out.splitlines() if "on_spike" in line]
    assert "No such file" in lines[0]
    assert lines[1:] == [" --log.on_spike: sh ended with 3"]
