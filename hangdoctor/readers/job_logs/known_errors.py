"""Errors that a rule knows by their line: who says it, whether a logger only warned, how often it was said."""

from __future__ import annotations

from ...model.log_facts import KnownError
from ...text.late import late
from . import marks, on_one_node
from .beneath import Beneath
from .facts_of_file import FactsOfFile
from .lines_below import LinesBelow
from .logged import ENDS_AT_INFO, is_warning
from .prefix import Said
from .rules import Rule

_REPEATED = late(r"\[repeated (\d{1,6})x across cluster\]")  # Ray's, at the end of a line
_KEPT = 300  # characters of a line that the fact has itself


class KnownErrors:
    """Of one file."""

    def __init__(self, kept: FactsOfFile, beneath: Beneath, below: LinesBelow) -> None:
        self._kept, self._beneath, self._below = kept, beneath, below

    def keep(self, rule: Rule, error: KnownError, said: Said, text: str, line: str) -> None:
        """Keep what the rule found in a text; `line`: with all that stands before it."""
        gone = rule.text is not None and rule.text.kind in ("dead", "unreachable")
        ends = gone or rule.id in ENDS_AT_INFO
        error.logged = not ends and is_warning(said, text)
        again = _REPEATED.search(line[_KEPT:])
        if again is not None:
            error.values = {**error.values, "repeated": again[1]}
        speaker = on_one_node.started_alone(error, said)
        kept = self._kept.keep(error, marks.name_other(error, speaker), line)
        if rule.id == "actor_creation":
            self._beneath.creates(text, said)
        self._below.begin_error(kept, said)
