"""Further ranks that failed by themselves: what they raised no operation can have brought."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import Ended, KnownError, PythonError
from ..findings.log_stories import FailedFirst
from .beside import CRASH
from .candidate import First
from .error_findings import of_errors
from .scene import Scene, ranks_named

_NO_PROGRAM = "missing_program"  # a rule
_OF_LAUNCH = ("port_in_use", _NO_PROGRAM)  # rules
_PYTHONS_CODE = 2  # of the interpreter that cannot open its program


def others_of_their_own(scene: Scene, found: First | None) -> list[First]:
    """One for each rank that raised an exception of its own after another one had failed."""
    if found is None or found.finding.kind not in CRASH:
        return []
    named = {*found.finding.ranks, *ranks_named(found.facts)}
    errors = [f for f in scene.of(PythonError) if f.independent and f.rank not in named]
    if _all_alike(scene, errors, named):
        errors = []
    launch = _of_the_launch(scene, found)
    further = [_of_alike(scene, alike) for alike in launch]
    further += [of_errors(scene, error, [error]) for error in errors]
    for first in further:
        if isinstance(first.finding.story, FailedFirst):
            first.finding.story = structs.replace(first.finding.story, later=True)
    return further


def _of_the_launch(scene: Scene, found: First) -> list[list[KnownError]]:
    """What else was wrong with the launch, by rule: a port that is taken and a program that is missing have
    nothing to do with one another.
    """
    rules = {getattr(fact, "rule", "") for fact in found.facts}
    if not rules & set(_OF_LAUNCH):
        return []
    errors = [f for f in scene.of(KnownError) if f.role == "cause" and not f.survived]
    further = [[f for f in errors if f.rule == rule] for rule in _OF_LAUNCH if rule not in rules]
    return [_with_ranks(scene, alike) for alike in further if alike]


def _of_alike(scene: Scene, alike: list[KnownError]) -> First:
    """The candidate of these lines, also where they show no ranks and the ends do."""
    every = _with_ranks(scene, alike)
    return First(of_errors(scene, every[0], every).finding, [*alike], True)


def _with_ranks(scene: Scene, alike: list[KnownError]) -> list[KnownError]:
    """The same of each rank that ended with Python's code for a program that is not there, where the lines do
    not name one.
    """
    if alike[0].rule != _NO_PROGRAM or ranks_named(alike):
        return alike
    ends = [f for f in scene.of(Ended) if f.by == "torchelastic" and f.rank >= 0]
    of_it = {f.rank: f for f in ends if f.code == _PYTHONS_CODE}
    if len(of_it) < len({f.rank for f in ends}) or sum(f.times for f in alike) < len(of_it):
        return alike
    return [structs.replace(alike[0], rank=r, node=f.node, times=1) for r, f in of_it.items()]


def _all_alike(scene: Scene, errors: Sequence[PythonError], named: set[int]) -> bool:
    """Whether all other ranks, several, raised one error at one line: they missed what the first one had
    to bring, as a file that they waited for.
    """
    raised = {(f.error, str(f.frame)) for f in errors}
    others = set(scene.everyone) - named
    return len(others) > 1 and len(raised) == 1 and {f.rank for f in errors} == others
