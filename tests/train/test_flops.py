"""The formula of a step's FLOPs against torch's own count of the trainer's layers."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from benchmarks.trainer import kernel_bytes  # noqa: E402
from hangdoctor.train import deepspeed_guards, flops  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.kernels.registry import choose  # noqa: E402
from hangdoctor.train.model.context import ModelContext  # noqa: E402
from hangdoctor.train.model.gpt import layer_specs, project_out  # noqa: E402
from hangdoctor.train.model.whole import WholeModel, whole_context  # noqa: E402
from hangdoctor.train.random_state import RandomState  # noqa: E402
from hangdoctor.train.topology import TensorGroup  # noqa: E402

ROOT = Path(__file__).parents[2]
VOCAB, BATCH = 384, 2


@pytest.mark.parametrize(("ffn", "activation"), [(0, "gelu"), (96, "gelu"), (96, "swiglu")])
def test_the_formula_is_what_torch_counts(ffn: int, activation: str) -> None:
    """Attention step by step is made of products that torch counts."""
    deepspeed_guards.prepare(False)
    flags = "--model.layers 2 --model.hidden_size 64 --model.heads 4 --model.seq_length 32"
    flags += f" --model.ffn_hidden_size {ffn} --model.attention core --train.micro_batch {BATCH}"
    flags += f" --model.activation {activation}"
    config = load_config([*flags.split(), "--train.global_batch", str(BATCH)])
    device = torch.device("cpu")
    random = RandomState(1, 0, 0, 0, device)
    context = ModelContext(
        config, TensorGroup(), choose("reference", device), random, (VOCAB, VOCAB)
    )
    specs = layer_specs(context)
    embedding, *layers = [specs[n].build() for n in (0, 2, 3)]
    x = torch.randn(32, BATCH, 64, requires_grad=True)
    with FlopCounterMode(display=False) as counted:
        hidden = x
        for layer in layers:
            hidden = layer(hidden)
        project_out(embedding, hidden, context).sum().backward()
    width = ffn or 4 * 64
    assert config.ffn_hidden_size == width
    wanted = flops.step_flops(config.model, VOCAB, BATCH, ffn=width, recompute=False)
    assert counted.get_total_flops() == pytest.approx(wanted)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--model.normalization rmsnorm --model.parallel_block true --model.tie_embeddings false",
        "--model.activation swiglu --model.linear_bias false --model.position rope",
        "--model.activation swiglu --model.embedding_norm true",
    ],
)
def test_parameters_are_counted_as_they_are_made(flags: str) -> None:
    words = f"--model.layers 3 --model.hidden_size 32 --model.seq_length 16 {flags}"
    config = load_config(words.split())
    made = WholeModel(whole_context(config, VOCAB, 0, torch.device("cpu")))
    counted = flops.parameter_count(config.model, config.ffn_hidden_size, VOCAB)
    assert counted == sum(p.numel() for p in made.parameters())


def test_the_bytes_in_the_documentation_are_those_computed(capsys) -> None:
    kernel_bytes.main(["--config", str(ROOT / "train/configs/gpu_1b3.yaml")])
    text = (ROOT / "docs/PERFORMANCE.md").read_text()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 9
    assert all(row in text for row in rows)
