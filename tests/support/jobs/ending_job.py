"""A gloo job of a few ranks that ends in a chosen way, on a chosen rank, at a chosen moment.

    torchrun --nproc-per-node 4 ending_job.py KIND RANK WHEN

KIND: kill, exception, segfault, exit, abort, memory, interrupt, terminate, leave, hang,
stop (by SIGSTOP), lock (all take one in turn, and it waits in a barrier with it, to gloo's limit),
regex (one that takes ages), sizes (of a tensor), reduce_op (another one; all ranks notice), members (of a new group), functional (a collective that C++ issues), none.
WHEN: start (before init_process_group), between (two operations), backward, inside (an operation).
"""

from __future__ import annotations

import datetime
import fcntl
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from hangdoctor.train.faults import acts

KIND, CULPRIT, WHEN = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ME = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
FAULT_STEP = 3
LIMIT_MB = 2500


def fail() -> None:
    """What the chosen rank does."""
    if KIND == "kill":
        acts.kill()
    elif KIND == "exception":
        raise ValueError("bad sample in shard 7")
    elif KIND == "segfault":
        acts.segfault()
    elif KIND == "exit":
        sys.exit(3)
    elif KIND == "abort":
        os.abort()
    elif KIND == "memory":
        acts.use_up_memory(LIMIT_MB)
    elif KIND == "interrupt":
        signal.raise_signal(signal.SIGINT)
    elif KIND == "leave":
        sys.exit(0)
    elif KIND == "terminate":
        acts.end_by(signal.SIGTERM)
    elif KIND == "hang":
        wait_for_nothing()
    else:
        keep_from_python()


def keep_from_python() -> None:
    """No further line of the chosen rank's runs."""
    if KIND == "stop":
        signal.raise_signal(signal.SIGSTOP)
    elif KIND == "regex":
        re.match(r"(a+)+$", "a" * 60 + "b")


def wait_for_nothing() -> None:
    """The others wait, and whoever watches the test is told."""
    threading.Thread(target=_tell, daemon=True).start()
    acts.sleep()


def _tell() -> None:
    time.sleep(float(os.environ.get("HUNG_S", "3")))  # that is the wait that the boxes show
    Path(os.environ["HUNG"]).touch()


class Fails(torch.autograd.Function):
    """The fault, in the middle of backward."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        fail()
        return grad


def hold() -> None:
    """Until the test lets all ranks go on."""
    go = os.environ.get("GO")
    while go and not Path(go).exists():
        time.sleep(0.05)


def step(number: int) -> None:
    mine = ME == CULPRIT and number == FAULT_STEP
    if number == FAULT_STEP and KIND in ("stop", "regex") and ME != CULPRIT:
        threading.Thread(target=_tell, daemon=True).start()  # the culprit cannot
    weights = torch.ones(16, requires_grad=True)
    out = weights * number
    if mine and WHEN == "backward":
        out = Fails.apply(out)
    out.sum().backward()
    if mine and WHEN == "between":
        fail()
    if mine and WHEN == "inside":
        dist.all_reduce(weights.grad, async_op=True)
        fail()
    if number == FAULT_STEP and not mine and WHEN == "inside":
        time.sleep(0.5)  # the culprit is in it already
    sizes = mine and KIND == "sizes"
    dist.all_reduce(torch.ones(20) if sizes else weights.grad)


def check(number: int) -> None:
    """What all ranks notice at once."""
    wrong = ME == CULPRIT and number == FAULT_STEP and KIND == "reduce_op"
    total = torch.ones(1)
    dist.all_reduce(total, op=dist.ReduceOp.MAX if wrong else dist.ReduceOp.SUM)
    verdicts: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(verdicts, total.item())
    if verdicts != [float(dist.get_world_size())] * dist.get_world_size():
        raise RuntimeError("a sum differs")


def in_a_group() -> None:
    """The chosen rank asks for other members; all go on with what they got."""
    if ME == CULPRIT:
        threading.Thread(target=_tell, daemon=True).start()
    group = dist.new_group([ME] if ME == CULPRIT else None)
    dist.all_reduce(torch.ones(4), group=group)
    dist.barrier()


def by_functions() -> None:
    """The chosen rank gathers where the others reduce; no wrapper of torch.distributed is called."""
    ones, group = torch.ones(4), dist.group.WORLD
    for _ in range(3):
        funcol.wait_tensor(funcol.all_reduce(ones, "sum", group))
    if ME == CULPRIT:
        threading.Thread(target=_tell, daemon=True).start()
        funcol.wait_tensor(funcol.all_gather_single(ones, 0, group))
    funcol.wait_tensor(funcol.all_reduce(ones, "sum", group))


def in_turn() -> None:
    """The chosen rank keeps the lock; when its wait has failed, the others get it."""
    path = Path(os.environ["HUNG"])
    with path.open("w") as handle:
        if ME != CULPRIT:
            dist.recv(torch.ones(1), CULPRIT)  # it has the lock
        fcntl.flock(handle, fcntl.LOCK_EX)
        if ME == CULPRIT:
            for rank in range(dist.get_world_size()):
                if rank != ME:
                    dist.send(torch.ones(1), rank)
            dist.barrier()
    dist.barrier()


def main() -> None:
    if ME == CULPRIT and WHEN == "start":
        fail()
    limit = datetime.timedelta(seconds=14 if KIND == "lock" else 1800)
    dist.init_process_group("gloo", timeout=limit)
    if KIND == "lock":
        in_turn()
    for number in range(6):
        if number == FAULT_STEP:
            hold()
        step(number)
        if KIND == "reduce_op":
            check(number)
    if KIND == "members":
        in_a_group()
    if KIND == "functional":
        by_functions()
    if KIND == "interrupt_all" and ME == CULPRIT:
        wait_for_nothing()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
