"""The order of an epoch's samples, stored once as memory-mapped .npy files, as Megatron stores its
document, sample and shuffle index.

Of 20 million documents an order takes seconds and several hundred MB in each process that draws it.
One process draws and writes it; the others wait until its folder is there, map it, and share its
pages. A folder has its final name only when it is whole. Where it cannot be written, or the writer
does not come to an end, each process keeps its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

STORED_FROM = 100_000  # sequences: of fewer, an order is drawn faster than it is read
_PATIENCE_S = 600.0  # for the process that writes; after that each draws its own
_PAUSE_S = 0.05
_VERSION = 1  # of the files; another one is not read


class Order(NamedTuple):
    """Which samples an epoch has, and in which order."""

    sequences: np.ndarray  # in the order of this epoch
    ends: np.ndarray  # int64: tokens up to the end of each
    shuffle: np.ndarray  # sample in the epoch -> place in the token stream


class OrderStore:
    """A folder of orders; `what` says all that an order depends on, besides its epoch."""

    def __init__(self, folder: Path, what: str) -> None:
        self.folder, self.what = folder, what
        self._told = False

    def order(self, epoch: int, draw: Callable[[], Order]) -> Order:
        """The stored order of an epoch, drawn and written first by whichever process comes first."""
        described = f"{_VERSION} epoch {epoch} {self.what}"
        place = self.folder / hashlib.sha256(described.encode()).hexdigest()[:24]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._stored(place, draw)
        except OSError as error:
            self._tell(f"{self.folder}: {error.strerror or error}")
            return draw()

    def _stored(self, place: Path, draw: Callable[[], Order]) -> Order:
        limit = time.monotonic() + _PATIENCE_S
        while True:
            found = _read(place)
            if found is not None:
                return found
            with _lock_of(place) as ours:
                if ours:
                    found = _read(place)  # it may have come in between
                    return found if found is not None else self._write(place, draw())
            if time.monotonic() > limit:
                self._tell(f"another process is writing {place} for more than {_PATIENCE_S:.0f} s")
                return draw()
            time.sleep(_PAUSE_S)

    def _write(self, place: Path, order: Order) -> Order:
        try:
            _write(place, order)
        except OSError as error:
            self._tell(f"{place}: {error.strerror or error}")
        return _read(place) or order

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            said = f"the order of samples is not stored ({why}): each process keeps its own"
            print(said, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _lock_of(place: Path) -> Iterator[bool]:
    """Whether this process may write; the kernel lets go of the lock when a writer dies.

    Raises:
        OSError: the file system has no locks.
    """
    with place.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            yield False
        else:
            yield True


def _read(place: Path) -> Order | None:
    """The order in a folder, mapped; None where there is none, or not all of it."""
    try:
        maps = [np.load(place / f"{name}.npy", mmap_mode="r") for name in Order._fields]
    except (FileNotFoundError, NotADirectoryError, ValueError, EOFError):
        return None
    return Order(*map(np.asarray, maps))  # an element of a memmap costs more than one of an array


def _write(place: Path, order: Order) -> None:
    part = place.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(place)  # of a copy that was cut short
    try:
        part.mkdir(exist_ok=True)
        for name, array in order._asdict().items():
            with (part / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())
        part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
