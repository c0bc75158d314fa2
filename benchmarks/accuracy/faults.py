"""Faults of the real job by coordinate: kind, rank, step and place, `fault(kind, rank, step,
where)`.

`Fault` sits in every rank and answers "as usual" wherever it is asked, but at its own coordinate. A
rank writes `at.RANK` just before it strikes, so that whoever watches knows. What a rank then does
to itself is in the trainer's library of acts.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from hangdoctor.train.faults import acts
from hangdoctor.train.faults.collectives import half_of, in_another_dtype


class Coordinate:
    """Where one fault is."""

    def __init__(self, kind: str, rank: int, step: int, where: str) -> None:
        self.kind, self.rank, self.step, self.where = kind, rank, step, where


class Fault:
    """What this rank does otherwise, and where."""

    def __init__(self, rank: int, folder: Path, faults: list[Coordinate]) -> None:
        self.rank, self.folder = rank, folder
        self.mine = [f for f in faults if f.rank == rank]
        self.kinds = {f.kind for f in faults}
        self.step = -1
        self.lingers = "finished" in self.kinds
        self.steps = 1_000_000 if self.kinds & {"slow_rank", "healthy"} else 0

    def now(self, step: int) -> None:
        self.step = step

    def _here(self, where: str, *kinds: str) -> bool:
        for f in self.mine:
            if f.where == where and f.kind in kinds and self.step >= f.step:
                if f.kind not in LASTING:
                    self.mine.remove(f)
                (self.folder / f"at.{self.rank}").touch()
                return True
        return False

    # ------------------------------------- answers to the training's questions

    def strike(self, where: str) -> None:
        """Do what keeps the rank from going on, if this is the place."""
        for f in self.mine:
            if (
                f.where == where
                and self.step >= f.step
                and f.kind in STRIKES
                and self._here(where, f.kind)
            ):
                STRIKES[f.kind](self)
                return

    def times(self, where: str) -> range:
        """How often the next operation is called."""
        if self._here(where, "skipped"):
            return range(0)
        return range(2 if self._here(where, "one_too_many") else 1)

    def leaves_out(self, where: str) -> bool:
        return self._here(where, "missing_send", "missing_receive")

    def other_operation(self, where: str) -> bool:
        return self._here(where, "wrong_operation")

    def tensor(self, where: str, x: torch.Tensor) -> torch.Tensor:
        if self._here(where, "wrong_shape"):
            return half_of(x)
        return in_another_dtype(x) if self._here(where, "wrong_dtype") else x

    def group(self, where: str, right: Any, wrong: Any) -> Any:
        return wrong if self._here(where, "wrong_group") else right

    def root(self, where: str, right: int, wrong: int) -> int:
        return wrong if self._here(where, "wrong_root") else right

    def swaps(self, where: str) -> bool:
        return self._here(where, "swapped")

    def checkpoint_file(self, name: str) -> str:
        return str(
            self.folder
            / (
                "fifo.checkpoint"
                if self._here("checkpoint", "checkpoint_fifo")
                else f"checkpoint.{name}"
            )
        )

    def make_loader(self) -> Iterator[torch.Tensor]:
        """In this process, as most of the cases need no other; by worker processes where the fault
        is in one.
        """
        if "loader_worker_stuck" in self.kinds:
            return batches_by_torch(self)
        if "loader_worker_dead" in self.kinds:
            return batches_by_own_worker(self)
        return batches()


# ------------------------------------------------------------------- loaders


def batches() -> Iterator[torch.Tensor]:
    while True:
        yield torch.ones(4, 32)


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Reads a sample from a file system; one of them never answers."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.stuck_at = next(
            (f.step for f in fault.mine if f.kind == "loader_worker_stuck"), 1 << 30
        )

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, i: int) -> torch.Tensor:
        if i >= self.stuck_at:
            (self.fault.folder / f"at.{self.fault.rank}").touch()
            acts.open_fifo(self.fault.folder / "fifo.data")
        return torch.ones(4, 32)


def batches_by_torch(fault: Fault) -> Iterator[torch.Tensor]:
    yield from torch.utils.data.DataLoader(
        Samples(fault), batch_size=None, num_workers=1, prefetch_factor=2
    )


def batches_by_own_worker(fault: Fault) -> Iterator[torch.Tensor]:
    """A loader of the home-made kind: one process, one queue, no time-out."""
    buffer: multiprocessing.Queue[int] = multiprocessing.Queue(maxsize=1)
    dies_at = next((f.step for f in fault.mine if f.kind == "loader_worker_dead"), 1 << 30)
    worker = multiprocessing.Process(
        target=fill, args=(buffer, dies_at, fault.folder / f"at.{fault.rank}"), daemon=True
    )
    worker.start()
    while True:
        buffer.get()
        yield torch.ones(4, 32)


def fill(buffer: multiprocessing.Queue[int], dies_at: int, mark: Path) -> None:
    for i in range(1000):
        if i >= dies_at:
            while not buffer.empty():  # the samples before are taken first
                time.sleep(0.01)
            mark.touch()
            acts.exit_at_once(1)
        buffer.put(i)


# -------------------------------------------------------------------- strikes


def swallowed(fault: Fault) -> None:
    raise ValueError("token outside of the vocabulary")


def early_exit(fault: Fault) -> NoReturn:
    sys.exit(0)


def long_evaluation(fault: Fault) -> None:
    """One rank evaluates on its own for minutes and gets on."""
    for batch in range(100_000):
        evaluate_part(batch % 7)


def evaluate_part(size: int) -> None:
    if size % 2:
        score_short(size)
    else:
        score_long(size)


def score_short(size: int) -> None:
    torch.ones(64, 64) @ torch.ones(64, 64)
    time.sleep(0.004)


def score_long(size: int) -> None:
    time.sleep(0.007)


def long_checkpoint(fault: Fault) -> None:
    """One rank writes a large checkpoint in parts and gets on."""
    for part in range(100_000):
        save_shard(fault.folder / f"shard.{part % 3}")


def save_shard(path: Path) -> None:
    torch.save({"shard": torch.ones(100_000)}, path)
    time.sleep(0.01)


STRIKES: dict[str, Callable[[Fault], object]] = {
    "sleep": lambda fault: acts.sleep(),
    "infinite_loop": lambda fault: acts.spin(),
    "blocked_read": lambda fault: acts.read_fifo(fault.folder / "fifo.read"),
    "lock": lambda fault: acts.lock_twice(),
    "exception_swallowed": swallowed,
    "early_exit": early_exit,
    "stopped": lambda fault: acts.stop(),
    "killed": lambda fault: acts.kill(),
    "fork_with_lock": lambda fault: acts.fork_with_lock(),
    "gil_held": lambda fault: acts.hold_gil(),
    "uninterruptible": lambda fault: acts.enter_state_d(),
    "full_queue": lambda fault: acts.put_into_full_queue(),
    "late_at_rendezvous": lambda fault: acts.sleep(),
    "stuck_in_destroy": lambda fault: acts.endless_thread(fault.folder / "fifo.data"),
    "slow_rank": lambda fault: acts.delay(0.12),
    "long_evaluation": long_evaluation,
    "long_checkpoint": long_checkpoint,
}
LASTING = frozenset({"slow_rank"})
