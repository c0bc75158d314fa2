"""Pass: of ranks that wait for one another, and of which nothing else shows who is wrong, the one
that means to go another number of rounds than all others; and why one that is known left transfers
out.

In each function that all living ranks are in, or all that wait in a send or receive, a variable
that says how many (`stacks/amounts.py`) is compared; then in each file, since stages are in its
forward phase and others in its backward phase. Who has another number in it than all others,
which agree, makes more or fewer calls than they expect. The same where all wait, in several
operations, and stacks alone do not show which of them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ..model.frame import Frame
from ..stacks.amounts import AMOUNT
from . import findings as f
from .case import Case, finding_on, nodes_of, sides_of
from .confidence import Ground, sure
from .draft import Draft
from .findings import Finding, Op
from .left_open import names_both_sides
from .view import RankView

Sides = tuple[tuple[tuple[int, ...], Op], ...]

_FEWEST = 3  # ranks that agree, or all but one of a job of three


class Odd(Struct, frozen=True):
    """The rank, with the variable's value on it and on all others, and its function on that rank."""

    rank: int
    name: str
    own: int
    others: int
    frame: Frame


def run(case: Case, draft: Draft) -> None:
    """Of each such finding keep the rank alone, where one is apart."""
    if case.gone or case.absent or case.unseen:
        return
    open_ones = [finding for finding in draft.findings if names_both_sides(finding)]
    short = [finding for finding in draft.findings if _is_fewer(finding)]
    undecided = not draft.findings and draft.status is None and _all_wait_apart(case)
    if not open_ones and not short and not undecided:
        return
    odd = apart(case.alive) or apart(_in_transfers(case))
    if odd is None:
        return
    if undecided:
        draft.findings = [_finding(case, odd)]
    for finding in open_ones:
        if odd.rank in finding.ranks:
            _name(case, finding, odd)
    for finding in short:
        if finding.ranks == [odd.rank]:
            finding.amount = f.AmountApart(odd.name, odd.own, odd.others, odd.frame, ())


def _is_fewer(finding: Finding) -> bool:
    """Whether its rank, by its records, left out transfers that others wait for, or made others."""
    fewer = isinstance(finding.story, f.Diverged) and finding.story.fewer
    return fewer or (finding.kind == "p2p_unmatched" and len(finding.ranks) == 1)


def _in_transfers(case: Case) -> list[RankView]:
    """Who waits in a send or receive: stages exchange so many micro-batches, whatever others wait
    in for them.
    """
    return [view for view in case.alive if view.place.kind == "p2p"]


def _all_wait_apart(case: Case) -> bool:
    """Whether all ranks wait in calls for other ranks, in more than one call, and none moves."""
    still = all(
        view.waits and view.motion in ("still", "unknown", "running") for view in case.alive
    )
    return still and len(case.alive) == case.world_size and len(sides_of(case.alive)) > 1


def _finding(case: Case, odd: Odd) -> Finding:
    views = [view for view in case.alive if view.rank == odd.rank]
    sides = sides_of(case.alive)
    story = f.AmountApart(odd.name, odd.own, odd.others, odd.frame, sides)
    return finding_on(case, "order", views, story, confidence=sure(Ground.AMOUNT_ELSEWHERE))


def apart(views: Sequence[RankView]) -> Odd | None:
    """The only rank that is apart in such a variable; None where none is, or several are."""
    if len(views) < _FEWEST or not all(view.path for view in views):
        return None
    found = list(_odd_ones(views))
    return found[0] if found and len({one.rank for one in found}) == 1 else None


def _odd_ones(views: Sequence[RankView]) -> Iterator[Odd]:
    """Of each function that all are in, outermost first, by each variable; without one, of each
    file.
    """
    by_function = list(_in_each([_by_function(view) for view in views], views))
    yield from by_function or _in_each([_by_file(view) for view in views], views)


def _in_each(frames: Sequence[Mapping[object, Frame]], views: Sequence[RankView]) -> Iterator[Odd]:
    for key in [key for key in frames[0] if all(key in other for other in frames[1:])]:
        here = [of[key] for of in frames]
        for name in sorted(n for n in here[0].values if n.startswith(AMOUNT)):
            values = [frame.values.get(name) for frame in here]
            own = _odd_value(values)
            if own is not None:
                at = values.index(own)
                usual = next(v for v in values if v != own)
                yield Odd(views[at].rank, name.removeprefix(AMOUNT), own, usual or 0, here[at])


def _by_file(view: RankView) -> dict[object, Frame]:
    """The one frame of each file that has a number of micro-batches: other names mean other things
    in another function.
    """
    found: dict[object, list[Frame]] = {}
    for frame in view.path:
        if any(name.startswith(AMOUNT) and "micro" in name for name in frame.values):
            found.setdefault(frame.file, []).append(frame)
    return {file: frames[0] for file, frames in found.items() if len(frames) == 1}


def _by_function(view: RankView) -> dict[object, Frame]:
    """The frames of a stack, outermost first; of one that calls itself none."""
    names = [(frame.name, frame.file) for frame in view.path]
    once = {name for name in names if names.count(name) == 1}
    return {name: frame for name, frame in zip(names, view.path, strict=True) if name in once}


def _odd_value(values: Sequence[int | None]) -> int | None:
    """The value that one has alone while all others have one other value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(set(known)) != 2:
        return None
    return next((value for value in known if known.count(value) == 1), None)


def _name(case: Case, finding: Finding, odd: Odd) -> None:
    finding.story = f.AmountApart(odd.name, odd.own, odd.others, odd.frame, _sides(finding))
    finding.ranks = [odd.rank]
    finding.nodes = nodes_of([v for v in case.alive if v.rank == odd.rank])
    finding.confidence = sure(Ground.AMOUNT_APART)
    finding.frame, finding.doing = odd.frame, None


def _sides(finding: Finding) -> Sides:
    """What each of the ranks is in, as far as the finding has it."""
    story = finding.story
    if isinstance(story, f.Ring):
        return tuple(((rank,), op) for rank, op in story.sides)
    if isinstance(story, f.InOther):
        return story.sides
    if isinstance(story, f.Disagrees) and story.theirs is not None and len(story.sides) == 2:
        return (story.sides[0], story.mine), (story.sides[1], story.theirs)
    return ()
