"""Triton kernels in Triton's interpreter against the references in float64: values and gradients."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from tests.support.kernels import INSIDE, run_in_the_interpreter  # noqa: E402


@pytest.mark.skipif(INSIDE, reason="is the outer run")
@pytest.mark.timeout(600)
def test_kernels_in_the_interpreter() -> None:
    run_in_the_interpreter(__file__)


if INSIDE:
    from hangdoctor.train.kernels import (
        adam,
        bias_dropout_add,
        bias_gelu,
        cross_entropy,
        norm,
        softmax,
    )
    from hangdoctor.train.kernels.registry import FLAVOURS, choose
    from hangdoctor.train.topology import TensorGroup

    TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}

    def pair(*shape: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """The same numbers as float32 and as float64, both wanting gradients."""
        single = (torch.randn(*shape) * scale).requires_grad_()
        return single, single.detach().double().requires_grad_()

    def same(fused, reference, inputs, wide) -> None:
        """Values and gradients of `fused` on float32 are those of `reference` on float64."""
        y, expected = fused(*inputs), reference(*wide)
        torch.testing.assert_close(y.double(), expected.double(), **TOLERANCE)
        weight = torch.randn(y.shape)
        (y * weight).sum().backward()
        (expected * weight.double()).sum().backward()
        for got, want in zip(inputs, wide, strict=True):
            if isinstance(got, torch.Tensor) and got.requires_grad:
                torch.testing.assert_close(got.grad.double(), want.grad, **TOLERANCE)

    @pytest.fixture(autouse=True)
    def _seed() -> None:
        torch.manual_seed(0)

    @pytest.mark.parametrize("shape", [(3, 2, 8), (5, 1, 33)])
    def test_bias_gelu(shape) -> None:
        (x, xd), (b, bd) = pair(*shape, scale=3.0), pair(shape[-1])
        same(bias_gelu.fused, bias_gelu.reference, (x, b), (xd, bd))

    def test_bias_gelu_far_out_is_finite() -> None:
        x = torch.tensor([[-200.0, 200.0]])
        assert bias_gelu.fused(x, torch.zeros(2)).tolist() == [[0.0, 200.0]]

    @pytest.mark.parametrize("keys", [5, 16])
    @pytest.mark.parametrize("queries", [5, 3])
    def test_causal_softmax(queries, keys) -> None:
        x, xd = pair(2, 3, queries, keys, scale=4.0)
        same(lambda t: softmax.fused(t, 0.37), lambda t: softmax.reference(t, 0.37), (x,), (xd,))

    def test_causal_softmax_sees_nothing_ahead() -> None:
        p = softmax.fused(torch.randn(1, 1, 6, 6), 1.0)
        assert torch.equal(p.triu(1), torch.zeros_like(p))

    @pytest.mark.parametrize(("rows", "h"), [(7, 16), (3, 50)])
    def test_norms(rows, h, monkeypatch) -> None:
        monkeypatch.setattr(norm, "MOST", 2)  # several rows a program
        (x, xd), (w, wd), (b, bd) = pair(rows, h), pair(h), pair(h)
        layer = [
            lambda t, u, v, f=f: f(t, u, v, 1e-5)
            for f in (norm.layer_norm_fused, norm.layer_norm_reference)
        ]
        same(*layer, (x, w, b), (xd, wd, bd))
        (x, xd), (w, wd) = pair(rows, h), pair(h)
        rms = [
            lambda t, u, f=f: f(t, u, 1e-5) for f in (norm.rms_norm_fused, norm.rms_norm_reference)
        ]
        same(*rms, (x, w), (xd, wd))

    def test_bias_dropout_add_without_dropout() -> None:
        (x, xd), (b, bd), (r, rd) = pair(3, 2, 10), pair(10), pair(3, 2, 10)
        fused, plain = bias_dropout_add.fused, bias_dropout_add.reference
        same(
            lambda *a: fused(*a, 0.0, True),
            lambda *a: plain(*a, 0.0, True),
            (x, b, r),
            (xd, bd, rd),
        )

    @pytest.mark.parametrize(("rows", "h"), [(64, 64), (150, 70), (40, 300)])
    def test_dropout_mask_is_the_same_forward_and_backward(rows, h) -> None:
        """Whether four elements in a row share a draw there, or rows are of another length."""
        x, bias = torch.ones(rows, h, requires_grad=True), torch.zeros(h)
        y = bias_dropout_add.fused(x, bias, torch.zeros(rows, h), 0.25, True)
        y.sum().backward()
        assert torch.equal(x.grad, y)  # both are 1 / 0.75 where kept, 0 elsewhere
        assert 0.70 < (y > 0).float().mean() < 0.80
        torch.testing.assert_close(y.max(), torch.tensor(1 / 0.75))

    def test_dropout_draws_from_torchs_stream() -> None:
        """Another mask each time, and the same one when the stream is set back, as recomputation
        does.
        """
        x, bias, residual = torch.ones(8, 300), torch.zeros(300), torch.zeros(8, 300)
        before = torch.get_rng_state()
        first, second = (bias_dropout_add.fused(x, bias, residual, 0.5, True) for _ in range(2))
        assert not torch.equal(first, second)
        torch.set_rng_state(before)
        assert torch.equal(bias_dropout_add.fused(x, bias, residual, 0.5, True), first)

    @pytest.mark.parametrize("columns", [11, 5000])
    def test_cross_entropy(columns) -> None:
        (x, xd), target = pair(2, 3, columns, scale=5.0), torch.randint(columns, (2, 3))
        one = TensorGroup()

        def plain(t):
            return torch.nn.functional.cross_entropy(
                t.flatten(0, 1), target.flatten(), reduction="none"
            ).view(2, 3)

        same(lambda t: cross_entropy.fused(t, target, one), plain, (x,), (xd,))

    def test_adam_follows_torch() -> None:
        options = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8}
        start = torch.randn(130)
        made = {}
        for name in ("reference", "triton", "torch"):
            p = torch.nn.Parameter(start.clone())
            optimizer = FLAVOURS["adam"][name]([{"params": [p], "weight_decay": 0.1}], **options)
            for i in range(5):
                p.grad = torch.sin(torch.arange(130.0) * (i + 1))
                optimizer.step()
            made[name] = p.detach()
        torch.testing.assert_close(made["triton"], made["torch"], **TOLERANCE)
        torch.testing.assert_close(made["reference"], made["torch"], **TOLERANCE)
        assert not torch.equal(made["torch"], start)

    def test_auto_on_a_gpu_is_triton() -> None:
        assert set(choose("auto", torch.device("cuda")).used.values()) == {"triton"}

    def test_triton_is_chosen_when_asked_for() -> None:
        kernels = choose("triton", torch.device("cpu"))
        assert set(kernels.used.values()) == {"triton"}
        assert kernels.adam is adam.fused
        assert "interpreter" in kernels.line()
