"""What has to move for a training to go on from an older checkpoint."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint import files
from ..options import ConfigError
from ..tb.events import ASIDE, EventFile, Iterations, event_files, tags
from .journal import Journal

# Saves that were cut off and universal forms too: global_step300.partial, global_step300_universal.
_OF_A_STEP = re.compile(r"^global_step(\d+)(?!\d)")


@dataclass(frozen=True)
class Curve:
    """An event file that has something newer: iterations `first` to `last` go, `kept` events stay."""

    path: Path
    first: int
    last: int
    kept: int


@dataclass
class Plan:
    """`newer`: folders of checkpoints, the newest first; `unread`: what is not known, in sentences."""

    saved: files.Saved
    latest: str | None
    newer: list[Path]
    curves: list[Curve]
    unread: list[str] = field(default_factory=list)

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.newer or self.curves) or self.latest != self.saved.folder.name


def text_of(path: Path) -> str | None:
    """What a file says; None where there is none."""
    return path.read_text() if path.is_file() else None


def newer_than(folder: Path, iteration: int) -> list[Path]:
    """Checkpoints of later iterations, the newest first."""
    found = [(int(m[1]), path) for path in folder.iterdir() if (m := _OF_A_STEP.match(path.name))]
    return [path for number, path in sorted(found, reverse=True) if number > iteration]


def planned(folder: Path, to: int, events: list[Path] | None) -> Plan:
    """`events`: folders of event files; None for the one that the checkpoint was trained with.

    Raises:
        ConfigError: no whole checkpoint of that iteration, or no such folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: give the one of --checkpoint.dir")
    saved = files.inspect(folder / files.tag(to))
    if saved.fault:
        whole = [str(s.iteration) for s in reversed(files.saved_in(folder)) if not s.fault]
        raise ConfigError(
            f"{saved.folder} cannot be loaded: {saved.fault}; whole ones in {folder}: "
            f"{', '.join(whole) or 'none'}"
        )
    unread: list[str] = []
    if events is None:
        events = _own_events(saved, unread)
    plan = Plan(saved, text_of(folder / "latest"), newer_than(folder, to), [], unread)
    for place in events:
        if not place.is_dir():
            raise ConfigError(f"--events {place} is no folder")
        curves = [_curve(path, to, unread) for path in event_files(place)]
        plan.curves += [curve for curve in curves if curve is not None]
    return plan


def _own_events(saved: files.Saved, unread: list[str]) -> list[Path]:
    """The folder that the configuration in the checkpoint names."""
    name = saved.meta.get("config", {}).get("log", {}).get("tensorboard", "")
    if name and Path(name).is_dir():
        return [Path(name)]
    if name:
        unread.append(
            f"--log.tensorboard was {name}, which is no folder from here: give --events DIR"
        )
    return []


def _curve(path: Path, to: int, unread: list[str]) -> Curve | None:
    """None where nothing in the file is newer."""
    iterations, events, after, kept = Iterations(), EventFile(path), [], 0
    for event in events:
        number = iterations.of(event)
        if number > to:
            after.append(number)
        else:
            kept += bool(tags(event))
    if events.unread:
        unread.append(f"{path}: the last {events.unread} bytes cannot be read")
    if not after:
        return None
    return Curve(path, min(after), max(after), kept)


def journal(folder: Path, plan: Plan) -> Journal:
    """The renames of the plan, newest first. A copy of an event file has a name that TensorBoard
    does not read until it takes its place.
    """
    to = plan.saved.iteration
    name = _free_name(folder, to)
    made = Journal(folder, name, to)
    for path in plan.newer:
        made.moves.append((path.name, f"{ASIDE}/{name}/{path.name}"))
    for number, curve in enumerate(plan.curves):
        path = curve.path.absolute()
        aside = path.parent / ASIDE / name
        made.moves.append((str(path), str(aside / path.name)))
        if curve.kept:
            copy = aside / f"copy-{number}"
            made.copies.append((str(path), str(copy)))
            made.moves.append((str(copy), str(path.with_name(f"{path.name}.to_{to}"))))
    for text, after in (("latest", files.tag(to)), (files.MEGATRON_LATEST, str(to))):
        made.texts.append((text, text_of(folder / text), after))
    return made


def _free_name(folder: Path, to: int) -> str:
    stem = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}_to_{to}"
    number, name = 1, stem
    while (folder / ASIDE / name).exists():
        number += 1
        name = f"{stem}_{number}"
    return name
