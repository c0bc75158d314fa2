"""The folder of a collector that could not begin, or never saw a rank, is not left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ..errors import HangdoctorError
from ..storage import leftovers
from . import pipes


class Use(Struct):
    """Whether the folder is worth keeping: its collector saw a rank, or its logs say what failed."""

    kept: bool = False


@contextlib.contextmanager
def unless_used(folder: Path, begins: bool = False) -> Iterator[Use]:
    """Remove the folder afterwards, where it is new and nothing was seen or saved.

    With `begins` only where the collector could not even begin.
    """
    new, use = not folder.exists(), Use()
    failed = False
    try:
        yield use
    except HangdoctorError:
        failed = True
        raise
    finally:
        saved = any((folder / "incidents").glob("*/"))
        if new and (failed or not begins) and not use.kept and not saved and folder.exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        leftovers.remove_unused(folder)
    except OSError as err:
        pipes.say(f"hangdoctor: could not remove {folder}: {err}", err=True)
