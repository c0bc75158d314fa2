"""The kernels that put several steps into one, in Triton's interpreter: rotary, residual and norm,
projection and cross entropy, bias gradients.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.support.kernels import (  # noqa: E402
    INSIDE,
    TOLERANCE,
    close,
    pair,
    run_in_the_interpreter,
    same,
)


@pytest.mark.skipif(INSIDE, reason="is the outer run")
@pytest.mark.timeout(600)
def test_in_the_interpreter() -> None:
    run_in_the_interpreter(__file__)


@pytest.mark.skipif(INSIDE, reason="nothing is tuned there")
def test_a_tuned_kernel_measures_a_few_candidates_once_a_row_shape() -> None:
    from hangdoctor.train.kernels import bias_dropout_add, bias_gelu, rotary

    for kernel in (bias_dropout_add._forward, bias_gelu._forward, rotary._turn):
        assert len(kernel.configs) == 4
        assert not {"n", "rows"} & set(kernel.keys)
    assert rotary._turn.restore_value == ["out"]


if INSIDE:
    from torch.nn import functional as F

    from hangdoctor.train.kernels import (
        add_norm,
        bias_dropout_add,
        bias_gelu,
        column_sum,
        cross_entropy,
        linear_cross_entropy,
        norm,
        rotary,
        triton_support,
    )
    from hangdoctor.train.kernels.registry import FLAVOURS
    from hangdoctor.train.model.position import Rotary
    from hangdoctor.train.topology import TensorGroup

    ONE = TensorGroup()
    TYPES = [torch.float32, torch.bfloat16]

    @pytest.fixture(autouse=True)
    def _seed() -> None:
        torch.manual_seed(0)

    def tables(length: int, d: int, positions: torch.Tensor | None = None):
        return Rotary(d, 10000.0).tables(length, torch.device("cpu"), positions)

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize(("heads", "d"), [(1, 2), (3, 12), (5, 64)])
    def test_rotary(dtype, heads, d) -> None:
        cos, sin = tables(7, d)
        x, xd = pair(7, 2, heads, d, dtype=dtype)
        same(
            lambda t: rotary.fused(t, cos, sin),
            lambda t: rotary.reference(t, cos.double(), sin.double()),
            [x],
            [xd],
        )

    def test_rotary_at_the_positions_of_documents_and_of_a_permuted_input() -> None:
        positions = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]])
        cos, sin = tables(5, 8, positions)
        (x, xd) = pair(2, 3, 5, 8)
        same(
            lambda t: rotary.fused(t.permute(2, 0, 1, 3), cos, sin),
            lambda t: rotary.reference(t.permute(2, 0, 1, 3), cos.double(), sin.double()),
            [x],
            [xd],
        )
        gap = torch.randn(5, 2, 3, 16)[..., ::2]
        torch.testing.assert_close(
            rotary.fused(gap, cos, sin), rotary.reference(gap, cos, sin), **TOLERANCE[torch.float32]
        )

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize(("heads", "d"), [(1, 4), (3, 20)])
    def test_rotary_of_query_and_key(dtype, heads, d) -> None:
        cos, sin = tables(5, d)
        x, xd = pair(5, 2, heads, 3, d, dtype=dtype)
        same(
            lambda t: rotary.fused_qkv(t, cos, sin),
            lambda t: rotary.reference_qkv(t, cos.double(), sin.double()),
            [x],
            [xd],
        )

    def test_query_and_key_turn_where_they_lie_and_a_leaf_stays() -> None:
        cos, sin = tables(5, 8)
        leaf = torch.randn(5, 2, 3, 3, 8, requires_grad=True)
        before = leaf.detach().clone()
        made = leaf * 1.0
        q, _, _ = rotary.fused_qkv(made, cos, sin)
        assert q.data_ptr() == made.data_ptr()
        assert rotary.fused_qkv(leaf, cos, sin)[0].data_ptr() != leaf.data_ptr()
        assert torch.equal(leaf, before)

    def test_who_kept_the_turned_projection_is_refused() -> None:
        cos, sin = tables(5, 8)
        made = torch.randn(5, 1, 2, 3, 8, requires_grad=True) * 1.0
        kept = made.square().sum()  # its gradient needs `made` as it was
        rotary.fused_qkv(made, cos, sin)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            kept.backward()

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize(("rows", "h"), [(1, 1), (70, 33), (130, 70)])
    def test_column_sum(dtype, rows, h) -> None:
        x = torch.randn(rows, h).to(dtype)
        made = column_sum.column_sum(x, h, torch.float32)
        close(made, x.double().sum(0), torch.float32)
        assert torch.equal(made, column_sum.column_sum(x, h, torch.float32))
        turned = torch.randn(h, rows).to(dtype).t()
        close(
            column_sum.column_sum(turned, h, torch.float32), turned.double().sum(0), torch.float32
        )

    def test_a_bias_gradient_writes_nothing_of_the_inputs_size() -> None:
        assert column_sum.partials(torch.empty(8192, 8192, device="meta"), 8192).shape == (
            128,
            8192,
        )

    @pytest.mark.parametrize("dtype", TYPES)
    def test_bias_gradients_over_several_stripes(dtype, monkeypatch) -> None:
        monkeypatch.setattr(column_sum, "STRIPES", 2)  # several tiles a program
        (x, xd), (b, bd) = pair(131, 70, dtype=dtype), pair(70, dtype=dtype)
        same(bias_gelu.fused, bias_gelu.reference, [x, b], [xd, bd])
        (x, xd), (b, bd) = pair(131, 70, dtype=dtype), pair(70, dtype=dtype)
        (r, rd) = pair(131, 70, dtype=dtype)
        plain = bias_dropout_add.reference
        same(
            lambda *a: bias_dropout_add.fused(*a, 0.0, True),
            lambda *a: plain(*a, 0.0, True),
            [x, b, r],
            [xd, bd, rd],
        )

    def test_the_bias_gradient_of_dropped_rows() -> None:
        x, bias = torch.randn(150, 70, requires_grad=True), torch.zeros(70, requires_grad=True)
        bias_dropout_add.fused(x, bias, torch.zeros(150, 70), 0.3, True).square().sum().backward()
        close(bias.grad, x.grad.double().sum(0), torch.float32)

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("residual_type", TYPES)
    @pytest.mark.parametrize(("biased", "centred"), [(True, True), (False, False)])
    def test_residual_and_norm(dtype, residual_type, biased, centred, monkeypatch) -> None:
        monkeypatch.setattr(norm, "MOST", 2)  # several rows a program
        h = 50
        (x, xd), (w, wd) = pair(7, h, dtype=dtype), pair(h, dtype=dtype)
        (r, rd), (b, bd) = pair(7, h, dtype=residual_type), pair(h, dtype=dtype)
        (xb, xbd) = pair(h, dtype=dtype)
        names = ["layer_norm_add", "rms_norm_add"]
        name = names[0] if centred else names[1]

        def call(flavour):
            function = getattr(add_norm, f"{name}_{flavour}")

            def run(x, r, w, *rest):
                rest = list(rest)
                bias = [rest.pop(0)] if centred else []
                total, normed = function(
                    x, r, w, *bias, 1e-5, x_bias=rest.pop() if biased else None
                )
                assert flavour == "reference" or total.dtype == r.dtype
                assert flavour == "reference" or normed.dtype == w.dtype
                return total, normed

            return run

        inputs = [x, r, w, *([b] if centred else []), *([xb] if biased else [])]
        wide = [xd, rd, wd, *([bd] if centred else []), *([xbd] if biased else [])]
        same(call("fused"), call("reference"), inputs, wide)

    def test_residual_and_norm_round_as_the_two_steps_do() -> None:
        x, r = (torch.randn(9, 40).bfloat16() for _ in range(2))
        w, b = torch.randn(40).bfloat16(), torch.randn(40).bfloat16()
        total, normed = add_norm.layer_norm_add_fused(x, r, w, b, 1e-5)
        assert torch.equal(normed, norm.layer_norm_fused(total, w, b, 1e-5))

    def plain_losses(logits, target, real):
        flat = logits[..., :real].flatten(0, -2)
        return F.cross_entropy(flat, target.flatten(), reduction="none").view(target.shape)

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize(("columns", "real"), [(16, 11), (5000, 4097), (8, 8)])
    @pytest.mark.parametrize("flavour", ["torch", "triton"])
    def test_the_padding_takes_no_part_in_cross_entropy(dtype, columns, real, flavour) -> None:
        (x, xd), target = pair(2, 3, columns, scale=4.0, dtype=dtype), torch.randint(real, (2, 3))
        with torch.no_grad():
            x[..., real:] = float("nan")  # never read
        function = FLAVOURS["cross_entropy"][flavour]
        same(
            lambda t: function(t, target, ONE, real),
            lambda t: plain_losses(t, target, real),
            [x],
            [xd],
        )
        assert not x.grad[..., real:].any()

    @pytest.mark.parametrize("flavour", ["torch", "triton"])
    def test_the_gradient_takes_the_memory_of_the_logits(flavour) -> None:
        leaf, target = torch.randn(4, 30, requires_grad=True), torch.randint(20, (4,))
        function = FLAVOURS["cross_entropy"][flavour]
        logits = leaf * 1.0
        logits.retain_grad()
        seen = []
        logits.register_hook(lambda grad: seen.append(grad.data_ptr()))
        losses = function(logits, target, ONE, 20).sum()
        losses.backward(retain_graph=True)
        assert seen == [logits.data_ptr()]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            losses.backward()
        before = leaf.detach().clone()
        function(leaf, target, ONE, 20).sum().backward()
        assert torch.equal(leaf, before)

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("chunk", [0, 4])
    @pytest.mark.parametrize("flavour", ["torch", "triton"])
    def test_projection_and_cross_entropy(dtype, chunk, flavour) -> None:
        (hidden, hd), (w, wd) = pair(11, 24, dtype=dtype), pair(40, 24, dtype=dtype)
        target = torch.randint(33, (11,))
        function = FLAVOURS["linear_cross_entropy"][flavour]
        same(
            lambda a, b: function(a, b, target, ONE, vocab_size=33, chunk=chunk),
            lambda a, b: plain_losses(a @ b.t(), target, 33),
            [hidden, w],
            [hd, wd],
        )

    @pytest.mark.parametrize("flavour", ["torch", "triton"])
    def test_never_more_logits_than_a_piece(flavour, monkeypatch) -> None:
        made = []
        linear = F.linear

        def seen(x, weight):
            made.append(tuple(linear(x, weight).shape))
            return linear(x, weight)

        monkeypatch.setattr(F, "linear", seen)
        hidden, w = torch.randn(10, 8, requires_grad=True), torch.randn(16, 8, requires_grad=True)
        function = FLAVOURS["linear_cross_entropy"][flavour]
        function(hidden, w, torch.randint(16, (10,)), ONE, chunk=4).sum().backward()
        assert made == [(4, 16), (4, 16), (2, 16)] * 2

    @pytest.mark.parametrize("candidate", range(4))
    def test_every_candidate_of_a_tuned_kernel_makes_the_same_bits(candidate, monkeypatch) -> None:
        """A rank that measures another winner must not hold other weights."""
        cos, sin = tables(3, 12)
        x, bias, residual = torch.randn(3, 2, 5, 12), torch.randn(12), torch.randn(3, 2, 5, 12)

        def made():
            torch.manual_seed(1)
            dropped = bias_dropout_add.fused(x, bias, residual, 0.3, True)
            return rotary.fused(x, cos, sin), bias_gelu.fused(x, bias), dropped

        first = made()
        for kernel in (bias_dropout_add._forward, bias_gelu._forward):
            monkeypatch.setattr(kernel, "sizes", triton_support.ELEMENTWISE[candidate][0])
        monkeypatch.setattr(rotary._turn, "sizes", rotary.CANDIDATES[candidate][0])
        assert all(torch.equal(one, other) for one, other in zip(first, made(), strict=True))

    # Offsets beyond 2^31 elements: memory that is asked for and hardly touched.
    FAR = 2**30

    def test_cross_entropy_reads_rows_beyond_32_bits() -> None:
        logits = torch.empty(3, FAR, dtype=torch.bfloat16)
        logits[:, :9] = torch.randn(3, 9)
        target = torch.tensor([1, 8, 4])
        made = cross_entropy.fused(logits, target, ONE, 9)
        close(made, plain_losses(logits[:, :9].double(), target, 9), torch.float32)

    def test_rotary_turns_tokens_beyond_32_bits() -> None:
        x = torch.empty(3 * FAR, dtype=torch.bfloat16).as_strided((3, 1, 1, 8), (FAR, 8, 8, 1))
        x.copy_(torch.randn(3, 1, 1, 8))
        cos, sin = tables(3, 8)
        close(rotary.fused(x, cos, sin), rotary.reference(x, cos, sin), torch.bfloat16)

    def test_column_sums_reach_beyond_32_bits() -> None:
        x, bias = torch.empty(3, FAR, dtype=torch.bfloat16), torch.randn(64)
        out, sums = torch.empty(3, FAR, dtype=torch.bfloat16), torch.empty(1, 64)
        x[:, :64] = torch.randn(3, 64)
        sizes = {"height": column_sum.ROWS, "width": column_sum.COLUMNS}
        column_sum._sums[(1, 1)](x, sums, 3, FAR, **sizes)
        close(sums[0], x[:, :64].double().sum(0), torch.float32)
        bias_gelu._backward[(1, 1)](x, x, bias, out, sums, rows=3, columns=FAR, **sizes)
        v = (x[:, :64].double() + bias.double()).requires_grad_()
        F.gelu(v, approximate="tanh").backward(x[:, :64].double())
        close(sums[0], v.grad.sum(0), torch.float32)
        close(out[:, :64], v.grad, torch.bfloat16)

    def test_what_wants_no_gradient_gets_none() -> None:
        hidden, w = torch.randn(5, 8), torch.randn(16, 8, requires_grad=True)
        linear_cross_entropy.fused(hidden, w, torch.randint(16, (5,)), ONE).sum().backward()
        assert hidden.grad is None
        assert w.grad is not None
