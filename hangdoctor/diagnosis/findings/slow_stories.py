"""A rank that is slower than the others, by what shows it."""

from __future__ import annotations

from msgspec import Struct


class SlowByWaiting(Struct, frozen=True):
    """Waits least of all: its own share of the time, and the median of the others."""

    own: float  # shares of the time spent waiting
    others: float


class SlowBySamples(Struct, frozen=True):
    """At work in each of the samples, in which all others waited, or in that share of theirs; `on_cpu`: for
    which share of the time, and the others at most.
    """

    samples: int
    seconds: float  # from the first to the last
    waited: float = 1.0
    on_cpu: tuple[float, float] | None = None


class SlowByArrival(Struct, frozen=True):
    """Comes last to the collectives, so that all others wait for it."""

    seconds: float  # later than the last but one, where it is late
    share: float  # of the time, in which all others waited for it alone


class SlowByPace(Struct, frozen=True):
    """Each of its calls takes `times` as long as the others'."""

    times: float


class SlowByHistory(Struct, frozen=True):
    """What the collector saw over `seconds`: shares in per cent."""

    seconds: float
    own: float
    least: float
    middle: float
    most: float


SlowStory = SlowByWaiting | SlowBySamples | SlowByArrival | SlowByPace | SlowByHistory
