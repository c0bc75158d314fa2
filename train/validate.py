"""Checks across options, made before any process group exists; every message carries its
arithmetic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config import Config
from .curriculum import curriculum_complaints
from .kernels.adam8bit import adam8bit_complaints
from .options import ConfigError, is_number
from .passing_over import passed_over, skip_complaints
from .schedule import batch_size
from .spikes.options import spike_complaints

if TYPE_CHECKING:
    from .faults.spec import Fault  # the package imports torch, the checks do not


@dataclass(frozen=True)
class Machine:
    """What the checks must know of the machine."""

    world_size: int
    has_gpu: bool


def check(config: Config, machine: Machine) -> None:
    """Settle what is derived (dp) and refuse what does not fit together.

    Raises:
        ConfigError: with all complaints, one a line.
    """
    _world_size(config, machine.world_size)
    complaints = [c for rule in RULES for c in rule(config, machine)]
    if complaints:
        raise ConfigError("\n".join(complaints))


def _world_size(config: Config, world_size: int) -> None:
    """Every other rule divides by dp: this one comes first and alone."""
    p = config.parallel
    model = p.tp * p.pp
    wanted = p.dp or world_size // model
    if wanted * model != world_size or wanted < 1:
        dp = f"{p.dp}" if p.dp else f"{world_size} // {model} = {world_size // model}"
        raise ConfigError(
            f"world size {world_size} is not tp x pp x dp = {p.tp} x {p.pp} x {wanted} = {wanted * model} (dp: {dp}): "
            f"start {max(1, wanted) * model} processes, or change --parallel.tp, --parallel.pp or --parallel.dp"
        )
    p.dp = wanted


def _batches(config: Config, _: Machine) -> Iterator[str]:
    micro, dp = config.train.micro_batch, config.parallel.dp
    try:
        sizes = batch_size(config.train).sizes()
    except ConfigError as error:
        yield str(error)
        return
    for size in sizes:
        if size % (micro * dp):
            what = (
                "--train.global_batch"
                if size == config.train.global_batch
                else "--train.rampup reaches a batch of"
            )
            yield (
                f"{what} {size} is not micro_batch x accumulation x dp: {size} % ({micro} x {dp}) = {size % (micro * dp)}"
            )


def _model(config: Config, _: Machine) -> Iterator[str]:
    m, tp = config.model, config.parallel.tp
    if m.hidden_size % m.heads:
        yield f"--model.hidden_size {m.hidden_size} % --model.heads {m.heads} = {m.hidden_size % m.heads}, must be 0"
    if m.heads % tp:
        yield f"--model.heads {m.heads} % --parallel.tp {tp} = {m.heads % tp}, must be 0"
    if config.ffn_hidden_size % config.weight_tp:
        yield f"MLP width {config.ffn_hidden_size} % --parallel.tp {tp} = {config.ffn_hidden_size % tp}, must be 0"
    if m.position == "rope" and m.hidden_size % m.heads == 0 and m.hidden_size // m.heads % 2:
        yield f"--model.position rope needs an even head width, it is {m.hidden_size} / {m.heads} = {m.hidden_size // m.heads}"
    if m.hidden_dropout >= 1 or m.attention_dropout >= 1:
        yield "--model.hidden_dropout and --model.attention_dropout must be below 1: nothing would be left"
    d = config.data
    if m.position == "alibi" and d.reset_position_ids and not d.reset_attention_mask:
        yield (
            "--data.reset_position_ids with --model.position alibi needs --data.reset_attention_mask: "
            "ALiBi knows distances alone, and those between documents would be wrong"
        )
    if m.recompute and m.recompute_attention:
        yield "--model.recompute and --model.recompute_attention: the first includes the second, choose one"


def _stages(config: Config, _: Machine) -> Iterator[str]:
    layers, pp, how = config.model.layers, config.parallel.pp, config.parallel.partition
    if how not in ("uniform", "parameters") and not how.startswith("type:"):
        yield f"--parallel.partition is '{how}'; it must be uniform, parameters or type:REGEX"
        return
    if how.startswith("type:"):
        yield from _regex(config)
    if layers < pp:
        yield f"--model.layers {layers} over --parallel.pp {pp} leaves {pp - layers} stages without a layer"
        return
    embeddings = how == "type:transformer|embedding"
    if embeddings and (layers + 2) % pp and layers % pp:
        yield (
            f"layers % stages: ({layers} + 2 embeddings) % {pp} = {(layers + 2) % pp} and {layers} % {pp} = {layers % pp}; "
            f"one of them must be 0 for even stages: change --model.layers or --parallel.pp"
        )
    if not embeddings and how != "parameters" and layers % pp:
        yield f"layers % stages: {layers} % {pp} = {layers % pp}, must be 0: change --model.layers or --parallel.pp"


def _regex(config: Config) -> Iterator[str]:
    """DeepSpeed gives each stage the same number of layers whose class matches; a stage without a
    layer would be left.
    """
    how, pp, m = config.parallel.partition, config.parallel.pp, config.model
    last = "WordEmbedding" if m.tie_embeddings else "OutputEmbedding"
    names = ["WordEmbedding", "InputLayer", *["TransformerLayer"] * m.layers, "FinalNorm", last]
    try:
        hits = sum(
            bool(re.search(how.removeprefix("type:"), name, re.IGNORECASE)) for name in names
        )
    except re.error as error:
        yield f"--parallel.partition {how}: no regular expression ({error})"
        return
    if hits < pp:
        yield f"--parallel.partition {how} matches {hits} layers for {pp} stages; the classes are {', '.join(sorted(set(names)))}"


def _sequence(config: Config, _: Machine) -> Iterator[str]:
    p, seq = config.parallel, config.model.seq_length
    if p.sequence_parallel and p.ulysses:
        yield "--parallel.sequence_parallel and --parallel.ulysses both split the sequence over the tp ranks: choose one"
    for flag, on in (("sequence_parallel", p.sequence_parallel), ("ulysses", p.ulysses)):
        if on and p.tp == 1:
            yield f"--parallel.{flag} splits the sequence over the tp ranks, and --parallel.tp is 1"
        elif on and seq % p.tp:
            yield f"--parallel.{flag}: --model.seq_length {seq} % --parallel.tp {p.tp} = {seq % p.tp}, must be 0"


def _precision(config: Config, machine: Machine) -> Iterator[str]:
    precision = config.train.precision
    if precision == "fp16" and not machine.has_gpu:
        yield "--train.precision fp16 needs a GPU (DeepSpeed has no fp16 on CPU): use bf16 or fp32"
    if precision == "bf16" and config.parallel.zero_stage == 0:
        yield "--train.precision bf16 with --parallel.zero_stage 0: DeepSpeed refuses the pair; use zero_stage 1"
    if precision == "fp16" and config.parallel.zero_stage == 0 and config.parallel.pp > 1:
        yield "--train.precision fp16 with --parallel.zero_stage 0 and pipeline stages: DeepSpeed can deadlock; use zero_stage 1"
    if config.parallel.backend == "nccl" and not machine.has_gpu:
        yield "--parallel.backend nccl needs a GPU: use auto or gloo"
    if config.run.kernels == "apex" and not machine.has_gpu:
        yield "--kernels apex needs a GPU: use auto, reference, or triton with TRITON_INTERPRET=1"


def _schedule(config: Config, _: Machine) -> Iterator[str]:
    o = config.optimizer
    if o.min_lr > o.lr:
        yield f"--optimizer.min_lr {o.min_lr:g} is above --optimizer.lr {o.lr:g}"
    if o.decay_samples and o.warmup_samples > o.decay_samples:
        yield f"--optimizer.warmup_samples {o.warmup_samples} is above --optimizer.decay_samples {o.decay_samples}"
    if o.decay_tokens and o.warmup_tokens > o.decay_tokens:
        yield f"--optimizer.warmup_tokens {o.warmup_tokens} is above --optimizer.decay_tokens {o.decay_tokens}"
    if (o.warmup_tokens or o.decay_tokens) and (o.warmup_samples or o.decay_samples):
        yield "--optimizer.*_tokens beside --optimizer.*_samples: the learning rate is by tokens or by samples, choose one"
    for name in ("beta1", "beta2"):
        if getattr(o, name) >= 1:
            yield f"--optimizer.{name} must be below 1"


def _data(config: Config, _: Machine) -> Iterator[str]:
    shares = config.data.split.split(",")
    try:
        numbers = [float(s) for s in shares]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or min(numbers) < 0 or not 0 < sum(numbers) < math.inf:
        yield f"--data.split takes three shares 'TRAIN,VALID,TEST', got '{config.data.split}'"
    elif config.evaluate.interval and not numbers[1]:
        yield f"--evaluate.interval {config.evaluate.interval} needs validation data, and --data.split '{config.data.split}' gives none"
    elif config.evaluate.test and not numbers[2]:
        yield f"--evaluate.test true needs test data, and --data.split '{config.data.split}' gives none"


def _checkpoint(config: Config, _: Machine) -> Iterator[str]:
    if config.checkpoint.interval and not config.checkpoint.dir:
        yield "--checkpoint.interval needs --checkpoint.dir"
    if config.checkpoint.universal and config.checkpoint.load in ("auto", "none"):
        yield (
            "--checkpoint.universal needs --checkpoint.load FOLDER, "
            "the folder that hangdoctor.train.checkpoint.universal wrote"
        )
    if config.checkpoint.universal and config.parallel.zero_stage == 0:
        yield (
            "--checkpoint.universal with --parallel.zero_stage 0: "
            "DeepSpeed cannot load the pair; use zero_stage 1"
        )


def _log(config: Config, _: Machine) -> Iterator[str]:
    words = [word.strip() for word in config.log.digest_iterations.split(",")]
    if words == [""]:
        return
    if not config.log.digests:
        yield "--log.digest_iterations needs --log.digests FOLDER"
    if not all(is_number(word) for word in words):
        yield f"--log.digest_iterations takes numbers, such as '805,806', got '{config.log.digest_iterations}'"


def _unreached(config: Config, fault: Fault) -> Iterator[str]:
    """A fault that this training never comes by would let it run to its end without a word."""
    from .faults.spec import OUTSIDE

    p, every = config.parallel, config.evaluate.interval
    name = f"--fault {fault.kind}@{fault.rank}:{fault.iteration}:{fault.where}"
    if fault.where not in OUTSIDE and not 1 <= fault.iteration <= config.train.iterations:
        yield f"{name}: iterations are 1 to --train.iterations {config.train.iterations}"
    if fault.where not in OUTSIDE and passed_over(config.train.skip).last(fault.iteration):
        yield f"{name}: --train.skip '{config.train.skip}' passes over this iteration"
    if fault.where == "evaluate" and (not every or fault.iteration % every):
        yield f"{name}: evaluations come every --evaluate.interval {every} iterations (0: never)"
    if fault.where in ("checkpoint", "writer") and not config.checkpoint.dir:
        yield f"{name}: nothing is saved without --checkpoint.dir"
    stage = fault.rank // (p.tp * p.dp)
    if fault.where in ("worker", "data", "batch") and 0 < stage < p.pp - 1:
        yield f"{name}: rank {fault.rank} is in stage {stage} of {p.pp}; only the first and the last stage load data"


def _fault(config: Config, machine: Machine) -> Iterator[str]:
    from .faults.spec import parse_faults

    p = config.parallel
    try:
        faults = parse_faults(config.run.fault, machine.world_size, machine.has_gpu)
    except ConfigError as error:
        yield str(error)
        return
    for fault in faults:
        yield from _unreached(config, fault)
        axis = {
            "tp": "tp",
            "batch": "tp",
            "dp": "dp",
            "after_dp": "dp",
            "send": "pp",
            "recv": "pp",
        }.get(fault.where)
        if axis and getattr(p, axis) == 1:
            yield f"--fault {fault.kind}@{fault.rank}:{fault.iteration}:{fault.where}: nothing of the kind with {axis} = 1"
        if fault.where == "batch" and fault.rank % p.tp:
            yield f"--fault {fault.kind}@{fault.rank}: only the first rank of a tensor group is a root: a multiple of {p.tp}"
        if fault.where == "worker" and (fault.rank % p.tp or not config.data.workers):
            yield f"--fault {fault.kind}@{fault.rank}: only the first rank of a tensor group loads, with --data.workers above 0"


RULES: tuple[Callable[[Config, Machine], Iterator[str]], ...] = (
    _batches,
    _model,
    _stages,
    _sequence,
    curriculum_complaints,
    _precision,
    _schedule,
    adam8bit_complaints,
    skip_complaints,
    _data,
    _checkpoint,
    _log,
    spike_complaints,
    _fault,
)

# Those that say something of a model before its layout is known: see train/plan.py.
MODEL_RULES = (_model, _stages, _precision)
