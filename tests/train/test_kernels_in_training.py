"""The kernels in a training: AdamW over all tensors, the model, two ranks, a checkpoint; in Triton's
interpreter.
"""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("deepspeed")

from tests.support.kernels import (  # noqa: E402
    INSIDE,
    run_in_the_interpreter,
)
from tests.support.trainer_ranks import ROOT, metrics, ranks, run_cases  # noqa: E402


@pytest.mark.full
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


if INSIDE:
    from hangdoctor.train.config import load_config
    from hangdoctor.train.kernels import (
        adam,
    )
    from hangdoctor.train.kernels.registry import FLAVOURS, choose
    from hangdoctor.train.model.gpt import Loss, tied_output
    from hangdoctor.train.model.whole import WholeModel, whole_context

    @pytest.fixture(autouse=True)
    def _seed() -> None:
        torch.manual_seed(0)

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
