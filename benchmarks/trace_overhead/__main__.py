"""What tracing a Python call costs: ``python -m benchmarks.trace_overhead [--rounds N] [--calls
N]``.

Side by side in one process, taking turns, so that the machine's mood falls on all alike: nothing,
hangdoctor's extension, its pure-Python variant, VizTracer, and `trace.Trace` with its output
through a Tee as people do it by hand. Medians of the added nanoseconds for a call that is followed
and for one that is ignored, and bytes for each event. An empty profile function in C stands beside
them where the interpreter uses one: what no tracer can go below. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.progress import say
from hangdoctor.probe.calls import hooks

from . import tracers
from .tracers import Tracer

_PROGRAM = """
def leaf(x):
    return x

def program(n):
    for _ in range(n):
        leaf(1)
"""


def module(name: str, folder: Path) -> types.ModuleType:
    """The same program under two names: one is followed, the other ignored."""
    path = folder / f"{name}.py"
    path.write_text(_PROGRAM)
    made = types.ModuleType(name)
    made.__file__ = str(path)
    exec(compile(_PROGRAM, str(path), "exec"), made.__dict__)
    return made


def block(program: Callable[[int], None], calls: int) -> float:
    """Nanoseconds a call, of this thread's processor time: other work on the machine counts less."""
    program(100)  # names are learned, code is instrumented
    begin = time.thread_time_ns()
    program(calls)
    return (time.thread_time_ns() - begin) / calls


def measure(
    rounds: int, calls: int, folder: Path
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, Tracer]]:
    """(nanoseconds of a followed call, of an ignored one, the tracers), by name."""
    followed, ignored = module("followed_part", folder), module("ignored_part", folder)
    entries = tracers.available(folder)
    on: dict[str, list[float]] = {name: [] for name in entries}
    off: dict[str, list[float]] = {name: [] for name in entries}
    for round_ in range(rounds):
        say(f"round {round_ + 1} of {rounds}")
        names = list(entries) if round_ % 2 == 0 else list(entries)[::-1]
        for name in names:
            few = max(200, calls // entries[name].slower)
            off[name].append(entries[name].run(partial(block, ignored.program, few)))
            on[name].append(entries[name].run(partial(block, followed.program, few)))
    return on, off, entries


def table(
    on: dict[str, list[float]], off: dict[str, list[float]], entries: dict[str, Tracer]
) -> list[str]:
    """Lines of a Markdown table."""
    base_on, base_off = statistics.median(on["nothing"]), statistics.median(off["nothing"])
    lines = [
        "| tracer | a followed call, ns | an ignored call, ns | bytes an event |",
        "|---|---|---|---|",
    ]
    for name, tracer in entries.items():
        cells = [
            f"{statistics.median(values) - base:+.0f} ({min(values) - base:+.0f} to {max(values) - base:+.0f})"
            for values, base in ((on[name], base_on), (off[name], base_off))
        ]
        if name == "nothing":
            cells = [f"{base_on:.0f} in all", f"{base_off:.0f} in all"]
        size = tracer.bytes_per_event()
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {f'{size:.1f}' if size else '-'} |")
    return lines


def soak(folder: Path, events: int) -> str:
    """Write many events; what the process has in memory before and after."""
    followed = module("followed_part", folder)
    (folder / "soak").mkdir()
    ours = tracers.Ours(folder / "soak", pure=hooks.extension() is None)

    def grown_kb() -> float:
        followed.program(1_000_000)  # once round the ring: its own pages count from then on
        before = resident_kb()
        followed.program(events // 2)
        return resident_kb() - before

    return f"{events:,} events: {ours.run(grown_kb):+.0f} kB of memory"


def resident_kb() -> float:
    """Memory of this process."""
    text = Path("/proc/self/status").read_text()
    return float(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument(
        "--soak",
        type=int,
        default=0,
        metavar="EVENTS",
        help="also write N events and watch the memory",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        on, off, entries = measure(args.rounds, args.calls, Path(name))
        print("\n".join(table(on, off, entries)))
        print(
            f"Python {sys.version.split()[0]}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}"
        )
        if args.soak:
            say(f"writing {args.soak:,} events")
            print(soak(Path(name), args.soak))


if __name__ == "__main__":
    main()
