"""torch.compile of the transformer layer: the same numbers, one graph for all layers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.model.whole import WholeModel, whole_context  # noqa: E402

# Dynamo alone takes most of a minute on a busy machine.
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
TOKENS = torch.arange(16).view(2, 8) % 10
WORDS = "--model.layers 3 --model.hidden_size 32 --model.seq_length 8"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def results(flags: str) -> list[torch.Tensor]:
    config = load_config(f"{WORDS} {flags}".split())
    made = WholeModel(whole_context(config, 10, 9, torch.device("cpu"))).train()
    torch.manual_seed(3)
    logits = made(TOKENS)
    logits.square().mean().backward()
    return [logits.detach(), *(p.grad for p in made.parameters())]


def compared(flags: str, backend: str) -> None:
    for one, other in zip(results(flags), results(f"{flags} --compile {backend}"), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    "flags", ["--data.reset_attention_mask true", "--model.position rope --model.recompute true"]
)
def test_all_layers_share_one_graph_without_a_break(flags: str) -> None:
    compared(flags, "aot_eager")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_dropout_draws_the_same_numbers() -> None:
    """Changing the random state is outside of the graphs."""
    compared("--model.hidden_dropout 0.1 --model.attention_dropout 0.1", "aot_eager")


@pytest.mark.parametrize("flags", ["", "--model.position rope --model.recompute true"])
def test_compiled_by_inductor(flags: str) -> None:
    compared(flags, "inductor")
