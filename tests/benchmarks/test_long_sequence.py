"""Long sequences: lengths as they are written, what fits to the next thousand, and real steps."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from benchmarks.long_sequence import __main__ as command
from benchmarks.long_sequence.computed import longest, rank_bytes
from benchmarks.long_sequence.measured import reason
from hangdoctor.train.config import load_config
from hangdoctor.train.planning.memory import GIB

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

LARGE = ["--config", "train/configs/gpu_1b3.yaml", "--parallel.tp", "8"]


def test_lengths_are_ranges_of_doubles_or_lists() -> None:
    assert command.lengths("2k..16k") == [2048, 4096, 8192, 16384]
    assert command.lengths("256,6k") == [256, 6144] and command.lengths("") == []
    for text in ("2x", "0..4", "k"):
        with pytest.raises(argparse.ArgumentTypeError):
            command.lengths(text)


@pytest.mark.parametrize("mode", ["none", "sp", "ulysses"])
def test_the_longest_is_the_last_that_fits(mode: str) -> None:
    config = load_config(LARGE)
    end = longest(config, mode, "none", 76.0)
    assert end % 1024 == 0 and rank_bytes(config, mode, end, "none") <= 76 * GIB
    assert rank_bytes(config, mode, end + 1024, "none") > 76 * GIB
    assert longest(config, mode, "full", 76.0) > 2 * end
    assert longest(config, mode, "none", 0.001) == 0


def test_sharing_the_sequence_makes_longer_ones_fit() -> None:
    config = load_config(LARGE)
    plain, split, ulysses = (longest(config, m, "none", 76.0) for m in ("none", "sp", "ulysses"))
    assert plain < split < ulysses
    steps = load_config([*LARGE, "--model.attention", "core"])
    assert longest(steps, "none", "none", 76.0) < plain / 4  # a matrix of all scores


def test_what_ended_for_want_of_memory_is_out_of_memory() -> None:
    assert reason("torch.OutOfMemoryError: CUDA out of memory. Tried") == "OOM"
    assert reason("first\nValueError: wrong\n") == "ValueError: wrong"


def test_real_steps_are_in_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.json"
    words = "--lengths 2k,256k --modes sp --run 64 --steps 1 --json"
    assert command.main([*words.split(), str(file)]) == 0
    said = capsys.readouterr().out
    assert "\n| 2k | 3.6 | 2.9 |\n| 256k | OOM | 11.5 |\n" in said
    made = json.loads(file.read_text())
    [measured] = made["measured"]
    assert measured["failed"] == "" and measured["samples_per_second"] > 0
    assert measured["tflops"] > 0 and measured["peak_mb"] > 50
    assert "not yet run on a GPU" in said or made["gpu"]


def test_a_length_that_ranks_cannot_share_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--lengths", "2k", "--run", "130", "--tp", "8"])
    assert caught.value.code == 2
