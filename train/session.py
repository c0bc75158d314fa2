"""One rank's training from configuration to exit: groups, model, data, callbacks, loop, teardown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hangdoctor.model.layout import Layout

from . import binding, deepspeed_guards, faults, flops, marks
from .callbacks.checkpoint import Checkpoint
from .callbacks.digests import Digests
from .callbacks.evaluate import Evaluate
from .callbacks.log import Log
from .callbacks.metrics import Metrics
from .callbacks.signals import Signals, is_there
from .callbacks.sizes import Sizes
from .callbacks.spikes import Spikes
from .callbacks.tensorboard import Tensorboard
from .checkpoint.store import Store
from .config import Config
from .curriculum import sequence_length
from .data.loader import MicroBatches, ShardedBatches, rank_batches
from .data.prepare import prepared_standard_library
from .data.samples import Within, build_samples
from .data.tokenizer import load_tokenizer
from .engine import build_engine
from .faults.spec import parse_faults
from .flops import padded_vocab
from .kernels.adam8bit import with_adam8bit
from .kernels.registry import choose
from .launch import Launch
from .loop import Callback, Trainer
from .model.context import ModelContext
from .model.layers import attention_flavour
from .options import ConfigError
from .passing_over import passed_over
from .random_state import RandomState
from .schedule import BatchSize, LearningRate, batch_size, learning_rate
from .topology import Topology, build_topology
from .train_state import TrainState
from .validate import Machine, check


def run(config: Config, launch: Launch) -> int:
    """Train; 0 when the wanted iterations are done or a signal asked to leave.

    Raises:
        ConfigError: before any process group is made, whatever does not fit together.
    """
    has_gpu = torch.cuda.is_available()
    check(config, Machine(launch.world_size, has_gpu))
    if config.run.bind == "auto":
        bind_rank(launch, torch.cuda.device_count())
    switch = config.train.kill_switch
    if is_there(switch):
        if launch.rank == 0:
            print(
                f"stopped: {switch} is there (--train.kill_switch): remove it to train", flush=True
            )
        return 0
    check_data(config, launch.rank)
    faults.arm(parse_faults(config.run.fault, launch.world_size, has_gpu), launch.rank)
    deepspeed = deepspeed_guards.prepare(has_gpu)
    launch.export(torch.cuda.device_count())
    topology = join(config, launch, has_gpu, deepspeed)
    try:
        train(config, topology)
    finally:
        leave(topology)
    return 0


def bind_rank(launch: Launch, devices: int) -> None:
    """Give this rank the cores near its GPU, before libraries start more threads, and say which."""
    gpu = ""
    if devices:
        properties = torch.cuda.get_device_properties(launch.device(devices))
        gpu = binding.pci_address(properties)
    done = binding.bind(binding.Rank(launch.local_rank, launch.local_size, gpu))
    print(f"bind: rank {launch.rank} {done}", flush=True)


def check_data(config: Config, rank: int) -> None:
    """Open what this rank will read: too little validation text would else end the training at its
    first evaluation.

    Raises:
        ConfigError: no such tokenizer or data, or not one whole sample in it.
    """
    p, d = config.parallel, config.data
    vocabulary(config.model.vocab_size, load_tokenizer(d.tokenizer).vocab_size)
    if 0 < Layout(dp=p.dp, pp=p.pp, tp=p.tp).coordinates(rank)["pp"] < p.pp - 1:
        return  # a stage in the middle loads nothing
    if d.path == "stdlib":
        d.path = prepared_standard_library(d.cache, d.tokenizer)
    for share in shares(config):
        build_samples(d, share, config.model.seq_length, config.train.seed)


def shares(config: Config) -> list[int]:
    """What is read: train (0), valid (1), test (2)."""
    e = config.evaluate
    return [0, *([1] if e.interval else []), *([2] if e.test else [])]


def join(config: Config, launch: Launch, has_gpu: bool, deepspeed: Any) -> Topology:
    """Enter the process group and make the tensor parallel groups."""
    p = config.parallel
    device = (
        torch.device("cuda", launch.device(torch.cuda.device_count()))
        if has_gpu
        else torch.device("cpu")
    )
    if has_gpu:
        torch.cuda.set_device(device)
    backend = p.backend
    if backend == "auto":
        backend = "nccl" if has_gpu else "gloo"
    limit = timedelta(seconds=p.timeout_s)
    faults.point("rendezvous")
    dist.init_process_group(backend, rank=launch.rank, world_size=launch.world_size, timeout=limit)
    deepspeed_guards.set_group_timeout(p.timeout_s)
    deepspeed.init_distributed(backend, timeout=limit, verbose=False)
    marks.layout(p.dp, p.pp, p.tp)
    faults.point("groups")
    return build_topology(Layout(dp=p.dp, pp=p.pp, tp=p.tp), limit, device)


def leave(topology: Topology) -> None:
    """Tear the groups down; a fault may hold this rank in a collective that no one else is in."""
    if not dist.is_initialized():
        return
    faults.point("destroy", tensor=torch.ones(16, device=topology.device), group=None)
    dist.destroy_process_group()


def build_context(config: Config, topology: Topology, tokens: int, end: int = -1) -> ModelContext:
    """What all layers of this rank share: groups, kernels, vocabulary and random state."""
    at, p = topology.layout.coordinates(topology.rank), config.parallel
    rows = padded_vocab(tokens, config.model.vocab_multiple, p.tp)
    random = RandomState(config.train.seed, at["pp"], at["dp"], at["tp"], device=topology.device)
    compiled = config.run.compile == "inductor"
    kernels = choose(config.run.kernels, topology.device, compiled=compiled)
    if config.optimizer.kind == "adam8bit":
        kernels = with_adam8bit(kernels)
    return ModelContext(
        config,
        topology.tensor,
        kernels,
        random,
        vocab=(tokens, rows),
        end=end,
    )


def vocabulary(asked: int, known: int) -> int:
    """Tokens of the model: `asked`, or 0 for as many as the tokenizer has, `known`.

    Raises:
        ConfigError: fewer than the tokenizer's.
    """
    if asked and asked < known:
        raise ConfigError(
            f"--model.vocab_size {asked} is below the {known} tokens of --data.tokenizer: use 0, or {known} and more"
        )
    return asked or known


def train(config: Config, topology: Topology, extra: Sequence[Callback] = ()) -> Trainer:
    """Build everything and run the loop; `extra` callbacks come before the usual ones."""
    tokenizer = load_tokenizer(config.data.tokenizer)
    if config.data.path == "stdlib":
        config.data.path = prepared_standard_library(config.data.cache, config.data.tokenizer)
    tokens = vocabulary(config.model.vocab_size, tokenizer.vocab_size)
    context = build_context(config, topology, tokens, tokenizer.end)
    if topology.rank == 0:
        print(summary(config, context), flush=True)
    batch = batch_size(config.train)
    rate = schedule_of(config, batch)
    engine = build_engine(config, topology, context, batch.at(0))
    store = Store(config, topology, engine, context.random, vocab=tokens)
    state = store.load(rate)
    callbacks = build_callbacks(config, topology, context, store)
    trainer = Trainer(config, engine, state, (rate, batch), callbacks=[*extra, *callbacks])
    trainer.run(_batches(config, topology, state, 0, context=context))
    if topology.rank == 0 and trainer.stop:
        print(f"stopped: {trainer.stop}", flush=True)
    return trainer


def schedule_of(config: Config, batch: BatchSize) -> LearningRate:
    """The learning rate; without an end of its own it decays over all iterations."""
    t = config.train
    length = sequence_length(t.curriculum, config.model.seq_length)
    tokens = length.tokens_after(t.iterations, batch)
    return learning_rate(config.optimizer, batch.samples_after(t.iterations), tokens)


def _batches(
    config: Config, topology: Topology, state: TrainState, share: int, context: ModelContext
) -> ShardedBatches | None:
    """The rank's micro-batches of train (0), valid (1) or test (2), from where the state is."""
    if not topology.feeds_data:
        return None
    samples = Within(
        build_samples(
            config.data,
            share,
            config.model.seq_length,
            config.train.seed,
            quiet=topology.rank > 0,
        ),
        context.vocab[0],
    )
    batch = batch_size(config.train)
    start = (state.iteration, state.consumed_samples)
    order = MicroBatches(
        batch,
        config.train.micro_batch,
        (topology.dp, topology.layout.dp),
        start,
        passed_over=passed_over(config.train.skip if share == 0 else ""),
    )
    return rank_batches(
        samples,
        order,
        topology,
        config.data.workers,
        seq_length=config.model.seq_length,
        masked=context.end if config.data.eod_mask_loss else -1,
    )


