"""Deaths in a launcher's own list of all exit codes, by rank: ``exit codes [1, 1, 1, -9]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...model.log_facts import EXIT_LIST, Ended
from ...text.late import late

_CODES = late(
    r"\b(?:exit|return)[ _]?(?:codes?|status(?:es)?)\b\W{1,4}"
    r"(?:\[(?P<row>-?\d{1,3}(?:, ?-?\d{1,3}){1,4095})\]"
    r"|\{(?P<pairs>\d{1,7}: ?-?\d{1,3}(?:, ?\d{1,7}: ?-?\d{1,3}){1,4095})\})",
    re.I,
)
_DEATHS = frozenset({-4, -7, -8, -9, -11})  # by signals that no launcher sends at first
_BY_SHELL = 128


def deaths(text: str) -> list[Ended]:
    """The ranks that the list shows as killed; their order in time is in no list."""
    match = _CODES.search(text)
    if match is None:
        return []
    codes = list(_row(match["row"]) if match["row"] else _pairs(match["pairs"]))
    return [
        Ended(rank=rank, code=code, by=EXIT_LIST, listed=len(codes))
        for rank, code in codes
        if code in _DEATHS
    ]


def _row(text: str) -> Iterable[tuple[int, int]]:
    return enumerate(_code(part) for part in text.split(","))


def _pairs(text: str) -> Iterable[tuple[int, int]]:
    for pair in text.split(","):
        rank, _, code = pair.partition(":")
        yield int(rank), _code(code)


def _code(text: str) -> int:
    code = int(text)
    return _BY_SHELL - code if code > _BY_SHELL else code
