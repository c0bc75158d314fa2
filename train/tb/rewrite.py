"""One pass over event files into a folder that is whole or not there."""

from __future__ import annotations

import heapq
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checkpoint.files import sync_folder
from ..options import ConfigError
from .events import ASIDE, EventFile, is_event_file, tags, up_to, write_events

RENAMED, LEFT_OUT, MERGED = "renamed", "left out", "merged"


@dataclass
class Done:
    """`changed` is what the verb did, by the name of a chart: events renamed, or left out."""

    what: str
    files: int = 0
    events: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "files": self.files,
            "events": self.events,
            self.what.replace(" ", "_"): dict(self.changed),
            "notes": self.notes,
        }

    def lines(self, to: Path) -> Iterator[str]:
        """For people."""
        if self.what == RENAMED:
            for name, count in sorted(self.changed.items()):
                yield f"  {name}: {count} events {self.what}"
        elif self.changed:
            yield f"  {self.changed.total()} events of {len(self.changed)} charts {self.what}"
        yield from (f"  note: {sentence}" for sentence in self.notes)
        yield f"{to}: {self.events} events in {self.files} files"


def read_map(path: Path) -> dict[str, str]:
    """Old name to new name.

    Raises:
        ConfigError: it cannot be read, or has a line of another form.
    """
    names: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--map {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise ConfigError(f"--map {path}, line {number}: {error}") from error
        if not words:
            continue
        if len(words) != 2:
            raise ConfigError(f'--map {path}, line {number}: write "old name" "new name"')
        if names.setdefault(words[0], words[1]) != words[1]:
            raise ConfigError(f"--map {path}, line {number}: '{words[0]}' has two new names")
    return names


def found(sources: Sequence[Path]) -> list[tuple[Path, Path]]:
    """(event file, its place below the new folder) of all sources.

    Raises:
        ConfigError: a source without any, or two files that would be one.
    """
    pairs: list[tuple[Path, Path]] = []
    for source in sources:
        if is_event_file(source):
            here = [(source, Path(source.name))]
        else:
            below = sorted(p for p in source.rglob("*") if is_event_file(p))
            here = [(path, path.relative_to(source)) for path in below]
        if not here:
            raise ConfigError(f"{source} has no event files (names with 'tfevents')")
        pairs += here
    twice = [str(p) for p, count in Counter(place for _, place in pairs).items() if count > 1]
    if twice:
        raise ConfigError(f"{', '.join(twice)}: more than one IN has it; rewrite them one by one")
    return pairs


@contextmanager
def appearing(to: Path) -> Iterator[Path]:
    """A folder to write into, which gets the name `to` at the end, or goes.

    Raises:
        ConfigError: `to` is there already.
    """
    if to.exists():
        raise ConfigError(f"{to} is there already: give --to a folder that is not")
    partial = to.with_name(f"{to.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(to)
        sync_folder(to.parent)
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def _noted(file: EventFile, done: Done) -> Iterator[Any]:
    """The events; what could not be read behind them is said."""
    yield from file
    if file.unread:
        done.notes.append(
            f"{file.path}: the last {file.unread} bytes cannot be read and are left out"
        )


def rename(sources: Sequence[Path], to: Path, names: Mapping[str, str]) -> Done:
    """Each chart gets its new name.

    Raises:
        ConfigError: see `found` and `appearing`; or no chart has a name of the map.
    """
    done = Done(RENAMED)

    def renamed(file: EventFile) -> Iterator[Any]:
        for event in _noted(file, done):
            for value in event.summary.value:
                if value.tag in names:
                    done.changed[value.tag] += 1
                    value.tag = names[value.tag]
            yield event

    with appearing(to) as partial:
        for path, place in found(sources):
            done.events += write_events(partial / place, renamed(EventFile(path)))
            done.files += 1
        if not done.changed:
            raise ConfigError("no chart has a name of the map: nothing would be renamed")
    unused = sorted(set(names) - set(done.changed))
    if unused:
        done.notes.append(f"not there: {', '.join(unused)}")
    return done


def cut(sources: Sequence[Path], to: Path, last: int) -> Done:
    """What came after iteration `last` is left out.

    Raises:
        ConfigError: see `found` and `appearing`.
    """
    done = Done(LEFT_OUT)

    def kept(file: EventFile) -> Iterator[Any]:
        is_kept = up_to(last)
        for event in _noted(file, done):
            if is_kept(event):
                yield event
            else:
                done.changed.update(tags(event))

    with appearing(to) as partial:
        for path, place in found(sources):
            done.events += write_events(partial / place, kept(EventFile(path)))
            done.files += 1
    return done


def merge(sources: Sequence[Path], to: Path) -> Done:
    """All events in one file, by time; it has the name of the first. What a rollback has moved aside
    stays out.

    Raises:
        ConfigError: see `found` and `appearing`.
    """
    done, paths = Done(MERGED), list[Path]()
    for source in sources:
        paths += [path for path, place in found([source]) if ASIDE not in place.parts]
    if not paths:
        raise ConfigError("nothing to merge: all event files there were moved aside by a rollback")

    def in_order() -> Iterator[Any]:
        files = [_noted(EventFile(path), done) for path in paths]
        version = True
        for event in heapq.merge(*files, key=lambda e: float(e.wall_time)):
            is_version = event.WhichOneof("what") == "file_version"
            if version or not is_version:  # the first event of a file, and there once
                yield event
            version = version and not is_version

    with appearing(to) as partial:
        done.events = write_events(partial / sorted(path.name for path in paths)[0], in_order())
        done.files = 1
    return done
