"""What DeepSpeed 0.19.8 does wrong or slowly, and the way round each. Nothing else in `train` works
around it.

Three moments: `prepare` before anything of DeepSpeed runs, `engine_config` for what its
configuration must say, `check_engine` for what the finished engine must look like. A newer
DeepSpeed is refused until someone has compared its losses and gradient norms with the reference
(`python -m benchmarks.trainer_parity`).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .config import Config
from .options import ConfigError, is_number

VERSIONS = ("0.19.8", "0.20")  # first that trains right here, first that no one has tried


def prepare(has_gpu: bool) -> Any:
    """Import DeepSpeed, set up so that it neither compiles nor chatters.

    Raises:
        ConfigError: not installed, or a version outside of VERSIONS.
    """
    if not has_gpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # Its launcher notes and INFO lines would come once a rank.
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "warning")
    try:
        deepspeed = importlib.import_module("deepspeed")
    except ImportError as error:
        raise ConfigError(
            f"DeepSpeed is not installed ({error}): DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed==0.19.8"
        ) from error
    check_version(deepspeed.__version__)
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    mute_warnings()
    allow_ranks_without_slices()
    # init_distributed would compile deepspeed_shm_comm: half a minute, and an error without g++.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    return deepspeed


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:3] if is_number(part))


def check_version(version: str) -> None:
    """Raises ConfigError for a DeepSpeed that is known or feared to train wrong."""
    low, high = VERSIONS
    if not _version(low) <= _version(version) < _version(high):
        raise ConfigError(
            f"DeepSpeed {version} is installed; this trainer needs >={low},<{high}. Earlier ones train wrong with "
            f"pipelines (gradient norms off by up to 5 orders), later ones are untested: pip install deepspeed=={low}"
        )


def engine_config(config: Config, batch_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration. `batch_size`: samples of the first iteration."""
    t, precision = config.train, config.train.precision
    made: dict[str, Any] = {
        "train_batch_size": batch_size,
        "train_micro_batch_size_per_gpu": t.micro_batch,
        "gradient_clipping": t.clip_grad if own_clipping_unneeded(config) else 0.0,
        "zero_optimization": {"stage": config.parallel.zero_stage},
        # Torch's fused AdamW; its own would compile for a minute.
        "zero_allow_untested_optimizer": True,
        # Partitioned sends assume whole sequences: with sequence parallelism the loss is wrong,
        # silently.
        "pipeline": {"pipe_partitioned": False, "grad_partitioned": False, "use_reentrant": False},
        # Asserts on timers that exist on the last stage only; the trainer has its own timers and
        # FLOP count.
        "wall_clock_breakdown": False,
        "flops_profiler": {"enabled": False},
        "steps_per_print": 2**31,
        "checkpoint": {"load_universal": config.checkpoint.universal},
    }
    if precision == "bf16":
        made["bf16"] = {"enabled": True}
        made["data_types"] = {"grad_accum_dtype": "fp32"}
        # Unasked, it rounds the fp32 sums to bf16 for the data parallel reduction, on one rank too.
        made["communication_data_type"] = "fp32"
    if precision == "fp16":
        made["fp16"] = {
            "enabled": True,
            "loss_scale": 0,
            "initial_scale_power": t.initial_loss_scale_power,
            "loss_scale_window": t.loss_scale_window,
            "hysteresis": t.loss_scale_hysteresis,
        }
    return made


def own_clipping_unneeded(config: Config) -> bool:
    """ZeRO-0 in fp32 clips each stage by its own norm, tied and replicated weights counted twice:
    the trainer clips.
    """
    return config.parallel.zero_stage == 1 or config.train.precision != "fp32"


def set_group_timeout(seconds: float) -> None:
    """Give every group that DeepSpeed makes the job's time limit; it passes none, and gets 30
    minutes.
    """
    from datetime import timedelta

    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    limit, original = timedelta(seconds=seconds), dist.new_group
    if getattr(original, "has_limit", False):
        return

    def new_group(*args: Any, **options: Any) -> Any:
        if options.get("timeout") is None and len(args) < 2:
            options["timeout"] = limit
        return original(*args, **options)

    new_group.has_limit = True  # type: ignore[attr-defined]
    dist.new_group = distributed_c10d.new_group = new_group


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep DeepSpeed's prints (topology, stages, timers) off stdout: the trainer prints its own
    summary.
    """
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def repair_grid(grid: Any) -> None:
    """The grid lacks a method that DeepSpeed's own activation checkpointing asks it for."""
    if not hasattr(grid, "get_tensor_model_parallel_group"):
        grid.get_tensor_model_parallel_group = grid.get_slice_parallel_group


def check_engine(engine: Any, config: Config) -> None:
    """Refuse an engine that would train wrong without an error.

    Raises:
        ConfigError: naming what is off.
    """
    _check_partitions(engine, config)
    _check_precision(engine, config)
    _check_tied(engine, config)


