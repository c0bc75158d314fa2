"""What nvidia-smi says beside stacks: one GPU of a node that does nothing while all others are busy.

utilization.gpu [%], power.draw [W]        nvidia-smi --format=csv --query-gpu=...
0 %, 61.20 W
100 %, 84.10 W

A kernel that waits for other ranks keeps its GPU at 100 %: the process of an idle one is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import BadInput
from ..files import read_regular
from ..text.plain import readable
from ..text.plural import choose
from ..text.ranges import format_ranks, number_in

_MAX_FILE = 1 << 20
_COLUMN = "utilization.gpu"
_INDEX = ("index", "gpu")
_BUSY, _IDLE = 90, 5  # percent
_FEWEST = 4  # GPUs


def notes(paths: Iterable[Path]) -> list[str]:
    """A note for each file that shows such a GPU."""
    found = []
    for path in paths:
        try:
            text = read_regular(path, _MAX_FILE).decode("utf-8", "replace")
        except (OSError, BadInput):
            continue
        idle, number = idle_of(text)
        if idle:
            gpus = f"{choose(idle, 'GPU', 'GPUs')} {format_ranks(idle)} of {number}"
            is_are = choose(idle, "is", "are")
            its = choose(idle, "its process is", "their processes are")
            found.append(
                f"{gpus} {is_are} idle and all others at {_BUSY} % or more ({readable(path.name)}): "
                f"{its} not in the operation that keeps these busy, so look there first"
            )
    return found


def idle_of(text: str) -> tuple[list[int], int]:
    """(the few idle GPUs, how many there are); ([], 0) where the text has no such table, or none stands out."""
    column = index = -1
    used: dict[int, int] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if any(cell.startswith(_COLUMN) for cell in cells):
            names = [cell.split(" ")[0] for cell in cells]
            column = next(at for at, name in enumerate(names) if name == _COLUMN)
            index = next((at for at, name in enumerate(names) if name in _INDEX), -1)
            used = {}
        elif 0 <= column < len(cells):
            percent = number_in(cells[column].removesuffix("%").strip())
            gpu = number_in(cells[index]) if index >= 0 else len(used)
            if percent >= 0 <= gpu:
                used[gpu] = percent
    idle = sorted(gpu for gpu, percent in used.items() if percent <= _IDLE)
    busy = [gpu for gpu, percent in used.items() if percent >= _BUSY]
    clear = (
        len(used) >= _FEWEST and len(idle) + len(busy) == len(used) and 2 * len(idle) < len(used)
    )
    return (idle, len(used)) if idle and clear else ([], 0)
