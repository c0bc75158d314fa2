"""A rank of a real job in any layout: it runs the simulated program's steps (`sim_program.py`) with
torch and gloo, from functions of the names, files and lines that the steps have.

Tensors are small and all of one size: gloo ends a process that is sent more than it expects, which
NCCL's ranks do not do.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .job import hold
from .sim_dumps import NO_NAME, group_name
from .sim_engine import Members
from .sim_layout import Mesh
from .sim_program import Programs, Step

MICRO_BATCHES, ITERATIONS = 4, 3
_SITE = re.compile(r"(\w+) \((\w+\.py):(\d+)\)")
_SIZE = 16  # elements


def make_groups(members: Members, rank: int) -> dict[str, Any]:
    """This rank's group of each axis; every rank makes all groups in one order."""
    mine: dict[str, Any] = {"world": None}
    for axis in members.axes[1:]:
        for ranks in members.layout.groups(axis):
            name = group_name(members, axis)
            group = dist.new_group(ranks, group_desc=None if name == NO_NAME else name)
            if rank in ranks:
                mine[axis] = group
    return mine


def at_site(site: str) -> Callable[[Callable[[], None]], None]:
    """A function with that name, whose call of its argument is at that file and line."""
    match = _SITE.fullmatch(site)
    if match is None:
        return lambda call: call()
    name, file, line = match[1], match[2], int(match[3])
    text = f"def {name}(call):" + "\n" * (line - 1) + " call()\n"
    space: dict[str, Any] = {}
    # Of `sim_program.py`'s own sites, which are constants there and match the pattern above.
    exec(compile(text, f"/job/{file}", "exec"), space)
    found: Callable[[Callable[[], None]], None] = space[name]
    return found


class Rank:
    """One rank and what it has begun."""

    def __init__(self, rank: int, members: Members) -> None:
        self.rank, self.members = rank, members
        self.groups = make_groups(members, rank)
        self.handles: list[Any] = []
        self.sites: dict[str, Callable[[Callable[[], None]], None]] = {}

    def do(self, step: Step) -> None:
        """One step, from its own line."""
        if step.op == "wait":
            for handle in self.handles:
                handle.wait()
            self.handles = []
            return
        if step.site not in self.sites:
            self.sites[step.site] = at_site(step.site)
        self.sites[step.site](lambda: self._call(step))

    def _call(self, step: Step) -> None:
        tensor, group = torch.ones(_SIZE), self.groups[step.axis]
        if step.p2p:
            peer = self.members.peer(self.rank, step.hop)
            (dist.send if step.op == "send" else dist.recv)(tensor, peer, group=group)
            return
        handle = self._collective(step, tensor, group)
        if step.asynchronous:
            self.handles.append(handle)

    def _collective(self, step: Step, tensor: torch.Tensor, group: Any) -> Any:
        later = step.asynchronous
        ranks = self.members.ranks[self.members.of[step.axis][self.rank]]
        if step.op == "broadcast":
            return dist.broadcast(tensor, ranks[step.root], group=group, async_op=later)
        if step.op == "all_to_all_single":
            whole = torch.ones(_SIZE * len(ranks))
            return dist.all_to_all_single(torch.empty_like(whole), whole, group=group)
        if step.op == "all_gather_into_tensor":
            whole = torch.ones(_SIZE * len(ranks))
            return dist.all_gather_into_tensor(whole, tensor, group=group, async_op=later)
        if step.op == "reduce_scatter_tensor":
            whole = torch.ones(_SIZE * len(ranks))
            return dist.reduce_scatter_tensor(tensor, whole, group=group, async_op=later)
        return dist.all_reduce(tensor, group=group, async_op=later)


def main(rank: int, folder: Path, order: dict[str, Any]) -> None:
    """One rank, from rendezvous to its end or to the fault that the order has for it."""
    dist.init_process_group("gloo")
    mesh = Mesh(**{**order["mesh"], "order": tuple(order["mesh"]["order"])})
    members = Members(mesh)
    mine = order["changed"].get(str(rank))
    if mine is None:
        steps = Programs(mesh, MICRO_BATCHES, ITERATIONS, 0).by_stage[members.stage[rank]]
    else:
        steps = [Step(**fields) for fields in mine["steps"]]
    me = Rank(rank, members)
    try:
        for place, step in enumerate(steps):
            if mine is not None and place == mine["strikes"]:
                (folder / f"at.{rank}").touch()
                strike(mine["how"])
            me.do(step)
        dist.barrier()
    except RuntimeError as error:
        hold(error)
    (folder / f"finished.{rank}").touch()
    time.sleep(3600)


def strike(how: str) -> None:
    """What the rank does to itself: "" goes on, with a program that is not its like's."""
    if how == "sleep":
        load_batch()
    elif how == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def load_batch() -> None:
    """Never brings one."""
    time.sleep(3600)
