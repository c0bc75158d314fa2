"""What the probe costs: no probe, pure Python, C: ``python -m benchmarks.probe_cost [--steps 400]
[--long-steps 40]``.

For each way of recording two gloo ranks of their own, measured inside of rank 0 by the processor
time of its main thread. Calls: the wrapper around a function that does nothing, warm (in a loop)
and cold (after a forward and backward of a small model, which turns the caches over). Steps: the
training of `benchmarks.training_overhead` with eight all_reduces, and the same lengthened by work
to 250 ms; two steps with the probe and two with all of torch's own (functions, the handle's wait,
no hook, no iteration()) take turns in one process, so that the machine's mood falls on both. A
step's ratio is that of the main thread's processor time; the share is what the probe adds to it, of
the time that the step takes by the clock, waiting included. Parts: what a step calls, each alone
after an all_reduce of gloo, medians by the clock. Prints a table. Needs torch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.progress import say
from benchmarks.training_overhead import free_port

OPERATIONS_A_STEP = 8
ROWS = (
    "a call, warm: added µs",
    "a call, cold: added µs",
    "a call, after gloo: added µs",
    "a handle's wait, after gloo: added µs",
    "iteration(), after gloo: added µs",
    "the optimizer's hook, after gloo: added µs",
    "all_to_all_single with sizes, after gloo: added µs",
)
WAYS = {"pure Python": "1", "C": "0"}


def _median_ns(call: Callable[[], object], before: Callable[[], object], times: int) -> float:
    """Processor time of one call after `before`, nanoseconds; the clock's own time is in it."""
    spent = []
    for _ in range(times):
        before()
        begin = time.thread_time_ns()
        call()
        spent.append(time.thread_time_ns() - begin)
    return statistics.median(spent)


def _warm_ns(call: Callable[[], object]) -> float:
    spent = []
    for _ in range(9):
        begin = time.thread_time_ns()
        for _ in range(20_000):
            call()
        spent.append((time.thread_time_ns() - begin) / 20_000)
    return min(spent)


def _by_the_clock(
    one: Callable[[], object], other: Callable[[], object], before: Callable[[], object]
) -> float:
    """Nanoseconds that one call takes more than another, in turns, each after `before`.

    All ranks call it.
    """
    took: dict[bool, list[int]] = {True: [], False: []}
    for number in range(600):
        first = number % 4 in (0, 3)
        call = one if first else other
        before()
        begin = time.perf_counter_ns()
        call()
        took[first].append(time.perf_counter_ns() - begin)
    return statistics.median(took[True]) - statistics.median(took[False])


def _nothing(
    tensor: object, op: object = None, group: object = None, async_op: bool = False
) -> None:
    """What the wrapper is put around: a call of it costs what a call costs."""


class _Rank:
    """A small model in a gloo job, and the probe in its process, to be switched on and off."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        from hangdoctor import probe
        from hangdoctor.probe import record_core, signatures, wrap
        from hangdoctor.probe.process_probe import probe as state

        torch.set_num_threads(1)
        torch.manual_seed(1)
        probe.install()
        dist.init_process_group("gloo")
        pure = os.environ["HANGDOCTOR_RECORD_PURE"] == "1"
        assert (record_core.native is None) == pure, "the extension is not built"
        self.dist, self.probe, self.state = dist, probe, state
        self.recorder = state.recorder
        layers = [m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.GELU())]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch, self.tensor = torch.randn(64, 256), torch.ones(4)
        self.large = torch.zeros(1 << 16)
        self.wrapped = wrap.collective(_nothing, signatures.all_reduce)
        self.plain, self.recorded = dist.all_reduce.__wrapped__, dist.all_reduce
        self.exchanges = (dist.all_to_all_single, dist.all_to_all_single.__wrapped__)
        self.work_kind = dist.distributed_c10d.Work
        self.waits = {True: self.work_kind.wait, False: self.work_kind.wait.__wrapped__}
        self.hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
        self.our_hooks = dict(self.hooks)

    def work(self) -> None:
        """Forward and backward, which turn the caches over."""
        self.model(self.batch).square().mean().backward()

    def calls(self) -> list[float]:
        """What the wrapper adds to a call, warm and cold, nanoseconds."""

        def recorded() -> None:
            self.wrapped(self.tensor)

        def bare() -> None:
            _nothing(self.tensor)

        warm = _warm_ns(recorded) - _warm_ns(bare)
        cold = [
            _median_ns(recorded, self.work, 60) - _median_ns(bare, self.work, 60) for _ in range(9)
        ]
        return [warm, statistics.median(cold)]

    def parts(self) -> list[float]:
        """What each part of a step adds after an all_reduce of gloo, nanoseconds.

        All ranks call it.
        """
        tensor, optimizer = self.tensor, self.optimizer
        done = self.plain(tensor.clone(), async_op=True)
        done.wait()
        (hook,) = self.our_hooks.values()
        out, parts = tensor.clone(), [2] * self.dist.get_world_size()
        recorded, plain = self.exchanges
        pairs: list[tuple[Callable[[], object], Callable[[], object]]] = [
            (lambda: self.wrapped(tensor), lambda: _nothing(tensor)),
            (lambda: self.waits[True](done), lambda: self.waits[False](done)),
            (lambda: self.probe.iteration(1), lambda: _nothing(1)),
            (lambda: hook(optimizer, (), {}), lambda: _nothing(optimizer, (), {})),
            (lambda: recorded(out, tensor, parts, parts), lambda: plain(out, tensor, parts, parts)),
        ]
        return [_by_the_clock(*pair, lambda: self.plain(self.large)) for pair in pairs]

    def steps(self, count: int, repeats: int) -> list[float]:
        """Added to a step, its processor time and its time without the probe, nanoseconds.

        All ranks call it.
        """
        spent: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for number in range(4 * (count // 4)):
            on = number % 4 < 2
            spent[on].append(self._step(on, number, repeats))
        added = [a[0] - b[0] for a, b in zip(spent[True], spent[False], strict=True)]
        without = [statistics.median(column) for column in zip(*spent[False], strict=True)]
        return [statistics.median(added), *without]

    def _step(self, on: bool, number: int, repeats: int) -> tuple[float, float]:
        if number % 2 == 0:
            self.switch(on)
        reduce = self.recorded if on else self.plain
        began = time.perf_counter_ns()
        begin = time.thread_time_ns()
        if on:
            self.probe.iteration(number)
        self.optimizer.zero_grad()
        for _ in range(repeats):
            self.work()
        for parameter in self.model.parameters():
            reduce(parameter.grad)
        self.optimizer.step()
        return time.thread_time_ns() - begin, time.perf_counter_ns() - began

    def switch(self, on: bool) -> None:
        """With the probe, or with torch's own functions alone."""
        self.state.recorder = self.recorder if on else None
        self.work_kind.wait = self.waits[on]
        self.hooks.clear()
        self.hooks.update(self.our_hooks if on else {})

    def leave(self) -> None:
        """End the job with all others."""
        self.switch(True)
        self.dist.barrier()
        self.dist.destroy_process_group()


