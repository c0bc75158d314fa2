"""Micro-batches for a rank: the sampler knows the place in the data, the first tensor parallel rank
loads,
the others receive.
"""

from __future__ import annotations

import atexit
import ctypes
import signal
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from .. import faults
from ..passing_over import PassedOver
from ..schedule import BatchSize
from ..topology import Topology

Batch = tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]


class MicroBatches:
    """Indices of each micro-batch of one dp rank, from `consumed` samples on, without end.

    Yields lists of (iteration, sample): the iteration is for the fault in a worker.
    """

    def __init__(
        self,
        batch: BatchSize,
        micro: int,
        dp: tuple[int, int],
        start: tuple[int, int],
        *,
        passed_over: PassedOver = PassedOver(),  # noqa: B008  # frozen
    ) -> None:
        self.batch, self.micro, self.passed_over = batch, micro, passed_over
        self.dp_rank, self.dp_size = dp
        self.iteration, self.consumed = start

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        iteration, consumed = self.iteration, self.consumed
        while True:
            size, iteration = self.batch.at(consumed), iteration + 1
            firsts = range(consumed, consumed + size, self.micro * self.dp_size)
            consumed += size
            if self.passed_over.last(iteration):
                continue
            for first in firsts:
                own = first + self.dp_rank * self.micro
                yield [(iteration, own + i) for i in range(self.micro)]


class _Tokens(Dataset):
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __getitem__(self, key: tuple[int, int]) -> torch.Tensor:
        iteration, index = key
        faults.point("worker", iteration=iteration)
        return torch.from_numpy(self.samples[index])


def _start_worker(_: int) -> None:
    """A worker must not outlive its rank: a stuck one would hold the rank's sockets open for good.

    Nor end before it: a scheduler signals every process of a job, and the rank that is to save
    still needs its batches.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)


def token_batches(samples: Any, order: MicroBatches, workers: int) -> Iterator[torch.Tensor]:
    """int64 [micro, seq_length + 1], one a micro-batch."""
    # A generator of its own: the loader would draw a seed from the stream that dropout uses.
    options: dict[str, Any] = {"generator": torch.Generator()}
    if workers:
        options |= {
            "multiprocessing_context": "fork",
            "worker_init_fn": _start_worker,
            "prefetch_factor": 4,
        }
    loader = DataLoader(_Tokens(samples), batch_sampler=order, num_workers=workers, **options)  # type: ignore[arg-type]
    batches = iter(loader)
    if workers:
        atexit.register(_end_workers, batches)
    return batches


def _end_workers(batches: Any) -> None:
    """Workers that ignore SIGTERM would be waited for at the rank's end, a stuck one for good."""
    batches._shutdown_workers()
    for worker in batches._workers:
        worker.kill()


class ShardedBatches:
    """Iterator of (tokens, (labels, mask)) on one rank.

    The first rank of a tensor group loads and broadcasts; `source` is None on the others. What
    follows the token `masked` counts for no loss.
    """

    def __init__(
        self,
        source: Iterator[torch.Tensor] | None,
        topology: Topology,
        shape: tuple[int, int],
        masked: int,
    ) -> None:
        self.source, self.topology, self.masked = source, topology, masked
        self.micro = shape[0]
        self.length = shape[1] - 1  # of the next batch; what follows in a sample is left out

    def __iter__(self) -> ShardedBatches:
        return self

    def __next__(self) -> Batch:
        tp = self.topology.tensor
        if self.source is not None:
            tokens = next(self.source)[:, : self.length + 1].contiguous().to(self.topology.device)
        else:
            shape = (self.micro, self.length + 1)
            tokens = torch.empty(shape, dtype=torch.int64, device=self.topology.device)
        if tp.size > 1 and not faults.point("batch", tensor=tokens, group=tp.group, ranks=tp.ranks):
            dist.broadcast(tokens, src=tp.ranks[0], group=tp.group)
        read, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        return read, (labels, (read != self.masked).to(torch.float32))


def rank_batches(
    samples: Any,
    order: MicroBatches,
    topology: Topology,
    workers: int,
    *,
    seq_length: int,
    masked: int = -1,
) -> ShardedBatches | None:
    """The rank's iterator, or None on a stage in the middle."""
    if not topology.feeds_data:
        return None
    source = token_batches(samples, order, workers) if topology.tensor.rank == 0 else None
    return ShardedBatches(source, topology, (order.micro, seq_length + 1), masked)
