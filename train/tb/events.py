"""Event files as TensorBoard itself reads and writes them; TensorFlow is not needed.

A chart may count something else than iterations: `lm loss vs samples`, as Megatron names it, has the
samples in its step. Such an event belongs to the iteration of the last `lm loss` before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..options import ConfigError

# Bytes of a record beside its event: length, and a checksum of either.
_AROUND = 16
_OTHER_UNIT = " vs "
# The folder below checkpoints and event files to which a rollback moves what is newer.
ASIDE = "rolled_back"


def is_event_file(path: Path) -> bool:
    """Whether TensorBoard would read it."""
    return path.is_file() and "tfevents" in path.name


def event_files(folder: Path) -> list[Path]:
    """Those that lie in the folder itself, by name, which begins with the time of their start."""
    return sorted(path for path in folder.iterdir() if is_event_file(path))


class EventFile:
    """The events of a file, in order; after the last one `unread` is the number of bytes that could
    not be read: a job that was killed leaves half an event.

    Raises:
        ConfigError: the package tensorboard is missing, or the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.unread = path, 0

    def __iter__(self) -> Iterator[Any]:
        try:
            from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
            from tensorboard.compat.proto.event_pb2 import Event
        except ImportError as error:
            raise ConfigError(
                f"event files need the package tensorboard: pip install tensorboard ({error})"
            ) from error
        try:
            left = self.path.stat().st_size
            for data in RawEventFileLoader(str(self.path)).Load():
                left -= len(data) + _AROUND
                yield Event.FromString(data)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error}") from error
        self.unread = left


def write_events(path: Path, events: Iterator[Any]) -> int:
    """Write a file, on disk when this returns; the number of events."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString())
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def tags(event: Any) -> list[str]:
    """Names of the charts that it adds to; none for what only describes the file."""
    return [value.tag for value in event.summary.value]


class Iterations:
    """Which iteration each event of a file belongs to; to be asked in the file's order."""

    def __init__(self) -> None:
        self._of_tag: dict[str, int] = {}
        self._last = 0

    def of(self, event: Any) -> int:
        """The iteration; 0 for what belongs to none."""
        names = tags(event)
        if not names:
            return 0
        base, other_unit, _ = names[0].partition(_OTHER_UNIT)
        if other_unit:
            return self._of_tag.get(base, self._last)
        for name in names:
            self._of_tag[name] = int(event.step)
        self._last = int(event.step)
        return self._last


def up_to(last: int) -> Callable[[Any], bool]:
    """Says of each event, asked in the file's order, whether it is of iteration `last` or before."""
    iterations = Iterations()
    return lambda event: iterations.of(event) <= last
