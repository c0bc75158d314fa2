"""DeepSpeed's traps, weight decay by shape, the apex that is none, positions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from hangdoctor.train import deepspeed_guards as guards  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.engine import Timers, _beside_the_step, clip_gradients, parameter_groups  # noqa: E402
from hangdoctor.train.kernels import apex_support, rotary, softmax  # noqa: E402
from hangdoctor.train.kernels.registry import choose  # noqa: E402
from hangdoctor.train.model.position import Rotary, alibi_bias, alibi_slopes  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.random_state import RandomState  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("version", ["0.16.9", "0.18.2", "0.19.7", "0.20.0", "1.0"])
def test_a_deepspeed_that_trains_wrong_is_refused(version) -> None:
    with pytest.raises(ConfigError, match=r"pip install deepspeed==0\.19\.8"):
        guards.check_version(version)


@pytest.mark.parametrize("version", ["0.19.8", "0.19.9", "0.19.8+cpu"])
def test_the_pinned_one_is_accepted(version) -> None:
    guards.check_version(version)


class FakeEngine:
    """What check_engine looks at, all of it in order."""

    def __init__(self, **wrong) -> None:
        self.is_pipe_partitioned = self.is_grad_partitioned = False
        self.using_bf16_optimizer, self.stage = True, 1
        self._config = SimpleNamespace(
            activation_checkpointing_config=SimpleNamespace(partition_activations=False)
        )
        self.module, self.grid = (
            SimpleNamespace(tied_comms={"a": 1}),
            SimpleNamespace(pipe_parallel_size=2),
        )
        self.breakdown, self.communication_data_type = False, torch.float32
        for name, value in wrong.items():
            setattr(self, name, value)

    def wall_clock_breakdown(self) -> bool:
        return self.breakdown

    def flops_profiler_enabled(self) -> bool:
        return False

    def zero_optimization_stage(self) -> int:
        return self.stage

    def is_first_stage(self) -> bool:
        return True

    def is_last_stage(self) -> bool:
        return False


CONFIG = [
    "--parallel.tp",
    "2",
    "--parallel.pp",
    "2",
    "--parallel.sequence_parallel",
    "true",
    "--train.precision",
    "bf16",
]


def test_a_sound_engine_passes() -> None:
    guards.check_engine(FakeEngine(), load_config(CONFIG))


PARTITIONED = SimpleNamespace(
    activation_checkpointing_config=SimpleNamespace(partition_activations=True)
)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"is_pipe_partitioned": True}, "pipeline sends"),
        ({"is_grad_partitioned": True}, "pipeline sends"),
        ({"_config": PARTITIONED}, "partition_activations"),
        ({"breakdown": True}, "wall_clock_breakdown"),
        ({"using_bf16_optimizer": False}, "BF16 optimizer"),
        ({"communication_data_type": torch.bfloat16}, "communication_data_type must be fp32"),
        ({"stage": 2}, "zero_stage 0 or 1"),
        ({"module": SimpleNamespace(tied_comms={})}, "drift apart"),
    ],
)
def test_an_engine_that_would_train_wrong_is_refused(wrong, says) -> None:
    with pytest.raises(ConfigError, match=says):
        guards.check_engine(FakeEngine(**wrong), load_config(CONFIG))


def test_engine_configuration_avoids_the_traps() -> None:
    made = guards.engine_config(load_config(CONFIG), 8)
    assert made["pipeline"]["pipe_partitioned"] is made["pipeline"]["grad_partitioned"] is False
    assert made["data_types"] == {"grad_accum_dtype": "fp32"}
    assert made["wall_clock_breakdown"] is made["flops_profiler"]["enabled"] is False
    zero0 = guards.engine_config(load_config(["--parallel.zero_stage", "0"]), 8)
    assert zero0["gradient_clipping"] == 0.0  # the trainer clips itself


class FakeGrid:
    def get_slice_parallel_rank(self) -> int:
        return 0

    def get_model_parallel_world_size(self) -> int:
        return 1


@pytest.mark.parametrize(("grad", "skipped"), [(3.0, 0), (float("nan"), 1), (float("inf"), 1)])
def test_zero_0_skips_a_step_whose_gradients_are_not_finite(grad, skipped) -> None:
    """As DeepSpeed's optimizers do with ZeRO-1: one bad batch must not turn every weight into NaN."""
    module = nn.Linear(2, 2)
    for p in module.parameters():
        p.ds_pipe_replicated, p.grad = False, torch.full_like(p, grad)
    optimizer = torch.optim.AdamW(module.parameters(), weight_decay=0.1)
    engine = SimpleNamespace(
        module=module, grid=FakeGrid(), device=CPU, optimizer=optimizer, skipped_steps=0
    )
    before = module.weight.detach().clone()
    clip_gradients(engine, 1.0)
    optimizer.step()
    assert engine.skipped_steps == skipped
    assert torch.equal(module.weight, before) is bool(skipped)