def _check_partitions(engine: Any, config: Config) -> None:
    if engine.is_pipe_partitioned or engine.is_grad_partitioned:
        raise ConfigError(
            "DeepSpeed partitions its pipeline sends: with sequence parallelism that trains wrong"
        )
    checkpointing = engine._config.activation_checkpointing_config
    if config.split_sequence and checkpointing.partition_activations:
        raise ConfigError(
            "partition_activations with a split sequence gives wrong gradients: switch it off"
        )
    if engine.wall_clock_breakdown() or engine.flops_profiler_enabled():
        raise ConfigError(
            "wall_clock_breakdown and flops_profiler fail on all stages except the last: "
            "switch them off"
        )
    if engine.zero_optimization_stage() > 1:
        raise ConfigError(
            "ZeRO stages 2 and 3 do not work with pipelines: --parallel.zero_stage 0 or 1"
        )


def _check_precision(engine: Any, config: Config) -> None:
    import torch

    if config.train.precision != "bf16":
        return
    if not engine.using_bf16_optimizer:
        raise ConfigError("bf16 without DeepSpeed's BF16 optimizer would add up gradients in bf16")
    if engine.communication_data_type != torch.float32:
        raise ConfigError(
            "DeepSpeed would round the fp32 gradients to bf16 to reduce them: "
            "communication_data_type must be fp32"
        )


def _check_tied(engine: Any, config: Config) -> None:
    if not config.model.tie_embeddings or config.parallel.pp < 2:
        return
    if engine.grid.pipe_parallel_size < 2:
        return
    is_end = engine.is_first_stage() or engine.is_last_stage()
    if is_end and not getattr(engine.module, "tied_comms", {}):
        raise ConfigError(
            "the tied embedding has no group between first and last stage: it would drift apart"
        )


def norm_in_one_reduction(optimizer: Any) -> None:
    """ZeRO-1 reduces the norm over all stages once a parameter group, and a stage without vectors
    has a group less.

    The last of four stages may hold the output projection alone: the ranks would wait for each
    other in the first step.
    """
    from deepspeed.runtime.utils import combine_grad_norm_groups

    def scaled_global_norm(norm_type: int = 2) -> Any:
        grads, parameters = [], []
        for i, owned in enumerate(optimizer.params_in_partition):
            real = [
                g for g in optimizer.averaged_gradients[i] if not getattr(g, "_zero_padding", False)
            ]
            pairs = list(zip(real, owned, strict=False))  # as the engine pairs them
            grads += [g for g, _ in pairs]
            parameters += [p for _, p in pairs]
        return combine_grad_norm_groups(
            [optimizer.get_grad_norm_direct(grads, parameters)], norm_type=norm_type
        )

    optimizer.scaled_global_norm = scaled_global_norm


def copies_from_the_step(zero: Any, inner: Any) -> None:
    """The kernel of the step writes the bf16 weights too: the pass over all weights that would copy
    them is left out, once a step. Any other copy, of a load, is made as before.
    """
    partitions = zip(zero.fp32_groups_flat_partition, zero.bf16_partitioned_groups, strict=True)
    for weight, copies in partitions:
        inner.copy_out(weight, copies[zero.dp_rank])
    copy, gather = zero.update_lp_params, _gathered_only(zero)

    def update() -> None:
        (gather if inner.has_copied() else copy)()

    zero.update_lp_params = update


def _gathered_only(zero: Any) -> Callable[[], None]:
    """The second half of `update_lp_params`: every rank's partition to all of them."""
    from deepspeed.runtime.utils import all_gather_dp_groups

    def gather() -> None:
        all_gather_dp_groups(
            groups_flat=zero.bf16_groups_flat,
            partitioned_param_groups=zero.bf16_partitioned_groups,
            dp_process_group=zero.real_dp_process_group,
            start_alignment_factor=zero.nccl_start_alignment_factor,
            allgather_bucket_size=zero.allgather_bucket_size,
        )

    return gather


def allow_ranks_without_slices() -> None:
    """With Ulysses the ranks beyond the first hold no weight slice of their own, and the bf16 norm
    fails on an empty list.
    """
    import torch
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime import bf16_optimizer

    original = bf16_optimizer.get_global_norm_of_tensors
    if getattr(original, "takes_none", False):
        return

    def norm(input_tensors: list[Any], *args: Any, **options: Any) -> Any:
        if not input_tensors:
            input_tensors = [torch.zeros(1, device=get_accelerator().current_device_name())]
        return original(input_tensors, *args, **options)

    norm.takes_none = True  # type: ignore[attr-defined]
    bf16_optimizer.get_global_norm_of_tensors = norm


def mute_warnings() -> None:
    """Warnings of DeepSpeed's calls into torch that no one here can act on, once a rank each."""
    for text in (
        ".*is deprecated. Please use `torch.distributed.*",
        "c10d::.*an autograd kernel was not registered.*",
    ):
        warnings.filterwarnings("ignore", message=text)
