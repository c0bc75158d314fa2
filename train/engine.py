"""DeepSpeed's pipeline engine, built, guarded, and instrumented at each of its instructions.

DeepSpeed runs an iteration as a list of instructions (load, forward, send, ...). Each is wrapped
once, here: phase mark for the probe, timer, fault.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import deepspeed_guards, faults, marks, sizes
from .checkpoint.universal import universal_info
from .config import Config
from .model.context import ModelContext
from .model.documents import joined, parts
from .model.gpt import TIED, Loss, layer_specs
from .topology import Topology

# instruction -> (probe phase, place of faults, name in Megatron's timers line)
_INSTRUCTIONS = {
    "LoadMicroBatch": ("data", "data", "batch-generator"),
    "ForwardPass": ("forward", "forward", "forward-compute"),
    "BackwardPass": ("backward", "backward", "backward-compute"),
    "SendActivation": ("pipeline", "send", "forward-send"),
    "RecvActivation": ("pipeline", "recv", "forward-recv"),
    "SendGrad": ("pipeline", "send", "backward-send"),
    "RecvGrad": ("pipeline", "recv", "backward-recv"),
    "ReduceTiedGrads": ("reduce", "tied", "backward-embedding-all-reduce"),
    "ReduceGrads": ("reduce", "dp", "backward-params-all-reduce"),
    "OptimizerStep": ("optimizer", "optimizer", "optimizer"),
}


class Timers:
    """Seconds spent in each instruction since the last `take`."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.enabled = False
        self._spent: dict[str, float] = {}

    def run(self, name: str, action: Callable[[], Any]) -> Any:
        """Run `action` and add its seconds to `name`, where timers are on; returns its result."""
        if not self.enabled:
            return action()
        start = self._now()
        try:
            return action()
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + self._now() - start

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def take(self) -> dict[str, float]:
        """Seconds by name since the last call."""
        spent, self._spent = self._spent, {}
        return spent


