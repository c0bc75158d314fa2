"""What counts as a spike, point by point: the same for a log, for event files and in the training.

A value is compared with those of the points before it: its distance from the median of the newest
20, in deviations. A deviation is 1.4826 times the median distance of a point from the median of its
ten (MAD), which is the standard deviation of a normal distribution (Rousseeuw and Croux, 1993).
Neither moves when a few points are far off, and a loss that falls steeply hides no jump.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_MAD = 1.4826
# Points before anything is judged; a deviation is at least this share of the median.
_FEWEST, _LEAST = 10, 0.002
_NEWEST, _TEN = 20, 10
# A loss scale that fell to this share, halving by halving.
_SLID = 1 / 8
LOSS, GRAD_NORM, SCALE = "lm loss", "grad norm", "loss scale"


@dataclass
class Point:
    """What a line of a log says of its iterations; None for what it does not say."""

    iteration: int
    loss: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    learning_rate: float | None = None
    nan: int = 0  # iterations whose loss was not finite
    skipped: int = 0  # steps that fp16 skipped: their gradients overflow now and then


@dataclass
class Spike:
    """`kind` is jump, nan or slide; `value` the worst, at iteration `peak`; `usual` and `score` are
    the median before it and the distance in deviations, 0 where neither says anything.
    """

    what: str
    kind: str
    first: int
    last: int
    peak: int
    value: float
    usual: float = 0.0
    score: float = 0.0
    is_over: bool = True  # False: the data ended in it, or the new level stayed
    after_warm_up: int | None = None  # iterations; None: not ended, or unknown

    def add(self, iteration: int, value: float, score: float) -> None:
        """One more point of the same spike."""
        self.last = iteration
        if not math.isfinite(self.value) or value > self.value:
            self.peak, self.value, self.score = iteration, value, score


def _distances(values: list[float]) -> Iterator[float]:
    """Of each point from the median of its ten, counted from the newest; a short rest is left out."""
    for end in range(len(values), _TEN // 2, -_TEN):
        ten = values[max(0, end - _TEN) : end]
        median = statistics.median(ten)
        for value in ten:
            yield abs(value - median)


@dataclass
class Series:
    """The points of one kind of value that were as usual; logarithms where `by_ratio`."""

    what: str
    window: int
    threshold: float
    by_ratio: bool = False
    usual: deque[tuple[int, float]] = field(default_factory=deque)
    outside: list[tuple[int, float]] = field(default_factory=list)
    spike: Spike | None = None

    def score(self, value: float) -> tuple[float, float]:
        """(median, deviations above it), both 0 while there is too little to compare with."""
        values = [v for _, v in self.usual]
        if len(values) < _FEWEST:
            return 0.0, 0.0
        median = statistics.median(values[-_NEWEST:])
        mad = statistics.median(_distances(values))
        least = _LEAST if self.by_ratio else _LEAST * abs(median)
        return median, (value - median) / max(_MAD * mad, least, 1e-12)

    def add(self, iteration: int, raw: float) -> Spike | None:
        """The spike that begins here."""
        value = math.log(raw) if self.by_ratio else raw
        median, score = self.score(value)
        if score < self.threshold:
            self._as_usual(iteration, value)
            return None
        self.outside.append((iteration, value))
        begun = None
        if self.spike is None:
            usual = math.exp(median) if self.by_ratio else median
            begun = Spike(self.what, "jump", iteration, iteration, iteration, value=raw)
            begun.usual, begun.score, begun.is_over = usual, score, False
            self.spike = begun
        else:
            self.spike.add(iteration, raw, score)
        if len(self.outside) >= max(_FEWEST, self.window // 2):
            self._new_level()
        return begun

    def _as_usual(self, iteration: int, value: float) -> None:
        if self.spike is not None:
            self.spike.is_over = True
            self.spike = None
        self.outside.clear()
        self.usual.append((iteration, value))
        while len(self.usual) > self.window:
            self.usual.popleft()

    def _new_level(self) -> None:
        """It has stayed: from here on this is usual."""
        self.usual = deque(self.outside)
        self.outside, self.spike = [], None

    def forget_from(self, iteration: int) -> None:
        """A training has gone back: what it did from there on is done again."""
        self.usual = deque(pair for pair in self.usual if pair[0] < iteration)
        self.outside, self.spike = [], None


@dataclass
class WarmUp:
    """Finds the end of the warm-up: the iteration from which the learning rate rises no more."""

    highest: float = -1.0
    at: int | None = None
    is_rising: bool = False
    has_risen: bool = False

    def add(self, iteration: int, rate: float) -> None:
        """One more learning rate."""
        self.is_rising = rate > self.highest
        if self.is_rising:
            self.has_risen = self.highest >= 0
            self.highest, self.at = rate, iteration

    @property
    def end(self) -> int | None:
        """The iteration; None while it rises, or where it was never seen to rise."""
        return self.at if self.has_risen and not self.is_rising else None


class Watch:
    """Takes points in the order of the training; `spikes` are all that it found."""

    def __init__(self, window: int = 50, threshold: float = 6.0) -> None:
        self.loss = Series(LOSS, window, threshold)
        self.grad_norm = Series(GRAD_NORM, window, threshold, by_ratio=True)
        self.warm_up, self.spikes = WarmUp(), list[Spike]()
        self._nan: dict[str, Spike] = {}
        self._scale, self._top, self._slide = 0.0, 0.0, Spike(SCALE, "none", 0, 0, 0, value=0.0)
        self._iteration, self.points = -1, 0

    def add(self, point: Point) -> list[Spike]:
        """The spikes that begin at this point."""
        if point.iteration <= self._iteration:
            self.loss.forget_from(point.iteration)
            self.grad_norm.forget_from(point.iteration)
        self._iteration, self.points = point.iteration, self.points + 1
        if point.learning_rate is not None:
            self.warm_up.add(point.iteration, point.learning_rate)
        begun = list(self._begun(point))
        for spike in begun:
            if self.warm_up.end is not None:
                spike.after_warm_up = spike.first - self.warm_up.end
        self.spikes += begun
        return begun

    def _begun(self, point: Point) -> Iterator[Spike]:
        values = ((self.loss, point.loss), (self.grad_norm, point.grad_norm))
        for series, value in values:
            if value is None:
                continue
            is_nan = not math.isfinite(value)
            if series is self.grad_norm and point.skipped:
                continue
            yield from self._nans(series.what, point, is_nan, value)
            if not is_nan and (value > 0 or not series.by_ratio):
                begun = series.add(point.iteration, value)
                if begun is not None:
                    yield begun
        if point.loss_scale is not None:
            yield from self._slides(point.iteration, point.loss_scale)

    def _nans(self, what: str, point: Point, is_nan: bool, value: float) -> Iterator[Spike]:
        is_nan = is_nan or (what == LOSS and point.nan > 0)
        last = self._nan.get(what)
        if not is_nan:
            if last is not None:
                last.is_over = True
            self._nan.pop(what, None)
        elif last is not None:
            last.last = point.iteration
        else:
            at = point.iteration
            made = Spike(what, "nan", at, at, at, value=math.nan, is_over=False)
            self._nan[what] = made
            yield made

    def _slides(self, iteration: int, scale: float) -> Iterator[Spike]:
        """The first descent is none: fp16 begins high and halves until it fits."""
        if scale > self._scale:
            is_first = self._scale == 0.0
            self._slide.is_over = True
            self._top = math.inf if is_first else scale
            self._slide = Spike(SCALE, "none", 0, 0, 0, value=0.0)
        elif scale < self._scale and math.isfinite(self._top):
            if self._slide.kind == "slide":
                self._slide.last = self._slide.peak = iteration
                self._slide.value = scale
            elif scale <= self._top * _SLID:
                self._slide = Spike(SCALE, "slide", iteration, iteration, iteration, value=scale)
                self._slide.usual, self._slide.is_over = self._top, False
                yield self._slide
        self._scale = scale
