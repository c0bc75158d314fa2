"""The kernels that put several steps into one, in Triton's interpreter: rotary, residual and norm,
projection and cross entropy, bias gradients, AdamW over all tensors.
"""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("deepspeed")

from tests.support.kernels import (  # noqa: E402
    INSIDE,
    TOLERANCE,
    close,
    pair,
    run_in_the_interpreter,
    same,
)
from tests.support.trainer_ranks import ROOT, metrics, ranks, run_cases  # noqa: E402


@pytest.mark.skipif(INSIDE, reason="is the outer run")
@pytest.mark.timeout(600)
def test_in_the_interpreter() -> None:
    run_in_the_interpreter(__file__)


@pytest.mark.timeout(300)
@pytest.mark.skipif(INSIDE, reason="starts ranks of its own")
def test_a_vocabulary_that_two_ranks_split(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ranks(2, [str(ROOT / "tests/support/jobs/vocab_parallel.py")], tmp_path) as job:
        job.wait(250)
        assert "same" in job.text(0)


TINY = (
    "--model.layers 1 --model.hidden_size 16 --model.heads 2 --model.seq_length 8 --model.position rope"
    " --train.micro_batch 1 --train.global_batch 1 --train.iterations 4 --train.precision bf16"
    " --data.workers 0 --log.params_norm true"
).split()


@pytest.mark.timeout(400)
@pytest.mark.skipif(INSIDE, reason="starts ranks of its own")
def test_a_training_with_these_kernels_and_its_checkpoint_in_another_flavour(
    tmp_path, monkeypatch
) -> None:
    """In bf16 the optimizer's kernel writes the weights: without its copies nothing would move."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    saving = [*"--checkpoint.interval 2 --checkpoint.dir".split(), str(tmp_path / "saved")]
    loading = ["--checkpoint.load", str(tmp_path / "saved" / "global_step2")]
    cases = {
        "ours": [*TINY, "--kernels", "triton", *saving],
        "torch": TINY,
        "resumed": [*TINY, *loading],
    }
    run_cases(1, cases, tmp_path, timeout=350)
    ours, plain = (metrics(tmp_path, name) for name in ("ours", "torch"))
    assert len({line["params_norm"] for line in ours}) == 4
    for one, other in zip(ours, plain, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.01)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=0.05)
    for one, other in zip(metrics(tmp_path, "resumed"), ours[2:], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.01)


@pytest.mark.skipif(INSIDE, reason="nothing is tuned there")
def test_a_tuned_kernel_measures_a_few_candidates_once_a_row_shape() -> None:
    from hangdoctor.train.kernels import bias_dropout_add, bias_gelu, rotary

    for kernel in (bias_dropout_add._forward, bias_gelu._forward, rotary._turn):
        assert len(kernel.configs) == 4
        assert not {"n", "rows"} & set(kernel.keys)
    assert rotary._turn.restore_value == ["out"]


if INSIDE:
    from torch.nn import functional as F

    from hangdoctor.train.config import load_config
    from hangdoctor.train.kernels import (
        adam,
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
    from hangdoctor.train.kernels.registry import FLAVOURS, choose
    from hangdoctor.train.model.gpt import Loss, tied_output
    from hangdoctor.train.model.position import Rotary
    from hangdoctor.train.model.whole import WholeModel, whole_context
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
        monkeypatch.setattr(add_norm, "PROGRAMS", 2)  # several rows a program
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

    def stepped(flavour, start, steps, *, saved=None, first=0):
        """Weights after `steps` steps over tensors of odd sizes in two groups, and the state."""
        weights = [torch.nn.Parameter(t.clone()) for t in start]
        groups = [
            {"params": weights[:2], "weight_decay": 0.1},
            {"params": weights[2:], "weight_decay": 0.0},
        ]
        options = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8}
        optimizer = FLAVOURS["adam"][flavour](groups, **options)
        if saved:
            optimizer.load_state_dict(saved)
        for i in range(first, first + steps):
            for j, p in enumerate(weights):
                grad = torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) + j)
                p.grad = grad.view(p.shape)
            optimizer.step()
        return [p.detach() for p in weights], optimizer.state_dict()

    SIZES = [(1030,), (7, 3), (1,), (0,), (2, 60)]

    def test_adam_over_all_tensors_follows_torch() -> None:
        start = [torch.randn(size) for size in SIZES]
        expected, _ = stepped("torch", start, 6)
        made, _ = stepped("triton", start, 6)
        for one, other in zip(made, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize(
        "pair_of", [("torch", "triton"), ("triton", "torch"), ("reference", "triton")]
    )
    def test_adam_resumes_from_another_flavour(pair_of) -> None:
        before, after = pair_of
        start = [torch.randn(size) for size in SIZES]
        half, saved = stepped(before, start, 3)
        made, resumed = stepped(after, half, 3, saved=saved, first=3)
        expected, _ = stepped("torch", start, 6)
        for one, other in zip(made, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        assert all(s["step"] == 6 for s in resumed["state"].values())

    def test_adam_is_one_launch_for_all_tensors_and_writes_their_copies(monkeypatch) -> None:
        launches = []
        kernel = adam._step

        class Counted:
            def __getitem__(self, grid):
                launches.append(grid)
                return kernel[grid]

        monkeypatch.setattr(adam, "_step", Counted())
        weights = [torch.nn.Parameter(torch.randn(n)) for n in (1500, 40)]
        copies = [torch.zeros(n, dtype=torch.bfloat16) for n in (1500, 40)]
        optimizer = adam.fused([{"params": weights}], lr=1e-2)
        for weight, copy in zip(weights, copies, strict=True):
            optimizer.copy_out(weight, copy)
            weight.grad = torch.randn_like(weight)
        for _ in range(2):
            optimizer.step()
        assert launches == [(3,)] * 2
        for weight, copy in zip(weights, copies, strict=True):
            # The interpreter cuts bf16 off where a GPU rounds.
            torch.testing.assert_close(copy.float(), weight.detach(), rtol=2**-7, atol=0.0)

    def test_adam_takes_gradients_in_bf16_and_unaligned_weights() -> None:
        whole = torch.randn(131)
        weight = torch.nn.Parameter(whole[1:])
        assert weight.data_ptr() % 16
        other = torch.nn.Parameter(whole[1:].clone())
        grad = torch.randn(130).bfloat16()
        weight.grad = grad.float()
        other.grad = grad.float()
        adam.fused([{"params": [weight]}], lr=1e-2).step()
        torch.optim.AdamW([other], lr=1e-2, weight_decay=0.0).step()
        torch.testing.assert_close(weight, other, rtol=1e-6, atol=1e-6)

    MODELS = {
        "gpt": "--model.position rope",
        "llama": "--model.position rope --model.normalization rmsnorm --model.linear_bias false"
        " --model.activation swiglu --model.tie_embeddings false",
        "chunked": "--model.loss chunked --model.recompute true --model.position rope"
        " --data.reset_position_ids true --data.reset_attention_mask true",
        "dropped": "--model.hidden_dropout 0.0001 --model.attention core",
    }

    def trained_once(flags: str, flavour: str) -> list[torch.Tensor]:
        """Loss and gradients of a small model's micro-batch."""
        sizes = "--model.layers 1 --model.hidden_size 16 --model.heads 2 --model.seq_length 6"
        config = load_config([*sizes.split(), *flags.split()])
        cpu = torch.device("cpu")
        context = whole_context(config, 20, 19, cpu)
        context = dataclasses.replace(context, kernels=choose(flavour, cpu), vocab=(20, 24))
        model = WholeModel(context).train()
        tokens = torch.tensor([[3, 19, 5, 7, 19, 1], [2, 4, 6, 8, 10, 12]])
        stream = tokens
        for layer in model.stack[:-1]:
            stream = layer(stream)
        last = model.stack[-1]
        output = tied_output(last, stream) if config.model.tie_embeddings else last(stream)
        loss = Loss(context)(output, (tokens.roll(-1, 1), torch.ones(2, 6)))
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    @pytest.mark.parametrize("name", MODELS)
    def test_the_model_takes_the_kernels(name) -> None:
        made, expected = (
            trained_once(MODELS[name], flavour) for flavour in ("triton", "reference")
        )
        limit = {"rtol": 2e-3, "atol": 2e-4} if name == "dropped" else {"rtol": 1e-4, "atol": 2e-6}
        for one, other in zip(made, expected, strict=True):
            torch.testing.assert_close(one, other, **limit)
