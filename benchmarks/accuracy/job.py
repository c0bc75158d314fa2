"""The real job: eight ranks, TP2 x PP2 x DP2, a 1F1B pipeline over gloo, with one fault in it by
coordinate.

It is a training loop of the usual build: a batch broadcast to the tensor-parallel group,
micro-batches through the pipeline, two tensor-parallel reductions for each forward and backward,
gradients over the replicas, a norm and a loss over the world, parameters gathered, a checkpoint and
an evaluation every few steps. What a fault changes is asked of `faults` beside the call that it
changes; the calls themselves are in the lines of the training.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from .faults import Fault

TP, PP, DP, WORLD = 2, 2, 2, 8
HIDDEN = 32
MICRO_BATCHES = 4
STEPS = 9
EVERY = 3  # steps between checkpoints


class Groups:
    """This rank's groups and neighbours; every rank makes all groups in one order."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        stage, replica, part = rank // (DP * TP), rank // TP % DP, rank % TP
        self.stage = stage
        self.tp = self.dp = self.pp = None
        for other in range(0, WORLD, TP):
            group = dist.new_group(list(range(other, other + TP)))
            self.tp = group if rank // TP == other // TP else self.tp
        for p in range(PP):
            for t in range(TP):
                ranks = [(p * DP + d) * TP + t for d in range(DP)]
                group = dist.new_group(ranks)
                self.dp = group if rank in ranks else self.dp
        for d in range(DP):
            for t in range(TP):
                ranks = [(p * DP + d) * TP + t for p in range(PP)]
                group = dist.new_group(ranks)
                self.pp = group if rank in ranks else self.pp
        self.tp_first = rank - part
        self.peer = ((1 - stage) * DP + replica) * TP + part  # the other stage of this pipeline
        self.last = ((PP - 1) * DP + replica) * TP + part
        self.saves = replica == 0


