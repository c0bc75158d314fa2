"""Ranks, coordinates and the process groups that the trainer's own layers use.

DeepSpeed builds its grid inside PipelineModule, after the layers need their group: the tensor
parallel groups are built here, from the same order of axes (pipe, data, model).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hangdoctor.model.layout import Layout


@dataclass(frozen=True)
class TensorGroup:
    """The ranks that share a layer, or a sequence; `group` is None where there is one rank."""

    rank: int = 0
    size: int = 1
    group: Any = None
    ranks: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Topology:
    """Where this rank is in the layout, and its groups."""

    layout: Layout
    rank: int
    tensor: TensorGroup
    device: torch.device

    @property
    def pp(self) -> int:
        """Pipeline stage of this rank."""
        return self.layout.coordinates(self.rank)["pp"]

    @property
    def dp(self) -> int:
        """Replica of this rank."""
        return self.layout.coordinates(self.rank)["dp"]

    @property
    def is_first_stage(self) -> bool:
        """Whether it has the word embedding."""
        return self.pp == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether it computes the loss."""
        return self.pp == self.layout.pp - 1

    @property
    def feeds_data(self) -> bool:
        """Tokens go in at the first stage, labels at the last one."""
        return self.is_first_stage or self.is_last_stage


def build_topology(layout: Layout, timeout: timedelta, device: torch.device) -> Topology:
    """Make the tensor parallel groups; collective over the world.

    Every rank makes every group, in one order: `new_group` is itself a collective.
    """
    rank, tensor = dist.get_rank(), TensorGroup()
    if layout.tp > 1:
        for ranks in layout.groups("tp"):
            group = dist.new_group(ranks=ranks, timeout=timeout)
            if rank in ranks:
                tensor = TensorGroup(ranks.index(rank), layout.tp, group, tuple(ranks))
    return Topology(layout, rank, tensor, device)
