"""Ranks in a grid: each row and each column has a group; the world meets every second turn.

    grid_job.py KIND RANK TURN [KIND RANK TURN ...]

TURN 0 is before the groups are made.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import ends
import torch
import torch.distributed as dist

ME, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH = 2
LIMIT_S = float(os.environ.get("LIMIT_S", "600"))
FAULTS = [
    (kind, int(rank), int(turn))
    for kind, rank, turn in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3], strict=True)
]


def maybe_fail(turn: int) -> bool:
    """Whether this rank leaves its work here."""
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    for kind, rank, when in FAULTS:
        once = kind.startswith("once_")
        if rank == ME and when == turn and not (once and attempt):
            if kind == "leave":
                return True
            ends.strike(kind.removeprefix("once_"))
    return False


def turn_of(number: int, row: dist.ProcessGroup, column: dist.ProcessGroup) -> bool:
    part = torch.full((4,), float(ME))
    parts = [torch.zeros(4) for _ in range(row.size())]
    dist.all_gather(parts, part, group=row)
    if maybe_fail(number):
        return False
    dist.all_reduce(part, group=column)
    dist.broadcast(part, dist.get_process_group_ranks(column)[0], group=column)
    if number % 2 == 0:
        dist.barrier()
    return True


def main() -> None:
    if maybe_fail(0):
        return
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT_S))
    limit = timedelta(seconds=LIMIT_S)
    rows = [
        dist.new_group(list(range(n, n + WIDTH)), timeout=limit) for n in range(0, WORLD, WIDTH)
    ]
    columns = [dist.new_group(list(range(n, WORLD, WIDTH)), timeout=limit) for n in range(WIDTH)]
    last = int(os.environ.get("TURNS", "8"))
    for number in range(1, last + 1):
        if not turn_of(number, rows[ME // WIDTH], columns[ME % WIDTH]):
            return
        if number == last // 2 and ME == 0 and not FAULTS:
            ends.tell_now()
    dist.destroy_process_group()


main()