def build_callbacks(
    config: Config, topology: Topology, context: ModelContext, store: Store
) -> list[Callback]:
    """The callbacks of this rank, in the order in which they run."""
    callbacks: list[Callback] = [Sizes(topology.device), Log(topology.rank, context.vocab[1])]
    if config.log.digests:
        callbacks.append(Digests(topology, context.random))
    if config.log.metrics and topology.rank == 0:
        callbacks.append(Metrics(config.log.metrics))
    if config.log.spikes and topology.rank == 0:
        callbacks.append(Spikes(config.log.on_spike))
    record: Callable[[Trainer, str, float], None] | None = None
    after: list[Callback] = []
    if config.log.tensorboard and topology.rank == 0:
        tensorboard = Tensorboard(config.log.tensorboard, context.vocab[1])
        after.append(tensorboard)  # it closes last: the end has a loss to record
        record = tensorboard.add
    if config.evaluate.interval or config.evaluate.test:

        def beginning(share: int) -> ShardedBatches | None:
            return _batches(config, topology, TrainState(), share, context=context)

        callbacks.append(Evaluate(topology.rank, beginning, context.random, record))
    if config.checkpoint.dir:
        callbacks.append(Checkpoint(store))
    return [*callbacks, *after, Signals(topology.device, topology.rank)]


def summary(config: Config, context: ModelContext) -> str:
    """What is trained, how, and with what, for the top of the log."""
    p, m, t = config.parallel, config.model, config.train
    count = flops.parameter_count(m, config.ffn_hidden_size, context.vocab[0])
    sequence = ""
    if p.sequence_parallel:
        sequence = ", sequence parallel"
    elif p.ulysses:
        sequence = ", Ulysses"
    return "\n".join(
        [
            f"model: {count} parameters, {m.layers} layers, hidden {m.hidden_size}, {m.heads} heads, "
            f"sequence {m.seq_length}, vocabulary {context.vocab[0]} padded to {context.vocab[1]}",
            f"parallel: {p.tp * p.pp * p.dp} ranks = tp {p.tp} x pp {p.pp} x dp {p.dp}, ZeRO-{p.zero_stage}{sequence}; "
            f"{t.precision}; global batch {t.global_batch} in micro-batches of {t.micro_batch}",
            f"attention: {attention_flavour(context)}; recompute: {'on' if m.recompute else 'off'}",
            context.kernels.line(),
        ]
    )
