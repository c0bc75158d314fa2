"""Several documents in one sample: places, masks, the loss, and that one does not see another."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.data.loader import ShardedBatches  # noqa: E402
from hangdoctor.train.model.documents import (  # noqa: E402
    documents_of,
    positions_in,
    same_document,
)
from hangdoctor.train.model.gpt import Loss  # noqa: E402
from hangdoctor.train.model.whole import WholeModel, whole_context  # noqa: E402

END, CPU = 9, torch.device("cpu")
TOKENS = torch.tensor([[1, 2, END, 3, 4, 5, END, 6], [END, 1, 2, 3, 4, 5, 6, 7]])
BOTH = "--data.reset_position_ids true --data.reset_attention_mask true"


def model(flags: str) -> WholeModel:
    words = "--model.layers 2 --model.hidden_size 32 --model.seq_length 8 --model.init_std 0.3"
    config = load_config(f"{words} {flags}".split())
    return WholeModel(whole_context(config, 10, END, CPU)).eval()


def test_where_documents_begin() -> None:
    documents = documents_of(TOKENS, END)
    assert documents.tolist() == [[0, 0, 0, 1, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1, 1, 1]]
    assert positions_in(documents).tolist() == [[0, 1, 2, 0, 1, 2, 3, 0], [0, 0, 1, 2, 3, 4, 5, 6]]
    assert same_document(documents)[0, 0, 4].tolist() == [False] * 3 + [True] * 4 + [False]


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--model.attention core",
        "--model.position rope",
        "--model.position alibi",
        "--model.position alibi --model.attention core",
        "--model.recompute true",
        "--model.recompute_attention true",
    ],
)
def test_documents_do_not_see_each_other(flags: str) -> None:
    made = model(f"{flags} {BOTH}").train("recompute" in flags)
    changed = TOKENS.clone()
    changed[0, 0], changed[0, 1] = 7, 8
    before, after = made(TOKENS), made(changed)
    assert torch.equal(before[0, 3:], after[0, 3:]) and not torch.equal(before[0, :3], after[0, :3])
    alone = made(TOKENS[:1, 3:7])
    assert torch.allclose(alone[0], before[0, 3:7], atol=1e-5), "as if it were alone"
    # Without the flags it does see them: the test can fail.
    made = model(flags).train("recompute" in flags)
    assert not torch.allclose(made(TOKENS)[0, 3:], made(changed)[0, 3:], atol=1e-3)


@pytest.mark.parametrize("position", ["learned", "rope"])
def test_positions_alone_start_anew(position: str) -> None:
    """Without the mask the first document is seen, and the second one counts from 0."""
    made = model(f"--model.position {position} --data.reset_position_ids true")
    plain = model(f"--model.position {position}")
    ours, theirs = made(TOKENS), plain(TOKENS)
    assert torch.allclose(ours[0, :3], theirs[0, :3], atol=1e-6)
    assert not torch.allclose(ours[0, 4:], theirs[0, 4:], atol=1e-3)


def test_what_follows_the_end_of_a_document_counts_for_no_loss() -> None:
    class Here:
        tensor = type("Group", (), {"size": 1})
        device = CPU

    tokens = torch.cat([TOKENS, torch.tensor([[7], [END]])], dim=1)
    read, (labels, mask) = next(ShardedBatches(iter([tokens]), Here, (2, 9), END))  # type: ignore[arg-type]
    assert mask.tolist() == (read != END).float().tolist() and mask.sum() == 13
    made = model("")
    logits = made(read).transpose(0, 1)
    loss = Loss(made.context)(logits, (labels, mask))
    each = torch.nn.functional.cross_entropy(
        logits.transpose(0, 1).flatten(0, 1), labels.flatten(), reduction="none"
    )
    kept = each[mask.flatten() > 0]
    assert float(loss.detach()) == pytest.approx(float(kept.detach().mean()), rel=1e-5)
    nothing = Loss(made.context)(logits, (labels, torch.zeros_like(mask)))
    assert float(nothing.detach()) == 0.0


def test_recomputed_attention_has_the_same_gradients() -> None:
    grads = []
    for flags in ("", "--model.recompute_attention true", "--model.recompute true"):
        made = model(f"{flags} --model.attention_dropout 0.2").train()
        torch.manual_seed(3)
        made(TOKENS).square().mean().backward()
        grads.append([p.grad for p in made.parameters()])
    for other in grads[1:]:
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(grads[0], other, strict=True))


def test_an_fp32_residual_stream_under_bf16() -> None:
    exact = model("")(TOKENS)
    errors = []
    for flags in ("", "--model.fp32_residual true"):
        made = model(f"--train.precision bf16 {flags}").bfloat16()
        hidden = made.stack[2](made.stack[1](made.stack[0](TOKENS)))
        assert hidden.dtype == (torch.float32 if flags else torch.bfloat16)
        logits = made(TOKENS)
        assert logits.dtype == torch.bfloat16
        errors.append(float((logits.float() - exact).detach().square().mean()))
        logits.float().square().mean().backward()
        assert all(p.grad.dtype == torch.bfloat16 for p in made.parameters())
    assert errors[1] < errors[0]