def _measure(steps: int, long_steps: int) -> None:
    """One rank; rank 0 prints its figures."""
    rank = _Rank()
    first = rank.dist.get_rank() == 0
    figures = rank.calls() if first else []
    figures += rank.parts()
    figures += rank.steps(steps, repeats=1)
    figures += rank.steps(long_steps, repeats=100)
    rank.leave()
    if first:
        print(*figures)


def measure(way: str, steps: int, long_steps: int) -> list[float]:
    """Nanoseconds: a call warm, cold; the parts; added to a short step, its processor time, its
    time; a long one's three.
    """
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
            "HANGDOCTOR_DIR": folder,
            "HANGDOCTOR_RECORD_PURE": WAYS[way],
        }
        command = [
            sys.executable,
            "-m",
            "benchmarks.probe_cost",
            "--rank",
            f"--steps={steps}",
            f"--long-steps={long_steps}",
        ]
        ranks = [
            subprocess.Popen(
                command,
                env=environ | {"RANK": str(r)},
                cwd=Path(__file__).parents[1],
                text=True,
                stdout=subprocess.PIPE,
            )
            for r in range(2)
        ]
        try:
            told = ranks[0].communicate(timeout=900)[0]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    return [float(word) for word in told.split()]


def table(measured: dict[str, list[float]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [
        "| | no probe | " + " | ".join(measured) + " |",
        "|---|---|" + "---|" * len(measured),
    ]
    for place, name in enumerate(ROWS):
        lines.append(
            f"| {name} | 0 | "
            + " | ".join(f"{row[place] / 1e3:.2f}" for row in measured.values())
            + " |"
        )
    for at, name in ((len(ROWS), "a step"), (len(ROWS) + 3, "a long step")):
        off = statistics.median(row[at + 1] for row in measured.values()) / 1e6
        clock = statistics.median(row[at + 2] for row in measured.values()) / 1e6
        cells = [
            f"{row[at] / 1e3:.0f} µs, ratio {1 + row[at] / row[at + 1]:.4f},"
            f" share {row[at] / row[at + 2]:.4%}"
            for row in measured.values()
        ]
        lines.append(
            f"| {name}, processor time of the main thread | {off:.1f} ms of {clock:.1f} | "
            + " | ".join(cells)
            + " |"
        )
    return lines


def main() -> None:
    """Measure both ways, and print the table."""
    parser = argparse.ArgumentParser(description="What the probe costs: none, pure Python, C.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--long-steps", type=int, default=40)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.rank:
        _measure(told.steps, told.long_steps)
        return
    measured = {}
    for way in WAYS:
        say(f"{way}: {told.steps} steps and {told.long_steps} long ones")
        measured[way] = measure(way, told.steps, told.long_steps)
    print("\n".join(table(measured)))
    print(
        f"Load {os.getloadavg()[0]:.0f}; {OPERATIONS_A_STEP} operations, one iteration() and one optimizer step a step."
    )


if __name__ == "__main__":
    main()
