"""Pass: few ranks compile in all samples (XLA, torch.compile, Triton), and all others wait for them.

A compilation is work: it ends, and the others go on. What shows it to be one is CPU time, of the
process or of those that it has started for it; without that, it may wait for a lock of its cache or for
a worker that has died, which other passes look at.
"""

from __future__ import annotations

from functools import lru_cache

from ..model.capture import Frame, Process
from ..model.diagnosis import Kind
from ..stacks.place_search import find_place
from ..text.late import late
from . import findings as f
from .case import Case, finding_on, in_op, ranks_of, stack_clue
from .confidence import Ground, sure
from .draft import Draft
from .findings import Clue, Finding
from .position import group_by_operation
from .view import RankView

# Functions that are on the stack while they compile, and not while what they made runs.
_COMPILERS = (
    (
        "XLA",
        late(r"(?:^|/)jax/_src/compiler\.py$"),
        late(r"backend_compile\w*|compile_or_get_cached|_compile_and_write_cache"),
    ),
    (
        "XLA",
        late(r"(?:^|/)jax/_src/interpreters/(?:pxla|mlir)\.py$"),
        late(r"_cached_compilation|from_hlo|lower_(?:sharding_computation|jaxpr_to_module)"),
    ),
    ("Triton", late(r"(?:^|/)triton/compiler/compiler\.py$"), late(r"compile")),
    ("torch.compile", late(r"(?:^|/)torch/_dynamo/convert_frame\.py$"), late(r".*")),
    (
        "torch.compile",
        late(r"(?:^|/)torch/_inductor/(?:compile_fx|async_compile)\.py$"),
        late(r"\w*compile\w*|wait"),
    ),
)
_AT_LEAST = 0.05  # CPU time of those that compile, as a share of the time between the samples
_TIMES_MORE = 4.0  # than any of those that wait
_IDLE = 0.05  # of that time, on the CPU, at most
_SHORTEST_S = 0.2  # between two samples
_OF_ONE_ELSEWHERE: frozenset[Kind] = frozenset({"not_entered", "busy", "slow"})


def run(case: Case, draft: Draft) -> None:
    """Say that they compile, where nothing else is wrong with the job."""
    if case.capture.over:
        return
    found = _find(case)
    if found is not None and _explains(draft, found.ranks):
        draft.status, draft.findings = "slow", [found]


def _explains(draft: Draft, compiling: list[int]) -> bool:
    """Whether all that was found is that these did not come to the others."""
    blamed = {rank for finding in draft.findings for rank in finding.ranks}
    kinds = {finding.kind for finding in draft.findings}
    return blamed <= set(compiling) and kinds <= _OF_ONE_ELSEWHERE


def _find(case: Case) -> Finding | None:
    if case.gone or case.unseen or case.unread or len(case.alive) < 2:
        return None
    compiling = [view for view in case.alive if _compiles(view)]
    waiting = [view for view in case.alive if view not in compiling and _waited(view)]
    if not 0 < len(compiling) <= len(waiting) or len(compiling) + len(waiting) < len(case.alive):
        return None
    least = min(map(_share, compiling))
    most = max(map(_share, waiting))
    if most > _IDLE or least < max(_AT_LEAST, _TIMES_MORE * most):
        return None
    return _finding(case, compiling, waiting)


def _finding(case: Case, compiling: list[RankView], waiting: list[RankView]) -> Finding:
    goes_on = any(view.motion in ("moved", "looping") for view in waiting)
    story = f.Compiling(_compiler(compiling[0].path), goes_on)
    finding = finding_on(case, "slow", compiling, story, confidence=sure(Ground.COMPILES))
    finding.clues = [stack_clue(compiling, compiling[0].path[-1].code)]
    if goes_on:
        finding.clues.append(Clue("stack", ranks_of(waiting), f.WaitsIn()))
    else:
        finding.clues += [in_op(group) for group in group_by_operation(waiting)]
    return finding


def _stacks(view: RankView) -> list[list[Frame]]:
    """The stack of its own thread in each sample that has one."""
    if view.thread is None:
        return []
    threads = [t for sample in view.capture.samples for t in sample.threads]
    return [t.frames for t in threads if t.tid == view.thread.tid and t.frames]


def _compiles(view: RankView) -> bool:
    """Whether all samples found it in a compiler, and in no wait for another rank."""
    stacks = _stacks(view)
    if len(stacks) < 2 or view.stopped:
        return False
    return all(_compiler(frames) and not find_place(frames).communicates for frames in stacks)


def _compiler(frames: list[Frame]) -> str:
    """What compiles in a stack; "" where nothing does."""
    return next((name for one in frames if (name := _named(one.name, one.file))), "")


@lru_cache(maxsize=65_536)
def _named(function: str, file: str) -> str:
    name = function.rpartition(".")[2]
    found = (c for c, at, called in _COMPILERS if at.search(file) and called.fullmatch(name))
    return next(found, "")


def _waited(view: RankView) -> bool:
    """Whether all samples found it in a wait for other ranks or its device."""
    stacks = _stacks(view)
    if len(stacks) < 2 or view.stopped:
        return False
    return all(find_place(frames, blocked=True).communicates for frames in stacks)


def _share(view: RankView) -> float:
    """CPU time of its process and its children, as a share of the time between the samples; 0 where that
    is too short.
    """
    capture = view.capture
    seconds = capture.samples[-1].at_s - capture.samples[0].at_s
    used = sum(map(_cpu_between, [capture, *capture.children]))
    return used / seconds if seconds >= _SHORTEST_S else 0.0


def _cpu_between(process: Process) -> float:
    samples = process.samples
    return samples[-1].cpu_s - samples[0].cpu_s if len(samples) > 1 else 0.0
