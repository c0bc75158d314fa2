"""The planner against figures of a training that was planned by hand, and against the trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.train import plan as command
from hangdoctor.train.flops import parameter_count
from hangdoctor.train.planning import estimates, lints, memory, rendered
from hangdoctor.train.planning.layouts import Machines, plan, ramp_fault, settled
from hangdoctor.train.planning.stages import balanced, can_split, stages
from hangdoctor.train.validate import Machine, check

FLAGS = "--layers 96 --hidden 13312 --heads 64 --vocab 150257 --gpus 384 --tflops 150".split()


def config_of(*more: str) -> Any:
    """The configuration of the command line."""
    options, rest = command.parser().parse_known_args([*FLAGS, *more])
    return command.configuration(options, rest)


@pytest.mark.parametrize(
    ("layers", "hidden", "vocab", "billions", "ratio"),
    [
        (80, 12288, 50257, 146, 153),
        (96, 16384, 50257, 310, 170),
        (80, 14336, 150257, 199, 179),
        (96, 13312, 150257, 206, 138),
    ],
)
def test_sizes_and_ratios_are_those_of_the_chronicle(
    layers: int, hidden: int, vocab: int, billions: int, ratio: int
) -> None:
    more = ("--layers", str(layers), "--hidden", str(hidden), "--vocab", str(vocab))
    model = config_of(*more).model
    h = hidden
    by_hand = layers * (12 * h**2 + 13 * h) + vocab * h + 2048 * h + 2 * h
    found = parameter_count(model, 4 * hidden, vocab)
    assert found == by_hand
    assert round(found / 1e9) == billions and hidden // layers == ratio


def test_days_and_hours_are_those_of_the_chronicle() -> None:
    assert f"{estimates.training_days(200e9, 300e9, 350, 150):.2f}" == "105.82"
    assert round(estimates.gpu_hours(200e9, 300e9, 150)) == 888_889


def test_parts_of_the_model_a_rank_are_those_of_the_chronicle() -> None:
    """265.84M weights a layer and rank with TP 8; 18 bytes a weight where ZeRO has one replica."""
    config = config_of("--model.vocab_multiple", "1")
    one, none = (memory.Stage(layers=n) for n in (1, 0))
    assert memory.counts(config, none, 8) == (0, 0)
    whole = 12 * 13312**2 + 13 * 13312
    own = sum(memory.counts(config, one, 8))
    assert own * 8 == pytest.approx(whole, rel=1e-3)  # norms and output biases are not split
    assert sum(memory.engine_bytes(config, one, 1, 1)) == 18 * whole


@pytest.mark.parametrize(("layers", "pp"), [(96, 12), (94, 24), (80, 10), (4, 4), (5, 7), (2, 1)])
def test_stages_are_the_ones_that_deepspeed_deals_out(layers: int, pp: int) -> None:
    utils = pytest.importorskip("deepspeed.runtime.utils")
    weights = [1, 0, *[1] * layers, 0, 1]
    assert balanced(weights, pp) == [int(n) for n in utils.partition_balanced(weights, pp)]


def test_every_layer_is_in_one_stage() -> None:
    for pp in (n for n in range(1, 97) if can_split(96, n)):
        split = stages(96, pp)
        assert sum(stage.layers for stage in split) == 96
        for end in ("embedding", "positions", "norm", "output"):
            assert sum(getattr(stage, end) for stage in split) == 1


def machines(**other: Any) -> Machines:
    """384 GPUs of 80 GiB."""
    given = {"gpus": 384, "node": 8, "memory": 80.0, "reserve": 4.0, "tflops": 150.0}
    return Machines(**(given | other))


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--train.precision fp16 --parallel.zero_stage 0",
        "--train.precision fp32 --parallel.zero_stage 0 --layers 94",
        "--parallel.sequence_parallel true --sequence 2044 --model.recompute true",
        "--model.attention core --model.recompute_attention true --heads 52",
    ],
)
def test_the_trainer_takes_every_usable_layout(flags: str) -> None:
    shape = "--layers 24 --hidden 3328 --rampup".split()
    config = config_of(*shape, "32 32 9765625", *flags.split())
    usable = [p for p in plan(config, machines(), [1, 2, 3, 4]) if p.is_usable]
    assert usable
    for planned in usable:
        own = settled(config, (planned.tp, planned.pp, planned.dp, planned.micro_batch))
        check(own, Machine(planned.gpus, True))


def test_what_fits_comes_first_and_the_fastest_of_it_on_top() -> None:
    found = plan(config_of(), machines(), [1, 8])
    keys = [(not p.is_usable, not p.fits, round(p.seconds, 3)) for p in found]
    assert keys == sorted(keys) and {p.fits for p in found} == {True, False}
    best = (found[0].tp, found[0].pp, found[0].dp)
    assert best == (8, 6, 8)  # a contender of the chronicle's sweep


def test_of_equally_fast_layouts_the_one_that_splits_least_is_on_top() -> None:
    config = config_of("--layers", "24", "--hidden", "1024", "--heads", "16")
    first = plan(config, machines(gpus=16), [1, 2])[0]
    assert (first.tp, first.pp, first.dp, first.micro_batch) == (1, 1, 16, 2)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [(206_189_288_448, "206B"), (1_311_000_000, "1.3B"), (355_871_744, "356M")],
)
def test_sizes_are_written_as_they_are_spoken(parameters: int, text: str) -> None:
    assert rendered.size(parameters) == text


def test_less_memory_is_met_by_recomputation_before_it_is_too_little() -> None:
    config, sizes = config_of(), (8, 12, 4, 2)
    ways = {}
    for gib in (80.0, 40.0, 20.0):
        rows = plan(config, machines(memory=gib), [2])
        found = next(p for p in rows if (p.tp, p.pp, p.dp, p.micro_batch) == sizes)
        ways[gib] = (found.recompute, found.fits)
    assert ways == {80.0: ("none", True), 40.0: ("full", True), 20.0: ("full", False)}


def test_attention_by_steps_recomputes_scores_before_whole_layers() -> None:
    config = config_of("--model.attention", "core")
    layer = [memory.layer_bytes(config, 8, 1, way) for way in ("none", "attention", "full")]
    assert layer == sorted(layer, reverse=True) and len(set(layer)) == 3


def test_ramp_up_must_come_out_at_every_batch() -> None:
    config = config_of("--rampup", "32 32 9765625")
    assert ramp_fault(config, 8 * 4) == ""
    assert ramp_fault(config, 6) == "32 % 6 = 2"
    found = plan(config, machines(), [1])
    assert all(p.ramp_fault for p in found if p.dp > 32)


def test_stages_are_full_from_a_batch_of_stages_x_micro_batch_x_replicas() -> None:
    """The chronicle writes 12*2*4=384; it is 96."""
    rows = plan(config_of(), machines(), [2])
    found = next(p for p in rows if (p.tp, p.pp, p.dp) == (8, 12, 4))
    assert found.filled_from == 96


def test_time_is_every_stage_once_and_the_slowest_for_each_further_micro_batch() -> None:
    assert estimates.iteration_seconds([2.0, 3.0], 4, 1.0) == 5.0 + 3 * 3.0
    assert estimates.bubble(12, 256) == pytest.approx(11 / 267)
    assert estimates.balance([2.0, 4.0]) == 0.75
    config = config_of("--train.micro_batch", "1")
    parts = stages(96, 12)
    none, full = (
        sum(estimates.stage_flops(config, part, way) for part in parts) for way in ("none", "full")
    )
    layers = 72 * 96 * 13312**2 * 2048 * (1 + 2048 / (6 * 13312))
    assert full - none == pytest.approx(layers / 3)


@pytest.mark.parametrize(
    ("flags", "kind", "says"),
    [
        ("--hidden 11600 --heads 80", "tile", "hidden 11600 % 64 = 16"),
        ("--hidden 11600 --heads 80", "heads", "head width 145 % 8 = 1"),
        ("--sequence 4096", "softmax", "before 2022 end at 2048"),
        ("--sequence 32768", "softmax", "above the fused softmax's 16384"),
        ("--sequence 2044", "softmax", "2044 % 8 = 4"),
        ("--heads 52 --parallel.tp 2", "softmax", "= 26 % 4 = 2"),
        ("--vocab 50257 --parallel.tp 4", "vocabulary", "50257 tokens are padded to 50688"),
        ("--hidden 1024 --heads 16", "wave", "2048 x 1024 is 64 tiles in 1 waves of 108, 59%"),
        ("--hidden 32768", "ratio", "hidden / layers 341"),
    ],
)
def test_remarks_carry_their_arithmetic(flags: str, kind: str, says: str) -> None:
    found = lints.lints(config_of(*flags.split()), 108)
    assert any(lint.kind == kind and says in lint.says for lint in found), found


def test_a_shape_that_suits_the_gpu_has_no_remark() -> None:
    flags = "--hidden 12288 --heads 96 --layers 80 --vocab 50176".split()
    assert lints.lints(config_of(*flags), 108) == []


def ran(capsys: Any, *more: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    code = command.main([*FLAGS, *more])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_table_says_what_is_estimated(capsys: Any) -> None:
    code, out, _ = ran(capsys, "--tokens", "300e9", "--top", "3")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("model: 206B (206189288448 parameters), 96 layers, hidden 13312")
    assert "days, 916,397 GPU hours for 300B tokens on 384 GPUs" in lines[1]
    header = next(line for line in lines if line.lstrip().startswith("TP"))
    assert all(word in header for word in ("act~", "sum~", "s/it~", "days~", "ramp"))
    assert len([line for line in lines if line.lstrip().startswith(("8 ", "4 "))]) == 3
    assert any("no communication" in line for line in lines)


def test_json_has_all_layouts_and_markdown_the_table(capsys: Any, tmp_path: Path) -> None:
    target = tmp_path / "plan.md"
    code, out, _ = ran(capsys, "--json", "-", "--markdown", str(target), "--top", "2")
    found = json.loads(out)
    assert code == 0 and found["schema"] == "hangdoctor.plan/1"
    first = found["layouts"][0]
    assert first["gpus"] == first["tp"] * first["pp"] * first["dp"]
    parts = {k: v for k, v in first["memory"].items() if k != "total"}
    assert sum(parts.values()) == first["memory"]["total"] and first["days"] is None
    assert len(found["layouts"]) > 100
    rows = [line for line in target.read_text().splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({row.count("|") for row in rows}) == 1


def test_nothing_that_fits_is_an_exit_code_of_its_own(capsys: Any) -> None:
    code, out, _ = ran(capsys, "--memory", "6", "--top", "1")
    assert code == command.NOTHING_FITS and "usable: 0" in out and "too large: stage" in out


def test_json_and_markdown_do_not_share_stdout(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*FLAGS, "--json", "-", "--markdown", "-"])
    assert ended.value.code == 2 and "one of them" in capsys.readouterr().err


def test_nothing_to_list_is_said(capsys: Any) -> None:
    code, out, _ = ran(capsys, "--global-batch", "7", "--micro-batches", "2")
    assert code == command.NOTHING_FITS and "layouts: 0, usable: 0" in out
    assert "no dp x micro-batch the global batch" in out


@pytest.mark.parametrize("flags", ["--gpus 0", "--gpus x", "--memory nan", "--top -1"])
def test_a_number_that_cannot_be_is_refused(capsys: Any, flags: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*FLAGS, *flags.split()])
    assert ended.value.code == 2 and "above 0, got" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--heads 63", "--model.hidden_size 13312 % --model.heads 63 = 19, must be 0"),
        ("--heads 13312 --model.position rope", "rope needs an even head width"),
        ("--vocab 0", "--vocab is missing"),
        ("--micro-batches 1,x", "--micro-batches takes numbers"),
        ("--model.layer 3", "did you mean 'model.layers'?"),
        ("--parallel.zero_stage 0", "bf16 with --parallel.zero_stage 0"),
        ("--rampup 1", "START INCREMENT SAMPLES"),
    ],
)
def test_wrong_usage_names_the_flag(capsys: Any, flags: str, says: str) -> None:
    code, _, err = ran(capsys, *flags.split())
    assert code == 2 and says in err
