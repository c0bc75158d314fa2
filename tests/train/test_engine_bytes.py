"""What the planner says of memory against a real engine of 2 x 2 x 2 ranks.

Weights, gradients and optimizer must be equal to the byte. What autograd keeps is a formula: within
1 % here, on a CPU with torch's own kernels (measured: 4 bytes off, the loss itself).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from benchmarks.long_sequence.computed import exchanged_bytes, share_of_ulysses
from hangdoctor.train.config import load_config
from hangdoctor.train.planning.memory import in_flight, rank_memory
from hangdoctor.train.planning.stages import stages
from tests.support.trainer_ranks import ROOT, ranks

pytestmark = [pytest.mark.torch, pytest.mark.full, pytest.mark.timeout(240)]

NEAR = {"ulysses": 0.02}  # it keeps the rotary tables and labels of the whole sequence: 1.3 % here
SHAPE = (
    "--parallel.tp 2 --parallel.pp 2 --parallel.dp 2 --model.layers 4 --model.hidden_size 64"
    " --model.heads 4 --model.seq_length 64 --train.micro_batch 2 --train.global_batch 8"
    " --train.iterations 2 --data.workers 0"
)
CASES = {
    "bf16": "--train.precision bf16",
    "sequence": "--train.precision bf16 --parallel.sequence_parallel true --model.attention core",
    "alibi": "--train.precision bf16 --model.position alibi",
    "ulysses": "--train.precision bf16 --model.position rope --parallel.ulysses true",
    "recompute": "--train.precision fp32 --parallel.zero_stage 0 --model.recompute true",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    cases = {name: f"{SHAPE} {flags}".split() for name, flags in CASES.items()}
    (folder / "cases.json").write_text(json.dumps(cases))
    job_file = str(ROOT / "tests/support/jobs/engine_bytes.py")
    with ranks(1, [job_file, str(folder / "cases.json"), "8"], folder / "logs") as job:
        job.wait(200)
    return folder


@pytest.mark.parametrize("name", list(CASES))
def test_memory_is_that_of_a_real_engine(name: str, measured: Path) -> None:
    config = load_config(f"{SHAPE} --model.vocab_size 257 {CASES[name]}".split())
    recompute = "full" if config.model.recompute else "none"
    split = stages(config.model.layers, 2)
    for rank in range(8):
        found = json.loads((measured / f"{name}.{rank}.json").read_text())
        own = share_of_ulysses(config) if config.parallel.ulysses else config
        sizes = (own.parallel.tp, 2, 2)
        planned = rank_memory(own, split, rank // 4, sizes, recompute)
        assert planned.weights == found["weights"]
        assert planned.optimizer == found["optimizer"]
        if config.parallel.zero_stage:  # without, they are let go at the step's end
            assert planned.gradients == found["gradients"]
        saved = planned.activations + planned.logits
        if config.parallel.ulysses:
            stage = rank // 4
            flying = in_flight(stage, 2, 2) * split[stage].layers
            saved += flying * exchanged_bytes(own)
        assert saved == pytest.approx(found["saved"], rel=NEAR.get(name, 0.01))
