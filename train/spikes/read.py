"""Points from Megatron's log lines, which are this trainer's too, and from event files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..options import ConfigError
from ..tb.events import EventFile, event_files, is_event_file
from .watch import Point

# Whatever a launcher has put before it.
_LINE = re.compile(r"\biteration\s+(\d+)/\s*\d+ *\|(.*)")
_FIELDS = {
    "lm loss": "loss",
    "grad norm": "grad_norm",
    "loss scale": "loss_scale",
    "learning rate": "learning_rate",
    "number of nan iterations": "nan",
    "number of skipped iterations": "skipped",
}
# The last part of a chart's name: Megatron's older names have no group before it.
_CHARTS = {
    "lm loss": "loss",
    "grad-norm": "grad_norm",
    "loss-scale": "loss_scale",
    "learning-rate": "learning_rate",
}
_COUNTS = ("nan", "skipped")


def points(source: Path) -> Iterator[Point]:
    """The points of a log, of an event file, or of a folder of them.

    Raises:
        ConfigError: it cannot be read, or has none.
    """
    try:
        if source.is_dir():
            found = from_events(event_files(source))
        elif is_event_file(source):
            found = from_events([source])
        else:
            found = from_lines(_lines(source))
        is_empty = True
        for point in found:
            is_empty = False
            yield point
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from error
    if is_empty:
        raise ConfigError(
            f"{source} has no line ' iteration N/ M | ... lm loss: ...' and no chart of the loss: "
            "give a job's log, an event file, or the folder of event files"
        )


def _lines(path: Path) -> Iterator[str]:
    with path.open(errors="replace") as file:
        yield from file


def from_lines(lines: Iterable[str]) -> Iterator[Point]:
    """One point a line of Megatron's `training_log`."""
    for line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        point = Point(int(match[1]))
        for part in match[2].split("|"):
            name, _, text = part.partition(":")
            field = _FIELDS.get(name.strip())
            if field is not None:
                _set(point, field, text)
        yield point


def _set(point: Point, field: str, text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        return
    if field in _COUNTS:
        setattr(point, field, int(value) if math.isfinite(value) else 0)
    else:
        setattr(point, field, value)


def from_events(files: Iterable[Path]) -> Iterator[Point]:
    """One point an iteration and file: a run that was started again has files of its own."""
    for path in files:
        found: dict[int, Point] = {}
        for event in EventFile(path):
            for value in event.summary.value:
                field = _CHARTS.get(value.tag.rpartition("/")[2])
                if field is not None:
                    point = found.setdefault(int(event.step), Point(int(event.step)))
                    setattr(point, field, _number(value))
        for step in sorted(found):
            yield found[step]


def _number(value: Any) -> float:
    if value.WhichOneof("value") == "tensor":  # as TensorFlow 2 writes a scalar
        from tensorboard.util.tensor_util import make_ndarray

        return float(make_ndarray(value.tensor))
    return float(value.simple_value)
