"""A line that every rank prints at its start, with other numbers on one rank alone:

[3] world 6 tp 3 dp 2 pid 811
[4] world 6 tp 2 dp 3 pid 812

Or in which each process says its own number, as `client 3 begins with round 5`, from 0 on.
Numbers that differ between the others too, as a process's, say nothing, nor do times and sizes, which
vary from run to run, and rank 0, which mostly has work of its own.
"""

from __future__ import annotations

import re

from ...model.log_facts import LineApart
from ...text import redaction
from ...text.late import late
from ...text.plain import readable
from .marks import begins_with_rank
from .prefix import Said

_NUMBER = late(r"(?<![\w.])\d{1,12}(?![\w.]*[\w])")
_OWN = late(r"^\[?[Rr]ank[ _=]?\d{1,7}(?: of \d{1,7})?(?:\]:?|:) ")
_BARE = late(r"^[\[(](\d{1,6})[\])]:? ")
_NAMED = late(
    r"^[\[(]?(?:actor|client|learner|peer|proc(?:ess)?|replica|site|trainer|worker)[ =#](\d{1,6})[\])]?:? ",
    re.I,
)
_VARIES = late(
    r"(?:time|took|elapsed|pid|process|port|seed|loss|memory|thread|line|step|iter\w*|epoch)\W{0,3}$",
    re.I,
)
_UNIT = late(r"^ ?(?:s|ms|us|sec\w*|min\w*|[KMGT]i?B|%|it/s|tokens/s|°C)\b")
_LEAST = 4  # ranks that print it
_FORMS = 400  # different lines that are kept
_LONG = 200  # characters of a line


class StartLines:
    """Takes the first lines of one file."""

    def __init__(self) -> None:
        self._forms: dict[str, dict[int, tuple[str, int]]] = {}

    def feed(self, said: Said, line: int) -> None:
        """Take a line; each form of it counts once for each rank."""
        text = said.text.strip()
        rank = said.rank
        if rank < 0 and (named := _NAMED.match(text)) is not None:
            rank = int(named[1])  # a name of the program's own: the line is quoted with it
        elif rank < 0 and (bare := _BARE.match(text)) is not None:
            rank, text = int(bare[1]), text[bare.end() :]
        elif rank < 0:
            rank, text = begins_with_rank(text), _OWN.sub("", text)
        if rank < 0 or len(text) > _LONG:
            return
        form = _NUMBER.sub("0", text)
        if form == text or (form not in self._forms and len(self._forms) >= _FORMS):
            return
        self._forms.setdefault(form, {}).setdefault(rank, (text, line))

    def found(self) -> list[LineApart]:
        """The lines in which one rank alone has other numbers than all others, who have the same."""
        found = []
        for lines in self._forms.values():
            if len(lines) >= _LEAST and sorted(lines) == list(range(len(lines))):
                found += _apart(lines)
        return found


def _apart(lines: dict[int, tuple[str, int]]) -> list[LineApart]:
    numbers = {rank: _NUMBER.findall(text) for rank, (text, _) in lines.items()}
    count = min(map(len, numbers.values()))
    text = lines[0][0]
    odd: set[int] = set()
    for column, match in zip(range(count), _NUMBER.finditer(text), strict=False):
        values = {rank: every[column] for rank, every in numbers.items()}
        common = max(set(values.values()), key=list(values.values()).count)
        others = [rank for rank, value in values.items() if value != common]
        if 1 < len(others) < len(values) - 1:
            return []  # the ranks have several parts
        varies = _VARIES.search(text[: match.start()]) or _UNIT.match(text[match.end() :])
        if len(others) == 1 and not varies:
            odd.update(others)
    if len(odd) != 1 or 0 in odd:
        return []
    [rank] = odd
    usual = lines[1 if rank != 1 else 2][0]
    says, at = lines[rank]
    return [LineApart(rank=rank, line=at, says=_kept(says), usual=_kept(usual))]


def _kept(text: str) -> str:
    return readable(redaction.text(text))
