"""Lines of a log that are shown as they are, beside what was found in it."""

from __future__ import annotations

from msgspec import Struct


class Row(Struct):
    """A line of a file."""

    line: int  # counted from 1
    says: str  # cut
    who: str = ""  # whose failure it tells, where it names one: "rank 9"


class Excerpt(Struct, omit_defaults=True):
    """The lines around one that tells of a failure, without empty ones; with `line` 0: the last lines of
    the file.
    """

    file: int = 0
    line: int = 0
    rows: list[Row] = []


class FailureLine(Struct, omit_defaults=True):
    """A line of a file that speaks of a failure, whoever printed it."""

    file: int = 0
    line: int = 0  # counted from 1
    says: str = ""  # cut
    weight: int = 0  # the more, the more plainly
