"""Steps that ranks print by their number: ``rank 3 step 120``, ``this is process 0 in step 5, part 2``.

Of each rank the last such line is kept, with how many it printed.
"""

from __future__ import annotations

import re

from ...model.log_facts import PrintedStep
from ...text.late import late
from .prefix import Said

# Not before a time: "rank=220:25:40" is rank 2, into whose line another's at 20:25:40 was written
_BY = late(r"(?<![A-Za-z_])(?:rank|thread|process|proc)[ _=:#]{0,2}(\d{1,6})\b(?!:\d\d:\d\d)", re.I)
_STEP = late(r"\b(?:step|iter(?:ation)?|batch)[ _=:#]{0,2}(\d{1,9})\b(?! ?%)", re.I)
# Words on a rank or a step that is not the speaker's, or not reached
_OTHER = late(r"\b(?:from|to|wait\w*|resum\w*|local|error|fail\w*|time ?out|no progress)\b", re.I)
_LONG = 200  # characters that are looked through
_MOST = 100_000  # ranks of a file


class RankSteps:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._last: dict[int, PrintedStep] = {}

    def feed(self, said: Said, line: int) -> None:
        """Take a line."""
        text = said.text[:_LONG]
        step = _STEP.search(text)
        if step is None or _OTHER.search(text) is not None:
            return
        named = {int(number) for number in _BY.findall(text)}
        rank = said.rank
        if rank < 0 and len(named) == 1:
            [rank] = named
        if rank < 0 or (rank not in self._last and len(self._last) >= _MOST):
            return
        number = int(step[1])
        known = self._last.setdefault(rank, PrintedStep(step=number, rank=rank))
        if number != known.step:
            known.back, known.before = number - known.step, known.lines
            known.step, known.lines = number, 0
        known.lines += 1
        known.line, known.at, known.says = line, said.at, text

    def rest(self, of_file: int) -> list[PrintedStep]:
        """The last of each rank, where several printed any, or the file is that of one rank."""
        return list(self._last.values()) if len(self._last) > 1 or of_file >= 0 else []
