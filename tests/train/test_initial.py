"""Weights at the start and rotary tables: each rank makes its own part, the model is the same in
every layout.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.train import initial  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.initial import normal  # noqa: E402
from hangdoctor.train.kernels.registry import choose  # noqa: E402
from hangdoctor.train.model.context import ModelContext  # noqa: E402
from hangdoctor.train.model.layers import TransformerLayer  # noqa: E402
from hangdoctor.train.random_state import RandomState  # noqa: E402
from hangdoctor.train.tensor_parallel.layers import Start  # noqa: E402
from hangdoctor.train.topology import TensorGroup  # noqa: E402

START = Start(1234, "layer3.up.weight", 0.02)
CPU = torch.device("cpu")


def context(flags: str, tp: TensorGroup) -> ModelContext:
    config = load_config(f"--model.hidden_size 32 --parallel.tp {tp.size} {flags}".split())
    kernels = choose("reference", CPU)
    random = RandomState(1, 0, 0, tp.rank, device=CPU)
    return ModelContext(config, tp, kernels, random, vocab=(257, 384))


@pytest.mark.parametrize("shape", [(48, 24), (1200, 504)], ids=["within a block", "many blocks"])
@pytest.mark.parametrize("tp", [2, 3, 8])
def test_slices_of_any_layout_make_the_same_weight(shape: tuple[int, int], tp: int) -> None:
    alone, groups = TensorGroup(), [TensorGroup(rank, tp) for rank in range(tp)]
    rows = torch.cat([START.rows(shape, g) for g in groups])
    assert torch.equal(rows, START.rows(shape, alone)) and rows.shape == shape
    columns = torch.cat([START.columns(shape, g) for g in groups], dim=1)
    assert torch.equal(columns, START.columns(shape, alone)) and columns.shape == shape
    assert START.columns(shape, groups[1]).is_contiguous()
    assert START.columns(shape, groups[1]).partition_dim == 1


def test_values_are_normal_and_differ_by_name_and_seed() -> None:
    one = normal(1, "a", range(2000), 1000, 2.0) / 2
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert float((one.double() ** power).mean()) == pytest.approx(moment, abs=0.015)
    assert torch.isfinite(one).all() and 4.8 < float(one.abs().max()) < 6.7
    flat = one.flatten().double()
    for lag in (1, initial._BLOCK // 2, initial._BLOCK):
        assert abs(float((flat[lag:] * flat[:-lag]).mean())) < 0.004
    for other in (normal(1, "b", range(2000), 1000, 1.0), normal(2, "a", range(2000), 1000, 1.0)):
        assert abs(float((one * other).mean())) < 0.004


def test_values_stay_what_they_are() -> None:
    """Two runs that are compared may be of different versions."""
    found = normal(1234, "embedding.weight", range(3), 2, 0.02).flatten().tolist()
    first = [0.0308706, -0.0134154, -0.0027751, 0.0278435, -0.0069861, -0.0280230]
    assert found == pytest.approx(first, rel=1e-4)


def test_a_rank_draws_its_own_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    original = initial._block
    monkeypatch.setattr(initial, "_block", lambda k, n: drawn.append(n) or original(k, n))
    part = START.columns((1024, 4096), TensorGroup(5, 8))
    assert len(drawn) == part.numel() // initial._BLOCK
    drawn.clear()
    part = START.rows((1024, 4096), TensorGroup(7, 8))
    assert len(drawn) == part.numel() // initial._BLOCK


def test_rotary_tables_are_made_once_a_model() -> None:
    shared = context("--model.position rope --model.seq_length 64", TensorGroup())
    layers = [TransformerLayer(shared, i) for i in range(3)]
    assert len({id(layer.attention.rotary) for layer in layers}) == 1
    for layer in layers:
        layer(torch.randn(64, 2, 32))
        layer(torch.randn(16, 2, 32))
    rotary = layers[0].attention.rotary
    [(cos, sin)] = rotary._tables.values()
    # float32 cosine and sine of half a head's width (32 / 4 / 2) at the longest sequence seen.
    assert cos.nbytes + sin.nbytes == 2 * 4 * 64 * 4
