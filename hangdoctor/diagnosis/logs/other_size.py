"""The rank to which gloo brought more data than its call takes, where all others whose tracebacks
are there had met in one other line: it left out a call of theirs, it seems, and went on to a
smaller one.

Without those lines either side may be wrong: a rank that sends too much stops the one that receives
it. Neither is one named where the sizes are near to each other, as those of one call are.
"""

from __future__ import annotations

from ...model.log_facts import KnownError, PythonError
from ...stacks.place_search import find_place
from ...text.late import late
from ..confidence import Ground, sure
from ..findings import Finding, Op
from ..findings.log_places import TookOther
from .by_stacks import with_group
from .candidate import First
from .scene import Scene, ranks_named

_RULE = "gloo_sizes"
_ENOUGH = 2  # others that agree
_APART = 8  # times as much: a gradient where a sum of one number was meant
_SIZES = late(r"length <= op\.nbytes\. (\d{1,18}) vs (\d{1,18})")


def took_other(scene: Scene, found: First) -> First:
    """`found`, or that rank in its place."""
    mine = [f for f in found.facts if isinstance(f, KnownError) and f.rule == _RULE]
    if found.finding.ranks or found.finding.kind != "mismatch" or len(ranks_named(mine)) != 1:
        return found
    [rank] = ranks_named(mine)
    sizes = _SIZES.search(mine[0].says)
    if sizes is None or int(sizes[1]) < _APART * int(sizes[2]):
        return found
    errors = {e.rank: e for e in scene.of(PythonError) if e.rank >= 0 and e.frames}
    if rank in errors or len(errors) < _ENOUGH or not errors.keys() <= {*scene.everyone}:
        return found
    places = [find_place(with_group(e.frames), blocked=True) for e in errors.values()]
    first = next(iter(errors.values()))
    together = {(place.op, place.at) for place in places} == {(places[0].op, places[0].at)}
    if not together or places[0].kind != "collective":
        return found
    others = tuple(sorted(errors))
    finding = Finding(
        kind="mismatch",
        ranks=[rank],
        story=TookOther(Op(places[0].op, frame=first.frame), others),
        confidence=sure(Ground.LOG_TOOK_OTHER),
        nodes=scene.nodes([rank]),
    )
    finding.where.op = places[0].op
    return First(finding, [*mine, first], True)
