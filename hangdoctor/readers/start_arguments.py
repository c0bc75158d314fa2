"""What the first frames of a process that multiprocessing started show of its rank: torch's own
number of it, and the rank and the world size among the arguments of the function that it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.capture import Frame
from ..text.ranges import MAX_RANKS, number_in

GIVEN = "number of its start"  # in `Frame.lists`: torch's own number of a process
ARGUMENTS = "rank and world size among its arguments"  # the same, or the rank alone

_STARTER = "multiprocessing/process.py"
_SPAWN = "torch/multiprocessing/spawn.py"
_RANKS = ("rank", "global_rank", "world_rank")
_WORLDS = (
    "world_size",
    "world",
    "nprocs",
    "n_procs",
    "num_procs",
    "nranks",
    "n_ranks",
    "num_ranks",
)


def mark(frames: Sequence[Frame], variables: Sequence[Mapping[str, str]]) -> None:
    """Put what the start of a process shows into the lists of its frames (innermost first), by the
    variables of each as py-spy writes them.
    """
    start = next((n for n, frame in enumerate(frames) if frame.file.endswith(_STARTER)), 0)
    if start == 0:
        return
    run = start - 1
    if frames[run].file.endswith(_SPAWN):
        given = number_in(variables[run].get("i", ""))
        if given >= 0:
            frames[run].lists = {GIVEN: [given]}
        run -= 1
    if run < 0:
        return
    rank = _first(variables[run], _RANKS)
    world = _first(variables[run], _WORLDS)
    if 0 <= rank < MAX_RANKS:
        frames[run].lists |= {ARGUMENTS: [rank, world] if rank < world < MAX_RANKS else [rank]}


def _first(variables: Mapping[str, str], names: Sequence[str]) -> int:
    return next((n for name in names if (n := number_in(variables.get(name, ""))) >= 0), -1)
