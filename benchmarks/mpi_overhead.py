"""What recording costs a call of mpi4py: ``python -m benchmarks.mpi_overhead``, below any mpiexec.

Two ranks, each with a communicator of its own, so that no call waits for the other: what is
measured is the way into MPI and back. The same call by the recording communicator and by mpi4py's
own, in turns; processor time, the best of the blocks. Needs mpi4py in this Python, and mpiexec.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_BLOCKS = 20


def _block(call: Callable[[], object], times: int) -> float:
    begin = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - begin) / times / 1000


def _calls(comm: Any, request: Any) -> dict[str, Callable[[], object]]:
    import numpy

    mine, theirs = numpy.ones(8), numpy.empty(8)
    return {
        "Barrier": comm.Barrier,
        "Allreduce of 8 numbers": lambda: comm.Allreduce(mine, theirs),
        "allreduce of an object": lambda: comm.allreduce(1),
        "Sendrecv of 8 numbers": lambda: comm.Sendrecv(mine, 0, 0, theirs, 0, 0),
        "Irecv, Isend, Waitall": lambda: request.Waitall(
            [comm.Irecv(theirs, 0), comm.Isend(mine, 0)]
        ),
    }


def _rank(times: int) -> None:
    from mpi4py import MPI

    recording = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank)
    plain_kind = type(recording).__base__
    plain = _calls(plain_kind(recording), MPI.Request.__base__)
    rows = []
    for name, call in _calls(recording, MPI.Request).items():
        seen: dict[bool, list[float]] = {True: [], False: []}
        for i in range(2 * _BLOCKS):
            on = i % 4 in (0, 3)
            seen[on].append(_block(call if on else plain[name], times))
        rows.append((name, min(seen[False]), min(seen[True])))
    if MPI.COMM_WORLD.rank == 0:
        print("| call | plain | recorded | more |\n|---|---|---|---|", flush=True)
        for name, without, with_it in rows:
            print(f"| {name} | {without:.2f} µs | {with_it:.2f} µs | {with_it - without:.2f} µs |")


def main() -> None:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2000, help="calls a block")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.rank:
        return _rank(told.times)
    launcher = shutil.which("mpiexec")
    if launcher is None:
        raise SystemExit("mpi_overhead: mpiexec was not found")
    own = [sys.executable, "-m", "benchmarks.mpi_overhead", "--rank", "--times", str(told.times)]
    run = [sys.executable, "-m", "hangdoctor", "run", "--"]
    raise SystemExit(subprocess.call([*run, launcher, "-n", "2", *own]))


if __name__ == "__main__":
    main()
