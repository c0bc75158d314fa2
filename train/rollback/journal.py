"""What a rollback does, written down before it is done: renames, and the text of `latest`.

Nothing is deleted. A rollback that was cut off anywhere is finished, or taken back, from its journal:
each rename is either done or not. A checkpoint is moved before any older one, and moved back after it,
so that a training that starts in between goes on from what is there and overwrites none of the others.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checkpoint.files import sync_folder, write_durably
from ..options import ConfigError
from ..tb.events import ASIDE, EventFile, up_to, write_events

_FILE = "rollback.json"
_SCHEMA = "hangdoctor.rollback/1"
PREPARING, BEGUN, DONE, UNDOING = "preparing", "begun", "done", "undoing"


@dataclass
class Journal:
    """`moves` are (from, to), paths below `folder` or absolute; `copies` are (event file, copy of it
    up to the checkpoint); `texts` are (file of `folder`, text before or None, text after).
    """

    folder: Path
    name: str
    to: int
    moves: list[tuple[str, str]] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    texts: list[tuple[str, str | None, str]] = field(default_factory=list)
    state: str = PREPARING

    @property
    def own(self) -> Path:
        """The folder of the journal."""
        return self.folder / ASIDE / self.name

    def write(self, state: str) -> None:
        """Have it on disk, in this state."""
        self.state = state
        self.own.mkdir(parents=True, exist_ok=True)
        plain = {k: v for k, v in dataclasses.asdict(self).items() if k != "folder"}
        write_durably(self.own / _FILE, json.dumps({"schema": _SCHEMA, **plain}, indent=1))

    def prepare(self) -> None:
        """Make the copies; nothing has moved yet.

        Raises:
            OSError: the file system refused; nothing is left.
        """
        self.write(PREPARING)
        try:
            for source, copy in self.copies:
                is_kept = up_to(self.to)
                events = (event for event in EventFile(Path(source)) if is_kept(event))
                write_events(self.folder / copy, events)
        except OSError:
            self.forget()
            raise

    def forward(self) -> None:
        """Do what is not done yet.

        Raises:
            ConfigError: a file is neither where it was nor where it goes.
            OSError: the file system refused; what was done is in the journal.
        """
        self.write(BEGUN)
        self._check()
        for source, target in self.moves:
            move(self.folder / source, self.folder / target)
        for name, _, text in self.texts:
            write_durably(self.folder / name, text)
        self.write(DONE)

    def back(self) -> None:
        """Take back what was done, and leave nothing of this rollback.

        Raises:
            ConfigError, OSError: as `forward`.
        """
        self.write(UNDOING)
        self._check()
        for name, before, _ in self.texts:
            if before is None:
                (self.folder / name).unlink(missing_ok=True)
            else:
                write_durably(self.folder / name, before)
        for source, target in reversed(self.moves):
            move(self.folder / target, self.folder / source)
        self.forget()

    def forget(self) -> None:
        """Remove what was made for this rollback alone, the journal last."""
        parents = {(self.folder / target).parent for _, target in self.moves}
        for _, copy in self.copies:
            path = self.folder / copy
            path.unlink(missing_ok=True)
            parents |= {path.parent, path.parent.parent}
        for parent in sorted(parents - {self.own}, key=lambda p: -len(p.parts)):
            _remove_empty(parent)
        (self.own / _FILE).unlink(missing_ok=True)
        _remove_empty(self.own)

    def _check(self) -> None:
        for source, target in self.moves:
            here, there = (self.folder / source).exists(), (self.folder / target).exists()
            if here and there:
                raise ConfigError(
                    f"both {self.folder / source} and {self.folder / target} are there: something "
                    "wrote the first one since; move it away, then repeat the command"
                )
            if not here and not there:
                raise ConfigError(
                    f"neither {self.folder / source} nor {self.folder / target} is there: "
                    "bring one of them back, then repeat the command"
                )


def move(source: Path, target: Path) -> None:
    """Rename durably; nothing where it is done already."""
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    for parent in (target.parent, source.parent):
        sync_folder(parent)


def _remove_empty(folder: Path) -> None:
    """Remove a folder of rollbacks that has become empty, and the one around it."""
    while ASIDE in folder.parts and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def journals(folder: Path) -> list[Journal]:
    """All rollbacks of a folder of checkpoints, the oldest first.

    Raises:
        ConfigError: one cannot be read.
    """
    return list(_read(folder))


def _read(folder: Path) -> Iterator[Journal]:
    for path in sorted(folder.glob(f"{ASIDE}/*/{_FILE}")):
        try:
            plain: dict[str, Any] = json.loads(path.read_text())
            plain.pop("schema")
            yield Journal(folder, **plain)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
