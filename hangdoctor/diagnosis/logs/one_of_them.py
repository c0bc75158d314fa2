"""An error that has no rank, or one rank of several that had it: those that can have said it, and how many
more said the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...model.log_facts import MPI_ABORT, Ended, KilledByLauncher, KnownError, PythonError
from .scene import Scene, ranks_named

_LISTS = ("torchelastic", "slurm")  # launchers that name each process which failed
_SENT = frozenset({-1, -2, -9, -15, 129, 130, 137, 143})
_MAIN = ("<module>", "_run_module_as_main", "_run_code")
CRASHES = {"segfault": -11, "bus_error": -7, "float_error": -8}  # rules
Error = PythonError | KnownError


def can_have_said(scene: Scene, alike: Sequence[Error]) -> list[int]:
    """The few ranks that failed by themselves, one of which has this error; [] where that is no news."""
    nameless = all(max(f.rank, f.task, f.local) < 0 and not (f.worker or f.pid) for f in alike)
    codes = {CRASHES.get(f.rule, 0) for f in alike}
    if not nameless or len(codes) != 1:
        return []
    code = codes.pop()
    ends = [f for f in scene.of(Ended) if f.by.split(" ")[0] in _LISTS and f.rank >= 0]
    failed = [f for f in ends if (f.code == code if code else f.code > 0 and f.code not in _SENT)]
    spoke = set(ranks_named(scene.of(PythonError)))
    ranks = [rank for rank in ranks_named(failed) if rank not in spoke]
    is_news = len(ranks) > 1 and not (scene.whole and set(ranks) >= set(scene.everyone))
    return ranks if is_news else []


def said_by_more(scene: Scene, alike: Sequence[Error]) -> int:
    """So many other processes had the same: by further tracebacks like it that have no rank, or by the
    launcher's count.
    """
    ranks = ranks_named(alike)
    processes = {(f.node, f.pid) for f in alike if f.rank < 0 and f.pid}
    if ranks and alike[0].rule in CRASHES:
        return len(processes)
    if len(ranks) != 1:
        return 0
    counted = [f.more for f in scene.of(Ended) if f.by == MPI_ABORT and f.rank in ranks]
    counted += [int(f.values.get("more", 0)) for f in alike]
    printed = [f for f in alike if _is_last_of_process(f)]
    started = scene.of(KilledByLauncher) or [f for f in scene.of(Ended) if f.by in _LISTS]
    further = sum(f.times for f in printed) - 1 if started else 0
    return max(*counted, further, 0)


def crashed_elsewhere(scene: Scene, alike: Sequence[Error]) -> list[Ended]:
    """Ends by the signal of these crashes, whose ranks do not show, of ranks on other nodes."""
    code = CRASHES.get(alike[0].rule, 0)
    nodes = {f.node.partition(".")[0] for f in alike}
    if not code or "" in nodes or ranks_named(alike):
        return []
    ends = [f for f in scene.of(Ended) if f.code == code and f.rank >= 0 and f.node]
    return [f for f in ends if f.node.partition(".")[0] not in nodes]


def _is_last_of_process(error: Error) -> bool:
    """Whether it is a traceback that Python itself printed, in which its process ended, without a prefix
    that names the speaker.
    """
    if not isinstance(error, PythonError) or error.logged or not error.frames:
        return False
    plain = re.match(rf"[\w.]*{re.escape(error.error)}\b", error.says.lstrip()) is not None
    return plain and error.frames[-1].name in _MAIN
