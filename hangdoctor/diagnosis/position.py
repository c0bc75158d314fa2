"""Which of two ranks is further in the program, as far as their stacks tell.

Two stacks are compared from the outermost frame inward. Where both are in the same function, loop
counters decide, then the line; where they called different functions from one line, nothing is
said.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame
from ..stacks.user_code import is_users
from ..text.late import late
from .view import RankView

# Names that count what a training repeats, in the order in which they are believed.
_COUNTERS = (
    "epoch",
    "global_step",
    "iteration",
    "step",
    "steps_done",
    "iter",
    "it",
    "batch_idx",
    "batch_id",
    "batch",
    "micro_batch",
    "micro_batch_id",
    "microbatch",
    "mb",
    "i",
)
ITERATIONS = ("iteration", "global_step", "step", "it", "iter", "steps_done")
_WRAPPERS = late(
    r"torch/distributed/c10d_logger\.py$|torch/utils/_contextlib\.py$|hangdoctor/probe/"
    r"|(?:^|/)(?:contextlib|functools|typing_extensions)\.py$"
)
# What starts the ranks has each one's number as a local variable, under such a name.
_STARTERS = late(r"(?:^|/)(?:torch/)?multiprocessing/\w+\.py$")


def program(path: Sequence[Frame]) -> list[Frame]:
    """The frames that tell progress: without decorators' wrappers, outermost first."""
    return [f for f in path if not _WRAPPERS.search(f.file)]


def counters(path: Sequence[Frame]) -> tuple[tuple[str, int], ...]:
    """All loop counters on a path, outermost first."""
    found: list[tuple[str, int]] = []
    for frame in path:
        if frame.values and not _STARTERS.search(frame.file):
            found += [(name, frame.values[name]) for name in _COUNTERS if name in frame.values]
    return tuple(found)


def iteration(path: Sequence[Frame]) -> int | None:
    """The training iteration that a stack is in, where a local variable shows."""
    for frame in path:
        for name in ITERATIONS:
            if name in frame.values:
                return frame.values[name]
    return None


def compare(a: Sequence[Frame], b: Sequence[Frame]) -> int | None:
    """-1 where `a` is earlier in the program than `b`, 1 later, 0 the same, None where it cannot be
    told.
    """
    one, two = program(a), program(b)
    for x, y in zip(one, two, strict=False):
        if (x.name, x.file) != (y.name, y.file):
            return None
        order = _order_by_counters(x, y) or _order(x.line, y.line)
        if order:
            return order
    return 0 if len(one) == len(two) else None


def is_rounds_behind(a: Sequence[Frame], b: Sequence[Frame]) -> bool:
    """Whether `a` is in an earlier round than `b` of the loop around its line. A counter of a loop that
    it has left shows nothing.
    """
    for x, y in zip(program(a), program(b), strict=False):
        if (x.name, x.file) != (y.name, y.file):
            return False
        if x.counts and x.counts in x.values and x.counts in y.values:
            return x.values[x.counts] < y.values[x.counts]
        if x.line != y.line:
            return False
    return False


def have_other_parts(a: Sequence[Frame], b: Sequence[Frame]) -> bool:
    """Whether one line of the user's has called another function of the user's on each: the program
    gives its ranks different parts, and what one of them calls says nothing of the other's.
    """
    caller: Frame | None = None
    for x, y in zip(program(a), program(b), strict=False):
        if (x.name, x.file) != (y.name, y.file):
            users = caller is not None and all(map(is_users, (caller, x, y)))
            return users and x.name != y.name
        if x.line != y.line:
            return False
        caller = x
    return False


def steps(view: RankView) -> list[Frame]:
    """`program` of the stack that a rank is in."""
    look = view.look
    if look.steps is None:
        look.steps = program(look.path)
    return look.steps


def counts(view: RankView) -> tuple[tuple[str, int], ...]:
    """`counters` of these."""
    look = view.look
    if look.counts is None:
        look.counts = counters(steps(view))
    return look.counts


def operation_key(view: RankView) -> tuple[object, ...]:
    """Ranks with one key are in the same operation: same call, same line, same loop counters."""
    look = view.look
    if look.operation is None:
        place = view.place
        look.operation = (place.kind, place.op, place.at, counts(view))
    return look.operation


def group_by_operation(views: Sequence[RankView]) -> list[list[RankView]]:
    """Waiting ranks by the operation that they are in, largest group first."""
    groups: dict[tuple[object, ...], list[RankView]] = {}
    looks: dict[int, list[RankView]] = {}  # a key is long: each look's is used once
    for view in views:
        group = looks.get(id(view.look))
        if group is None:
            group = looks[id(view.look)] = groups.setdefault(operation_key(view), [])
        group.append(view)
    return sorted(groups.values(), key=lambda g: (-len(g), g[0].rank))


def is_ahead(view: RankView, others: Sequence[RankView]) -> bool:
    """True where the rank is further than every one of `others` whose order to it can be told, and
    some can.
    """
    told = _orders(view, others)
    return bool(told) and all(o > 0 for o in told)


def _orders(view: RankView, others: Sequence[RankView]) -> set[int]:
    """How `view` compares to `others`; one of each stack is enough."""
    looks = {id(o.look): o for o in others}.values()
    stacks = {tuple((f.name, f.line) for f in o.path) + counters(o.path): o for o in looks}
    return {order for o in stacks.values() if (order := compare(view.path, o.path)) is not None}


def _order_by_counters(x: Frame, y: Frame) -> int:
    """The order of two frames of one function by the first loop counter that differs, else 0; one of a
    loop that either has left says nothing.
    """
    if _STARTERS.search(x.file):
        return 0
    left = {*x.past.split(), *y.past.split()}
    for name in _COUNTERS:
        if (
            name not in left
            and name in x.values
            and name in y.values
            and x.values[name] != y.values[name]
        ):
            return _order(x.values[name], y.values[name])
    return 0


def _order(x: int, y: int) -> int:
    return (x > y) - (x < y)
