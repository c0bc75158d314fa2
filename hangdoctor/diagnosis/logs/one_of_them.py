"""An error that has no rank, or one rank of several that had it: those that can have said it, and how many
more said the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from ...model.log_ends import CRASHES, SENT, short_host
from ...model.log_facts import MPI_ABORT, Ended, KilledByLauncher, KnownError, PythonError
from ...text.late import late
from .candidate import Error
from .scene import Scene, ranks_named
from .swept import after_the_stop

_LISTS = ("torchelastic", "slurm")  # launchers that name each process which failed
_MAIN = ("<module>", "_run_module_as_main", "_run_code", "_bootstrap")
# A rule: the last line of a stack that Open MPI's handler of signals prints
_STACK_END = "crash_stack_end"
_ENDS_AT_ONCE = ("missing_program",)  # rules of a line that each process prints once, and ends
_WHAT = late(r"\s{0,8}what\(\):  ")
# A check of the program's own, which ends it: "CUDA ERROR (..) at memory.c:298"
_AT_PLACE = late(
    r"\b(?:at|in|file) [\w./-]{1,120}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|f90|F90|f)(?::| line )\d{1,6}\W{0,3}$"
)
_WORDS = 24  # characters of a message, which no other error has by chance
_SPEAKER = late(r"^\W{0,3}\d|\b(?:rank|task|proc(?:ess)?|pe|pid|node|host)\b|\[", re.I)
_OF_FORTRAN = late(r"forrtl: (?:severe|error) \((\d{1,3})\)")


def can_have_said(scene: Scene, alike: Sequence[Error]) -> list[int]:
    """The few ranks that failed by themselves, one of which has this error; [] where that is no news."""
    nameless = all(max(f.rank, f.task, f.local) < 0 and not (f.worker or f.pid) for f in alike)
    codes = {CRASHES.get(f.rule, 0) for f in alike}
    if not nameless or len(codes) != 1:
        return []
    code = codes.pop()
    ends = [f for f in scene.of(Ended) if f.by.split(" ")[0] in _LISTS and f.rank >= 0]
    failed = [f for f in ends if (f.code == code if code else f.code > 0 and f.code not in SENT)]
    failed = [f for f in failed if not after_the_stop(scene, f)]
    spoke = set(ranks_named(scene.of(PythonError)))
    ranks = [rank for rank in ranks_named(failed) if rank not in spoke]
    nobodys = [f for f in scene.of(PythonError) if f.rank < 0 and f.role != "launcher"]
    if sum(f.times for f in nobodys) > len(ranks):
        return []  # others spoke too, which the launcher does not name
    is_news = len(ranks) > 1 and not (scene.whole and set(ranks) >= set(scene.everyone))
    return ranks if is_news else []


def said_by_more(scene: Scene, alike: Sequence[Error]) -> int:
    """So many other processes had the same: by further tracebacks like it that have no rank, or by the
    launcher's count.
    """
    ranks = ranks_named(alike)
    ended = _last_lines(scene, alike)
    if ended > 1 and len(ranks) <= 1:
        return ended - 1
    in_words = _said_in_words(scene, alike)
    if in_words:
        return in_words
    if alike[0].worker and not ranks:
        return len({(f.node, f.pid) for f in alike if f.pid} - {(alike[0].node, alike[0].pid)})
    if len(ranks) != 1 or alike[0].rule in CRASHES:
        return 0
    counted = [f.more for f in scene.of(Ended) if f.by == MPI_ABORT and f.rank in ranks]
    counted += [int(f.values.get("more", 0)) for f in alike]
    printed = [f for f in alike if _is_last_of_process(f)]
    started = bool(scene.of(KilledByLauncher)) or any(f.by in _LISTS for f in scene.of(Ended))
    further = sum(f.times for f in printed) - 1 if started else 0
    return max(*counted, further, 0)


def _said_in_words(scene: Scene, alike: Sequence[Error]) -> int:
    """How many other processes have the words of the only traceback in a line of their own, as a logger's before a
    traceback that is cut.
    """
    first = alike[0]
    if len(alike) != 1 or not isinstance(first, PythonError) or not first.pid:
        return 0
    words = first.message[:_WORDS]
    same = [f for f in scene.unread if f.file == first.file and f.pid and f.pid != first.pid]
    return len({f.pid for f in same if len(words) == _WORDS and words in f.text})


def _last_lines(scene: Scene, alike: Sequence[Error]) -> int:
    """How many processes ended with this error, by lines of it that a process prints once, without the number
    of a speaker; 0 where they do not show.
    """
    first = alike[0]
    if len(alike) != 1 or not isinstance(first, KnownError) or first.rule in CRASHES:
        return 0
    if first.rule in _ENDS_AT_ONCE:
        return first.times
    if _WHAT.match(first.says):
        return first.times  # of C++'s last words
    if first.pid:
        return 0
    ends = [f for f in scene.of(Ended) if f.by == "mpirun" and f.rank >= 0 and f.code > 0]
    plain = _AT_PLACE.search(first.says) is not None and _SPEAKER.search(first.says) is None
    return first.times if plain and len({f.rank for f in ends}) == 1 else 0


def further_stacks(scene: Scene, alike: Sequence[Error]) -> list[KnownError]:
    """Ends of stacks of further processes, one of each, whose own line on the signal is missing: Open MPI
    prints all of it from a crash's handler.
    """
    if alike[0].rule not in CRASHES:
        return []
    told = {(f.node, f.pid) for f in scene.of(KnownError) if f.rule in CRASHES}
    stacks = [f for f in scene.of(KnownError) if f.rule == _STACK_END and f.pid]
    own = [f for f in stacks if f.file == alike[0].file and (f.node, f.pid) not in told]
    return list({(f.node, f.pid): f for f in own}.values())


def exited_alike(scene: Scene, alike: Sequence[Error]) -> list[Ended]:
    """Ends of other ranks with the exit code that is the number of this error: Fortran's runtime ends a
    process with it.
    """
    ranks = ranks_named(alike)
    match = _OF_FORTRAN.search(alike[0].says) if alike[0].rule == "fortran" else None
    if match is None or not ranks:
        return []
    ends = [f for f in scene.of(Ended) if f.code == int(match[1]) and f.rank >= 0]
    return [f for f in ends if f.rank not in ranks and not after_the_stop(scene, f)]


class Crashed(Struct):
    """Ends by the signal of crashes whose processes have no rank, and the nodes of those that stay without."""

    ends: list[Ended]
    nameless: list[str]  # a node for each process


def crashed_too(scene: Scene, alike: Sequence[Error]) -> Crashed:
    """By node: launchers name some of those that crashed there, and ranks of further nodes."""
    code = CRASHES.get(alike[0].rule, 0)
    lines = {(f.file, f.line) for f in alike if f.rank >= 0}  # which another rule knows too
    named = {f.pid for f in alike if f.rank >= 0}
    every = [*alike, *further_stacks(scene, alike)]
    nobodys = [f for f in every if f.rank < 0 and f.pid and f.pid not in named]
    processes = {(short_host(f.node), f.pid) for f in nobodys if (f.file, f.line) not in lines}
    if not code or not processes or any(not node for node, _ in processes):
        return Crashed([], [])
    told = ranks_named(alike)
    ends = [f for f in scene.of(Ended) if f.code == code and f.rank >= 0 and f.node]
    ends = [f for f in ends if f.rank not in told]
    nameless = sorted(node for node, _ in processes)
    for node in {(short_host(f.node), f.rank) for f in ends}:
        if node[0] in nameless:
            nameless.remove(node[0])
    return Crashed(ends, nameless if ends or told else [])


def _is_last_of_process(error: Error) -> bool:
    """Whether it is a traceback that Python itself printed, in which its process ended, without a prefix
    that names the speaker.
    """
    if not isinstance(error, PythonError) or error.logged or not error.frames:
        return False
    plain = re.match(rf"[\w.]*{re.escape(error.error)}\b", error.says.lstrip()) is not None
    return plain and error.frames[-1].name in _MAIN