class FakeZero:
    """DeepSpeed's ZeRO-1 optimizer as far as its norm: gradients by group, one of them with padding
    behind.
    """

    def __init__(self) -> None:
        padding = torch.full((3,), 7.0)
        padding._zero_padding = True
        self.params_in_partition = [["a", "b"], ["c"]]
        self.averaged_gradients = {0: [torch.ones(1), torch.ones(2), padding], 1: [torch.ones(3)]}
        self.reductions = []

    def get_grad_norm_direct(
        self, grads: list[torch.Tensor], parameters: list[str]
    ) -> torch.Tensor:
        self.reductions.append(parameters)
        return torch.cat(grads).norm()


def test_the_norm_takes_one_reduction_however_many_groups_a_stage_has() -> None:
    pytest.importorskip("deepspeed")
    optimizer = FakeZero()
    guards.norm_in_one_reduction(optimizer)
    assert float(optimizer.scaled_global_norm()) == pytest.approx(6**0.5)
    assert optimizer.reductions == [["a", "b", "c"]]


def test_the_grid_gets_its_missing_method() -> None:
    grid = SimpleNamespace(get_slice_parallel_group=lambda: "tp")
    guards.repair_grid(grid)
    assert grid.get_tensor_model_parallel_group() == "tp"


class MixedFusedLayerNorm(nn.Module):
    """A norm of a class that no list of classes knows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))


def test_norms_and_biases_never_decay_whatever_class_makes_them() -> None:
    module = nn.ModuleDict(
        {
            "a": nn.LayerNorm(4),
            "b": MixedFusedLayerNorm(),
            "c": nn.Linear(4, 4),
            "d": nn.Embedding(3, 4),
        }
    )
    groups = parameter_groups(module, 0.1)
    decayed = {id(p) for g in groups if g["weight_decay"] for p in g["params"]}
    assert decayed == {id(module["c"].weight), id(module["d"].weight)}
    assert sum(len(g["params"]) for g in groups) == len(list(module.parameters()))


def test_an_evaluation_leaves_no_trace_in_the_next_steps_timers_and_micro_batches() -> None:
    engine = SimpleNamespace(timed=Timers(CPU), forwards=0)
    engine.timed.enabled = True
    with _beside_the_step(engine):
        engine.forwards = 10
        engine.timed.run("forward-compute", lambda: None)
    engine.timed.run("optimizer", lambda: None)
    assert engine.forwards == 0
    assert list(engine.timed.take()) == ["optimizer"]


def test_the_apex_of_the_registry_is_distinguished_from_nvidias(tmp_path, monkeypatch) -> None:
    assert "not installed" in apex_support.unavailable()
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "is not NVIDIA's" in apex_support.unavailable()
    with pytest.raises(ConfigError, match="not NVIDIA's"):
        choose("apex", CPU)


def test_kernel_line_says_what_and_why() -> None:
    assert "torch's own are the fastest on CPU" in choose("auto", CPU).line()
    assert choose("reference", CPU).line().startswith("kernels: reference: bias_gelu")


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((2048, 2048, 8), True),
        ((2048, 1024, 8), False),
        ((16, 16, 8), False),
        ((2048, 2048, 27), False),
    ],
)
def test_apex_softmax_knows_its_shapes(shape, fits) -> None:
    assert (softmax.megatron_unfit(*shape) == "") is fits


def test_alibi_slopes() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(12)[8:] == [2.0 ** -(0.5 + i) for i in range(4)]
    bias = alibi_bias(torch.tensor(alibi_slopes(2)), 5)
    assert bias.dtype == torch.float32
    assert bias.shape == (2, 1, 5)


def test_rotary_depends_on_distance_only() -> None:
    cos, sin = Rotary(8, 10000.0).tables(12, CPU)
    q, k = torch.randn(8), torch.randn(8)
    turned_q, turned_k = (rotary.reference(x.expand(12, 1, 1, 8), cos, sin) for x in (q, k))
    products = [float(turned_q[i, 0, 0] @ turned_k[i - 3, 0, 0]) for i in range(3, 12)]
    assert products == pytest.approx([products[0]] * 9, abs=1e-5)


def test_dropout_streams() -> None:
    """Outside of tensor parallel regions ranks draw the same numbers, inside different ones, and
    recomputation repeats.
    """

    def draw(tp: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        state = RandomState(7, 0, 0, tp, CPU)
        outside = torch.rand(3)
        with state.tensor_parallel():
            inside = torch.rand(3)
        return outside, inside, torch.rand(3)

    (a, b, c), (d, e, f) = draw(0), draw(1)
    assert torch.equal(a, d)
    assert torch.equal(c, f)
    assert not torch.equal(b, e)


def test_recomputation_repeats_both_streams() -> None:
    state, seen = RandomState(7, 0, 0, 0, CPU), []

    def layer(x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rand(4)
        with state.tensor_parallel():
            z = y * torch.rand(4)
        seen.append(z.detach().clone())
        return z.sin()

    out = state.recompute(layer, torch.ones(4, requires_grad=True))
    with state.tensor_parallel():
        torch.rand(1)
    after = state.state()["tensor_parallel"]
    out.sum().backward()
    assert len(seen) == 2
    assert torch.equal(*seen)
    assert torch.equal(state.state()["tensor_parallel"], after)
