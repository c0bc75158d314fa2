"""What stacks alone show of ranks that all wait, or of one at which all others wait for."""

from __future__ import annotations

from msgspec import Struct

from ...model.frame import Frame
from .named import Op


class TwoThreads(Struct, frozen=True):
    """`ranks` have one thread in `mine` and another in `beside`, which may be of one group;
    `one_group`: they are. `without`: the one rank that is in `mine` alone.
    """

    ranks: tuple[int, ...]
    mine: Op
    beside: Op
    one_group: bool
    without: int = -1


class UnmatchedPair(Struct, frozen=True):
    """`waiter` is in a transfer with `peer`, which is in the collective `own` with `others`: that
    one waits for `waiter` in turn. `served`: from whom it had received in the same loop before.
    """

    waiter: int
    op: Op
    peer: int
    own: Op
    others: tuple[int, ...]
    served: tuple[int, ...] = ()


class OwesAnswer(Struct, frozen=True):
    """In `own` it waits for rank `asked`, which is in `op` and takes what any rank sends; `through`
    are past that exchange.
    """

    own: Op
    asked: int
    op: Op
    through: tuple[int, ...]


class Compiling(Struct, frozen=True):
    """At work in a compiler at all samples, while all others waited; `goes_on`: these got on between
    the samples.
    """

    compiler: str
    goes_on: bool


class AsksForOther(Struct, frozen=True):
    """In one loop of the program's own with `others`, in all samples, and with other values of these
    variables, which are texts or paths.
    """

    names: tuple[str, ...]
    others: tuple[int, ...]
    samples: int
    seconds: float


class OtherTag(Struct, frozen=True):
    """A send or receive whose tag `name` is `number`, while that of all `others` is `usual`; or the
    root of a collective.
    """

    name: str
    number: int
    usual: int
    op: Op
    others: tuple[int, ...]
    is_root: bool = False


class OtherRoot(Struct, frozen=True):
    """The variable `name`, by which the program chooses the root of `op`, is `number`, and `usual` on all
    other ranks; `held` are still in that call.
    """

    name: str
    number: int
    usual: int
    op: Op
    held: tuple[int, ...]


class StepsApart(Struct, frozen=True):
    """At one line all ranks exchange with one another, and its count `name` is `number` where those of all
    `others` are from `least` to `most`.
    """

    name: str
    number: int
    least: int
    most: int
    op: Op
    others: tuple[int, ...]


class AmountApart(Struct, frozen=True):
    """Of ranks that wait for one another, each in its `sides`, one has `number` in the variable `name` where all
    others have `usual`: how many rounds they mean to go.
    """

    name: str
    number: int
    usual: int
    frame: Frame
    sides: tuple[tuple[tuple[int, ...], Op], ...]


class Interrupted(Struct, frozen=True):
    """In the midst of its collective `outer` the function at `handler` made another one, `op`, as
    the handler of a signal does; `others` wait elsewhere.
    """

    outer: str
    handler: Frame
    op: Op
    others: tuple[int, ...]


StackStory = (
    StepsApart
    | AmountApart
    | OtherTag
    | OtherRoot
    | TwoThreads
    | UnmatchedPair
    | Compiling
    | AsksForOther
    | Interrupted
    | OwesAnswer
)
