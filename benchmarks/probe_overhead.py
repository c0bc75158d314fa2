"""What the probe costs an operation: ``python -m benchmarks.probe_overhead [--rounds N]``.

Two ranks on this machine, gloo, all_reduce of 4 floats, blocks with the probe on and off
interleaved in the same processes, so that the machine's mood falls on both. Beside it the wrapper
alone around a function that does nothing, which is the exact cost in Python; and the share of a
step of 20 ms with 50 operations. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

from benchmarks.progress import say

OPERATIONS_A_STEP = 50
STEP_S = 0.020


Figures = tuple[
    float, float
]  # nanoseconds a call: by the clock, and of this thread's processor time
Row = dict[bool, list[Figures]]  # with the probe on (True) and off (False), one pair a block


def _block(call: Callable[[], object], times: int) -> Figures:
    begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(times):
        call()
    spent = time.thread_time_ns() - cpu
    return (time.perf_counter_ns() - begin) / times, spent / times


def _interleaved(
    call: Callable[[], object], rounds: int, times: int, switch: Callable[[bool], None]
) -> Row:
    seen: Row = {True: [], False: []}
    for i in range(2 * rounds):
        # on, off, off, on ...: a drift of the machine falls on both alike.
        on = i % 4 in (0, 3)
        switch(on)
        seen[on].append(_block(call, times))
    switch(True)
    return seen


def _rank(rank: int, port: int, folder: str, rounds: int, times: int, results: object) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE="2",
        HANGDOCTOR_DIR=folder,
    )
    import torch
    import torch.distributed as dist

    from hangdoctor import probe
    from hangdoctor.probe import signatures, wrap
    from hangdoctor.probe.process_probe import probe as state

    torch.set_num_threads(1)
    probe.install()
    dist.init_process_group("gloo")
    recorder = state.recorder
    assert recorder is not None, "the probe did not start"

    def switch(on: bool) -> None:
        state.recorder = recorder if on else None

    tensor = torch.ones(4)
    rows = {}
    for _ in range(2):  # warm up both ways
        _interleaved(lambda: dist.all_reduce(tensor), 2, times // 4, switch)
    rows["gloo all_reduce"] = _interleaved(lambda: dist.all_reduce(tensor), rounds, times, switch)
    rows["gloo all_reduce, async and wait"] = _interleaved(
        lambda: dist.all_reduce(tensor, async_op=True).wait(), rounds, times, switch
    )

    def nothing(
        tensor: object, op: object = None, group: object = None, async_op: bool = False
    ) -> None:
        return None

    wrapped = wrap.collective(nothing, signatures.all_reduce)
    seen: Row = {True: [], False: []}
    for i in range(
        2 * rounds if rank == 0 else 0
    ):  # the other rank waits below and leaves the machine alone
        on = i % 4 in (0, 3)
        call = wrapped if on else nothing
        seen[on].append(_block(lambda call=call: call(tensor), times * 4))  # type: ignore[misc]
    rows["wrapper around nothing"] = seen
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        results.put(rows)  # type: ignore[attr-defined]


def measure(rounds: int = 40, times: int = 500) -> dict[str, Row]:
    """Rank 0's figures by kind of call."""
    import multiprocessing
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    say(f"{rounds} rounds of {times} calls of each kind, with and without the probe")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(r, port, folder, rounds, times, results))
            for r in range(2)
        ]
        for process in ranks:
            process.start()
        try:
            rows: dict[str, Row] = results.get(timeout=300)
            for process in ranks:
                process.join(60)
        finally:
            for process in ranks:
                process.kill()
    return rows


def _added(row: Row, which: int) -> float:
    """Median of the differences of neighbouring blocks, microseconds a call."""
    return (
        statistics.median(a[which] - b[which] for a, b in zip(row[True], row[False], strict=True))
        / 1e3
    )


def _median(blocks: list[Figures]) -> float:
    return statistics.median(wall for wall, _ in blocks) / 1e3


def table(rows: dict[str, Row]) -> list[str]:
    """Lines of a Markdown table, and the share of a step."""
    lines = [
        "| Call | off, µs | on, µs | added, µs | added processor time, µs | added in the quietest blocks, µs |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        quiet = (min(row[True])[0] - min(row[False])[0]) / 1e3
        figures = (_median(row[False]), _median(row[True]), _added(row, 0), _added(row, 1), quiet)
        lines.append("| " + " | ".join([name, *(f"{f:.2f}" for f in figures)]) + " |")
    share = _added(rows["wrapper around nothing"], 1) / 1e6 * OPERATIONS_A_STEP / STEP_S
    return [
        *lines,
        "",
        f"{OPERATIONS_A_STEP} operations in a step of {STEP_S * 1e3:.0f} ms: {share:.2%} of it.",
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="What the probe costs an operation.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--times", type=int, default=500, help="calls in a block")
    told = parser.parse_args()
    print("\n".join(table(measure(told.rounds, told.times))))


if __name__ == "__main__":
    main()
