"""Iterations whose samples are passed over, as after a spike: consumed, and never trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .config import Config
from .options import ConfigError, is_number


@dataclass(frozen=True)
class PassedOver:
    """Ranges of iterations, both ends included."""

    ranges: tuple[tuple[int, int], ...] = ()

    def last(self, iteration: int) -> int:
        """Where to stop passing over: the last iteration of the range that holds this one; 0 where
        it is trained.
        """
        return max((end for start, end in self.ranges if start <= iteration <= end), default=0)


def passed_over(text: str) -> PassedOver:
    """The ranges in "6990-7010,7200".

    Raises:
        ConfigError: it is not a list of iterations.
    """
    if not text.strip():
        return PassedOver()
    ranges = []
    for word in text.split(","):
        start, dash, end = (part.strip() for part in word.strip().partition("-"))
        end = end if dash else start
        if not (is_number(start) and is_number(end) and 1 <= int(start) <= int(end)):
            raise ConfigError(
                f"--train.skip takes iterations and ranges of them, such as '6990-7010,7200', got '{text}'"
            )
        ranges.append((int(start), int(end)))
    return PassedOver(tuple(ranges))


def skip_complaints(config: Config, _: object) -> Iterator[str]:
    """Why `--train.skip` cannot be meant; for `train.validate`."""
    iterations = config.train.iterations
    try:
        ranges = passed_over(config.train.skip).ranges
    except ConfigError as error:
        yield str(error)
        return
    for start, end in ranges:
        if end > iterations:
            yield f"--train.skip {start}-{end} goes beyond --train.iterations {iterations}"