def parameter_groups(module: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay, vectors do not: a norm or bias is recognized by its shape, never by its
    class.

    A class test missed every LayerNorm that was not the one class asked for; the embedding's norm
    was decayed, and training jumped at each restart.
    """
    decayed = [p for p in module.parameters() if p.requires_grad and p.dim() >= 2]
    rest = [p for p in module.parameters() if p.requires_grad and p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return [g for g in groups if g["params"]]


def build_engine(config: Config, topology: Topology, context: ModelContext, batch_size: int) -> Any:
    """The engine of this rank; collective over the world.

    Raises:
        ConfigError: the engine would train wrong (see deepspeed_guards).
    """
    import deepspeed
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    p, o = config.parallel, config.optimizer
    with deepspeed_guards.quiet():
        module = deepspeed.PipelineModule(
            layers=layer_specs(context),
            topology=PipeModelDataParallelTopology(num_pp=p.pp, num_mp=p.tp, num_dp=p.dp),
            loss_fn=Loss(context),
            partition_method=p.partition,
            # Layers recompute themselves, see RandomState.recompute.
            activation_checkpoint_interval=0,
        )
        deepspeed_guards.repair_grid(module.mpu())
        if config.model.weights:
            start_from(module, config, context)
        module.universal_checkpoint_info = universal_info(
            module, context.tensor.size, context.vocab[0]
        )
        optimizer = context.kernels.adam(
            parameter_groups(module, o.weight_decay), lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps
        )
        engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=optimizer,
            config=deepspeed_guards.engine_config(config, batch_size),
        )
    deepspeed_guards.check_engine(engine, config)
    if p.zero_stage == 1 and config.train.precision != "bf16":
        deepspeed_guards.norm_in_one_reduction(engine.optimizer)
    if engine.using_bf16_optimizer and getattr(optimizer, "writes_copies", False):
        deepspeed_guards.copies_from_the_step(engine.optimizer, optimizer)
    engine.timed, engine.forwards = Timers(topology.device), 0
    engine.sequence_length = config.model.seq_length  # what the stages' buffers are made for
    engine.beside_the_step = partial(_beside_the_step, engine)
    _instrument(engine, config, topology)
    return engine


def start_from(module: torch.nn.Module, config: Config, context: ModelContext) -> None:
    """Put the weights of `--model.weights` into the layers that this rank has.

    Raises:
        ConfigError: they are of another model.
    """
    from .hugging_face.exchange import fill_layers, read_model

    tied = f"tied_modules.{TIED}."
    layers = {
        f"0.{name.removeprefix(tied)}" if name.startswith(tied) else name: parameter
        for name, parameter in module.named_parameters()
    }
    numbers = {int(name.partition(".")[0]) for name in layers}
    whole = read_model(Path(config.model.weights), config, numbers)
    fill_layers(layers, whole, context.weights, context.vocab[0])


@contextmanager
def _beside_the_step(engine: Any) -> Iterator[None]:
    """Forward passes of an evaluation: they are none of the next step's, neither in its timers nor
    in its micro-batches.
    """
    enabled, engine.timed.enabled = engine.timed.enabled, False
    try:
        yield
    finally:
        engine.timed.enabled, engine.forwards = enabled, 0


def _instrument(engine: Any, config: Config, topology: Topology) -> None:
    """Give the engine its own table of instructions, each wrapped."""
    extra: dict[str, Callable[[Any], None]] = {}
    own_part = [p for p in engine.module.parameters() if getattr(p, "sequence_partial", False)]
    if config.split_sequence:
        extra["ReduceTiedGrads"] = lambda self: reduce_partial_gradients(self, own_part, topology)
    extra["OptimizerStep"] = partial(_before_the_optimizer, config=config)
    if not engine.zero_optimization() and config.train.precision == "fp32":
        # The engine's own walks all names of all modules, milliseconds a step.
        engine.zero_grad = lambda: engine.optimizer.zero_grad(set_to_none=True)
    methods = dict(engine._INSTRUCTION_MAP)
    if (
        config.parallel.dp == 1 and config.parallel.zero_stage == 0
    ):  # flattens all gradients to reduce them over no one
        methods = {k: (_nothing if k.__name__ == "ReduceGrads" else m) for k, m in methods.items()}
    engine._INSTRUCTION_MAP = {
        kind: _wrapped(method, *_INSTRUCTIONS[kind.__name__], extra.get(kind.__name__))
        for kind, method in methods.items()
    }


def _before_the_optimizer(engine: Any, config: Config) -> None:
    if config.log.num_zeros:
        engine.zeros = sizes.zeros(engine, gradient)
    if not deepspeed_guards.own_clipping_unneeded(config):
        clip_gradients(engine, config.train.clip_grad)


def _nothing(engine: Any) -> None:
    """An instruction with nothing to do on this topology."""


def _wrapped(
    method: Callable[..., Any],
    phase: str,
    place: str,
    timer: str,
    first: Callable[[Any], None] | None,
) -> Callable[..., Any]:
    def instruction(self: Any, *args: Any, **options: Any) -> None:
        if timer == "forward-compute":
            self.forwards += 1
            marks.micro_batch(self.forwards)
        elif timer == "optimizer":
            self.forwards = 0
        with marks.phase(phase):
            if faults.point(place, **_fault_context(self, place)):
                _stand_in(self, timer, options)
                return
            if first is not None:
                first(self)
            self.timed.run(timer, lambda: method(self, *args, **options))
            faults.point(f"after_{place}", **_fault_context(self, place))

    return instruction


def _stand_in(engine: Any, name: str, options: dict[str, Any]) -> None:
    """An activation that was not received: the rank goes on with zeros of its shape."""
    if name == "forward-recv":
        hidden, documents = parts(engine.pipe_recv_buf)
        missing = torch.zeros_like(hidden).requires_grad_()
        engine.pipe_buffers["inputs"][options["buffer_id"]] = joined(missing, documents)


def _fault_context(engine: Any, place: str) -> dict[str, Any]:
    """For faults made of collectives: the data parallel group, and a tensor to send."""
    if place != "dp" or not (faults.armed_at("dp") or faults.armed_at("after_dp")):
        return {}
    group = engine.grid.get_data_parallel_group()
    tensor = torch.ones(1024, device=engine.device)
    return {
        "engine": True,
        "tensor": tensor,
        "group": group,
        "ranks": engine.grid.get_data_parallel_group_ranks(),
    }


def gradient(engine: Any, parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """Where the engine adds up this parameter's gradient: fp32 beside a bf16 model, else in place."""
    return parameter._hp_grad if engine.using_bf16_optimizer else parameter.grad


def reduce_partial_gradients(
    engine: Any, parameters: Iterable[torch.nn.Parameter], topology: Topology
) -> None:
    """Sum over the tensor parallel ranks what each computed from its part of the sequence, in one
    message.
    """
    grads = [g for g in (gradient(engine, p) for p in parameters) if g is not None]
    if not grads:
        return
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat, group=topology.tensor.group)
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def clip_gradients(engine: Any, limit: float) -> None:
    """Global norm over tensor and pipeline ranks, each weight counted once; scales the gradients
    down to `limit`.
    """
    grid, grads, counted = engine.grid, [], []
    for p in engine.module.parameters():
        if p.grad is None:
            continue
        grads.append(p.grad)
        whole = grid.get_slice_parallel_rank() > 0 and not getattr(
            p, "tensor_model_parallel", False
        )
        if not (whole or p.ds_pipe_replicated):
            counted.append(p.grad)
    total = torch.zeros((), dtype=torch.float64, device=engine.device)
    if counted:
        total += torch.stack(torch._foreach_norm(counted)).double().square().sum()
    if grid.get_model_parallel_world_size() > 1:
        dist.all_reduce(total, group=grid.get_model_parallel_group())
    norm = float(total.sqrt())
    engine._global_grad_norm = norm
    if not math.isfinite(norm):  # as ZeRO-1 does: one bad batch must not make every weight NaN
        engine.optimizer.zero_grad(set_to_none=True)
        engine.skipped_steps += 1
    elif limit > 0 and norm > limit:
        torch._foreach_mul_(grads, limit / (norm + 1e-6))


def loss_scale(engine: Any) -> float:
    """The scale of the loss in fp16, 1.0 in other precisions."""
    if not engine.fp16_enabled():
        return 1.0
    return float(engine.optimizer.loss_scale)


def set_learning_rate(engine: Any, value: float) -> None:
    """Set it in all parameter groups."""
    for group in engine.optimizer.param_groups:
        group["lr"] = value
