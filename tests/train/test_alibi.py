"""ALiBi through torch's fused attention: columns beside query and key give the bias, and no matrix of
scores is made.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.model.position import (  # noqa: E402
    alibi_bias,
    alibi_columns,
    alibi_slopes,
    with_alibi,
)
from hangdoctor.train.model.whole import WholeModel, whole_context  # noqa: E402
from hangdoctor.train.planning.memory import alibi_columns as planned_columns  # noqa: E402

CPU = torch.device("cpu")
HEADS = 6  # no power of two: two slopes are no whole powers of two


def exact(q, k, v, slopes):
    """Attention step by step in float64."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores + alibi_bias(slopes, q.shape[2]).double()
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 3e-5), (torch.bfloat16, 1e-2)])
def test_values_and_gradients_are_those_of_attention_step_by_step(dtype, limit, backend) -> None:
    torch.manual_seed(0)
    slopes = torch.tensor(alibi_slopes(HEADS))
    ours = [torch.randn(1, HEADS, 300, 20).to(dtype).requires_grad_() for _ in range(3)]
    scale = 20**-0.5
    with sdpa_kernel(backend):
        wide = with_alibi(*ours, slopes, scale)
        y = F.scaled_dot_product_attention(*wide, is_causal=True, scale=scale)
    assert {t.shape[-1] % 8 for t in wide} == {0}
    assert not y[..., 20:].any()
    theirs = [t.detach().double().requires_grad_() for t in ours]
    wanted = exact(*theirs, slopes)
    towards = torch.randn_like(wanted)
    found = torch.autograd.grad(y[..., :20], ours, towards.to(dtype))
    for one, other in zip(
        (y[..., :20], *found),
        (wanted, *torch.autograd.grad(wanted, theirs, towards)),
        strict=True,
    ):
        error = (one - other).detach().abs().max() / other.detach().abs().max()
        assert float(error) < limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_last_positions_of_a_long_sequence_are_exact(dtype) -> None:
    """bf16 itself has no whole number between 65536 and 66048."""
    slopes, length, scale = torch.tensor(alibi_slopes(HEADS)), 70_000, 80**-0.5
    steep, places = (t.double() for t in alibi_columns(slopes, length, dtype, scale))
    bias = (steep @ places.T)[:, 0] * scale
    wanted = slopes.double()[:, None] * torch.arange(length)
    assert torch.allclose(bias, wanted, rtol=2e-7, atol=0)


def model(attention: str, *flags: str) -> WholeModel:
    words = "--model.layers 2 --model.hidden_size 32 --model.seq_length 256 --model.init_std 0.3"
    words += f" --model.position alibi --model.attention {attention}"
    return WholeModel(whole_context(load_config([*words.split(), *flags]), 300, 299, CPU))


def test_the_model_is_the_same_and_keeps_no_matrix_of_scores() -> None:
    tokens = torch.arange(256)[None]
    logits, shapes = {}, {}
    for attention in ("core", "sdpa"):
        kept: list[tuple[int, ...]] = []

        def keep(tensor, kept=kept):
            kept.append(tuple(tensor.shape[-2:]))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits[attention] = model(attention)(tokens)
        shapes[attention] = kept
    assert torch.allclose(logits["core"], logits["sdpa"], atol=1e-4)
    assert (256, 256) in shapes["core"] and (256, 256) not in shapes["sdpa"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("length", [256, 257, 65_537])
def test_the_plan_counts_the_same_columns(length, precision) -> None:
    flags = f"--model.position alibi --model.seq_length {length} --train.precision {precision}"
    config = load_config([*flags.split(), "--model.hidden_size", "80"])
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    q = torch.zeros(1, 4, 1, 20, dtype=dtype).expand(-1, -1, length, -1)
    wide = with_alibi(q, q, q, torch.tensor(alibi_slopes(4)), 1.0)
    assert wide[0].shape[-1] - 20 == planned_columns(config)
