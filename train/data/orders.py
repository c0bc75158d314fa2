"""The order of one epoch: which documents follow each other, and which sample is which.

Kept in memory where it is small. That of a large data set lies in a folder as memory-mapped .npy
files, made once by whichever process comes first: the pages are the node's, not the process's.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_FILES = ("documents", "ends", "samples")
_KEY = "key.json"


@dataclass(frozen=True)
class Order:
    """One epoch: the documents one after another, and the samples that are cut from them."""

    documents: np.ndarray  # sequences, in the order of this epoch
    ends: np.ndarray  # tokens up to the end of each
    samples: np.ndarray  # sample in the epoch -> place in the token stream


def make_order(lengths: np.ndarray, first: int, epoch: tuple[int, int], samples: int) -> Order:
    """The order of `epoch` (seed, number): a pure function of what it is given.

    `lengths` are those of the sequences from number `first` on.
    """
    rng = np.random.default_rng(epoch)
    documents = rng.permutation(_numbers(len(lengths), first + len(lengths)))
    ends = np.cumsum(lengths[documents], dtype=np.int64)
    documents += first
    return Order(documents, ends, rng.permutation(_numbers(samples, samples)))


def _numbers(count: int, highest: int) -> np.ndarray:
    """0 to `count` - 1, in half the bytes where numbers up to `highest` fit."""
    return np.arange(count, dtype=np.int32 if highest < 1 << 31 else np.int64)


class OrderFolder:
    """Stored orders. A `quiet` process leaves it to another to say that nothing can be stored."""

    def __init__(self, folder: Path, quiet: bool = False) -> None:
        self.folder, self._quiet = folder, quiet

    @classmethod
    def beside(cls, cache: str, prefix: str, quiet: bool) -> OrderFolder:
        """The folder for a data set: `cache`, or next to the data where that is empty."""
        return cls(Path(cache) if cache else Path(f"{prefix}.orders"), quiet)

    def order(self, key: Mapping[str, Any], make: Any) -> Order:
        """The order that belongs to `key`, which names all that it depends on: as stored, or by
        `make()`, and stored then. In memory, with a line that says so, where that fails.
        """
        name = hashlib.sha256(_text(key).encode()).hexdigest()[:20]
        place = self.folder / f"order-{name}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return _load(place, key) or self._made(place, key, make)
        except OSError as error:
            self._cannot(error)
            order: Order = make()
            return order

    def _made(self, place: Path, key: Mapping[str, Any], make: Any) -> Order:
        with _alone(Path(f"{place}.lock")) as is_alone:
            # Whoever had the lock before has made it.
            order = _load(place, key)
            if order is not None:
                return order
            if place.exists():
                _say(f"{place} is damaged or of other data: it is made again")
            for left in self.folder.glob(f"{place.name}.*.part") if is_alone else ():
                shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
            fresh: Order = make()
            _store(place, key, fresh)
        return _load(place, key) or fresh

    def _cannot(self, error: OSError) -> None:
        if not self._quiet:
            _say(
                f"the sample order cannot be stored in {self.folder} ({error.strerror or error}): every loading "
                "process makes its own in memory; set --data.cache to a folder that all ranks can write"
            )
            self._quiet = True


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


@contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Hold the lock, and say so; ended processes hold none. A file system without locks lets all in: then each
    makes the same files, and the first to rename them wins.
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            yield False
        else:
            yield True


def _load(place: Path, key: Mapping[str, Any]) -> Order | None:
    """The order in `place`; None where it is not there, not whole or belongs to another key."""
    try:
        if (place / _KEY).read_text("utf-8") != _text(key):
            return None
        mapped = [np.load(place / f"{name}.npy", mmap_mode="r") for name in _FILES]
        documents, ends, samples = (np.asarray(m) for m in mapped)
    except FileNotFoundError:
        return None
    except (ValueError, EOFError, UnicodeDecodeError):  # cut short, or no .npy
        return None
    if len(documents) != key["sequences"] or len(ends) != len(documents):
        return None
    whole = len(samples) == key["samples"] and int(ends[-1]) == key["tokens"]
    return Order(documents, ends, samples) if whole else None


def _store(place: Path, key: Mapping[str, Any], order: Order) -> None:
    """Write beside, then rename: under the final name it is whole or not there."""
    part = Path(f"{place}.{os.uname().nodename}-{os.getpid()}.part")
    part.mkdir()
    try:
        for name in _FILES:
            with (part / f"{name}.npy").open("wb") as file:
                np.save(file, getattr(order, name))
                os.fsync(file.fileno())  # the name must not outlast a crash without the numbers
        (part / _KEY).write_text(_text(key), "utf-8")
        if place.exists():
            shutil.rmtree(place)
        with suppress(FileExistsError):
            part.rename(place)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # another process was first
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
