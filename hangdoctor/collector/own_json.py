"""Small files of JSON in the job's folder, 0600, each with its schema: written whole and renamed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ..errors import BadInput
from ..files import read_of_folder
from ..transport.keys import make_folder, renew_private


class _HasSchema(Protocol):
    schema: str


T = TypeVar("T", bound=_HasSchema)


def load(path: Path, kind: type[T], limit: int) -> T | None:
    """What was written there; None where there is nothing of that kind that can be read."""
    try:
        return _decoded(read_of_folder(path, limit), kind)
    except (OSError, BadInput):
        return None


def save(path: Path, value: _HasSchema) -> None:
    """Write it, and its folder where there is none.

    Raises:
        CollectorError: it cannot be written, or a file of that name is not ours.
    """
    make_folder(path.parent)
    kind = type(value)
    renew_private(path, msgspec.json.encode(value), lambda there: _decoded(there, kind) is not None)


def _decoded(data: bytes, kind: type[T]) -> T | None:
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.schema == kind().schema else None