class Job:
    """One rank's training."""

    def __init__(self, rank: int, folder: Path, fault: Fault) -> None:
        self.rank, self.folder, self.fault = rank, folder, fault
        self.groups = Groups(rank)
        self.weight = torch.eye(HIDDEN)
        self.grad = torch.zeros(HIDDEN * HIDDEN)
        self.loader: Iterator[torch.Tensor] = iter(())

    # ------------------------------------------------------------------ data

    def open_loader(self) -> None:
        """Make the data loader that the fault asks for."""
        self.loader = self.fault.make_loader()

    def get_batch(self) -> torch.Tensor:
        """The next batch, read on the first rank of each tensor-parallel group and broadcast."""
        self.fault.strike("data")
        tokens = next(self.loader)
        self.fault.strike("batch")
        for _ in self.fault.times("batch"):
            source = self.fault.root("batch", self.groups.tp_first, self.groups.tp_first + 1)
            dist.broadcast(tokens, src=source, group=self.groups.tp)
        return tokens

    # ----------------------------------------------------------------- model

    def layer(self, x: torch.Tensor, place: str) -> torch.Tensor:
        """One layer with its reduction over the tensor-parallel group."""
        x = torch.nn.functional.gelu(x @ self.weight)
        return self.row_parallel(x, place)

    def row_parallel(self, x: torch.Tensor, place: str) -> torch.Tensor:
        """A row-parallel linear layer: its output is summed over the tensor-parallel group."""
        self.fault.strike(place)
        if self.fault.other_operation(place):
            dist.broadcast(x, src=self.groups.tp_first, group=self.groups.tp)
            return x
        for _ in self.fault.times(place):
            x = self.fault.tensor(place, x)
            dist.all_reduce(x, group=self.fault.group(place, self.groups.tp, self.groups.dp))
        return x

    def forward(self, x: torch.Tensor, mb: int) -> torch.Tensor:
        """The layers of this stage."""
        x = self.layer(x, f"forward.{mb}")
        return self.layer(x, "forward")

    def backward(self, grad: torch.Tensor, mb: int) -> torch.Tensor:
        """Their gradient."""
        grad = self.layer(grad, f"backward.{mb}")
        self.grad += grad.sum()
        return self.layer(grad, "backward")

    # -------------------------------------------------------------- pipeline

    def send(self, x: torch.Tensor, mb: int) -> None:
        """To the other stage."""
        self.fault.strike(f"send.{mb}")
        if not self.fault.leaves_out(f"send.{mb}"):
            dist.send(x, dst=self.groups.peer, group=self.groups.pp)

    def receive(self, mb: int) -> torch.Tensor:
        """From the other stage."""
        x = torch.zeros(4, HIDDEN)
        self.fault.strike(f"receive.{mb}")
        if not self.fault.leaves_out(f"receive.{mb}"):
            dist.recv(x, src=self.groups.peer, group=self.groups.pp)
        return x

    def first_stage(self, batch: torch.Tensor) -> None:
        """1F1B with one forward of warm-up."""
        x = self.forward(batch, 0)
        self.send(x, 0)
        for mb in range(1, MICRO_BATCHES):
            x = self.forward(batch, mb)
            self.send(x, mb)
            grad = self.receive(mb - 1)
            self.backward(grad, mb - 1)
        grad = self.receive(MICRO_BATCHES - 1)
        self.backward(grad, MICRO_BATCHES - 1)

    def last_stage(self) -> None:
        """Forward and backward of each micro-batch on the last stage."""
        x = self.receive(0)
        for mb in range(MICRO_BATCHES):
            y = self.forward(x, mb)
            grad = self.backward(y, mb)
            if mb + 1 < MICRO_BATCHES:
                x = self.receive(mb + 1)
            self.send(grad, mb)

    # ------------------------------------------------------------- optimizer

    def reduce_gradients(self) -> None:
        """Over the replicas."""
        self.fault.strike("grad")
        if self.fault.other_operation("grad"):
            dist.broadcast(self.grad, src=self.rank, group=self.groups.dp)
            return
        for _ in self.fault.times("grad"):
            self.grad = self.fault.tensor("grad", self.grad)
            dist.all_reduce(self.grad, group=self.groups.dp)

    def clip_gradients(self) -> None:
        """Reduce the gradients' norm over all ranks."""
        norm = self.grad.norm().reshape(1)
        self.fault.strike("norm")
        if self.fault.other_operation("norm"):
            dist.broadcast(norm, src=0)
            return
        for _ in self.fault.times("norm"):
            dist.all_reduce(norm, group=self.fault.group("norm", None, self.groups.tp))
        self.grad /= norm + 1.0

    def optimizer_step(self) -> None:
        """Reduce the gradients and clip them; in another order with the fault `swapped`."""
        if self.fault.swaps("grad"):
            self.clip_gradients()
            self.reduce_gradients()
        else:
            self.reduce_gradients()
            self.clip_gradients()
        shard = torch.chunk(self.grad, DP)[0].contiguous()
        self.fault.strike("params")
        for _ in self.fault.times("params"):
            dist.all_gather(
                [torch.empty_like(shard) for _ in range(DP)], shard, group=self.groups.dp
            )
        self.grad.zero_()

    def report_loss(self) -> float:
        """The loss, which all ranks get."""
        loss = torch.ones(1)
        if self.fault.swaps("loss"):
            dist.all_reduce(loss)
            dist.broadcast(loss, src=self.groups.last, group=self.groups.pp)
            return float(loss)
        self.fault.strike("share")
        for _ in self.fault.times("share"):
            wrong = self.groups.peer if self.rank == self.groups.last else self.rank
            source = self.fault.root("share", self.groups.last, wrong)
            dist.broadcast(loss, src=source, group=self.groups.pp)
        self.fault.strike("loss")
        for _ in self.fault.times("loss"):
            dist.all_reduce(loss)
        return float(loss)

    # ------------------------------------------------- checkpoint, evaluation

    def save_checkpoint(self, step: int) -> None:
        """Save on the ranks that save, and wait for all."""
        self.fault.strike("checkpoint")
        if self.groups.saves:
            torch.save(
                {"weight": self.weight, "step": step},
                self.fault.checkpoint_file(f"{step}.{self.rank}.pt"),
            )
        dist.barrier()

    def evaluate(self) -> None:
        """One batch without gradient, its score reduced over all ranks."""
        self.fault.strike("evaluate")
        x = self.layer(torch.ones(4, HIDDEN), "evaluate.0")
        score = x.mean().reshape(1)
        dist.all_reduce(score)

    # ------------------------------------------------------------------ loop

    def train_step(self) -> None:
        """One step of the schedule: batch, stages, gradients, loss."""
        batch = self.get_batch()
        if self.groups.stage == 0:
            self.first_stage(batch)
        else:
            self.last_stage()
        self.optimizer_step()

    def train(self) -> None:
        """All steps, evaluations and checkpoints."""
        self.open_loader()
        for step in range(self.fault.steps or STEPS):
            self.fault.now(step)
            try:
                self.train_step()
            except ValueError as error:  # one bad batch must not end a training
                print(f"step {step}: {error}; skipped", flush=True)
                continue
            self.report_loss()
            if step % EVERY == EVERY - 1:
                self.save_checkpoint(step)
                self.evaluate()


def hold(error: BaseException) -> None:
    """After an error, wait for the launcher's decision, as elastic launchers do, instead of ending
    the job.
    """
    print(f"held after {type(error).__name__}: {error}", flush=True)
    store = dist.distributed_c10d._get_default_store()
    store.wait(["restart"])


def main(rank: int, folder: Path, fault: Fault) -> None:
    """One rank, from rendezvous to its end."""
    fault.strike("rendezvous")
    (folder / f"came.{rank}").touch()
    dist.init_process_group("gloo")
    job = Job(rank, folder, fault)
    (folder / f"ready.{rank}").touch()
    try:
        job.train()
        dist.barrier()
    except RuntimeError as error:
        hold(error)
    finish(job)


def finish(job: Job) -> None:
    """Tear down; rank 0 leaves last, since in many launches it hosts the store."""
    store = dist.distributed_c10d._get_default_store()
    job.fault.strike("destroy")
    if job.rank == 0:
        store.wait([f"through.{rank}" for rank in range(1, WORLD)])
    dist.destroy_process_group()
    store.set(f"through.{job.rank}", "yes")
    write_summary(job.folder, job.rank, job.fault.lingers)


def write_summary(folder: Path, rank: int, lingers: bool) -> None:
    """Note that the rank has finished; with `lingers` it stays after that."""
    (folder / f"finished.{rank}").write_text(str(os.getpid()))
    if lingers:
        time.sleep(3600)
