"""The lines of a file that a person points at, where no rule knows what failed: those that speak of a failure, the
first ones of their kind, whoever printed them.

They accuse nobody: they are shown beside a verdict that stands on little.
"""

from __future__ import annotations

from ...model.log_facts import FailureLine
from ...text import redaction
from ...text.late import late
from ...text.plain import readable
from .failure_words import is_frame, judged

MOST = 9  # lines of one file
_SURVIVED = 3  # of them, that stood before the job's last progress
_LONG = 400  # characters that are looked through
_SAYS = 200  # characters that are kept
_TRIED = 60  # lines in words that are no more than a hint, of one file
_NUMBERS = late(r"0x[0-9a-fA-F]{1,16}|\d{1,20}")
_OWN, _BETWEEN, _GENERAL, _HINT = 4, 3, 2, 1
_STEMS = (
    *("sig", "hang", "stuck", "stall", "deadlock", "livelock", "watchdog", "incomplete", "missing"),
    *("kill", "abort", "error", "fail", "not ", "lost", "terminat"),
)
# What any program may say of trouble, in words that are no failure by themselves
_HINTS = late(
    r"\bSIG(?:TERM|KILL|SEGV|ABRT|BUS|FPE|ILL|INT)\b|\b(?:[Hh]ang|HANG|[Hh]ung|[Ss]tuck|STUCK|[Ss]tall(?:ed|s)?|(?:[Dd]ead|[Ll]ive)lock(?:ed)?|(?:DEAD|LIVE)LOCK)\b"
    r"|\b[Ww]atchdog (?:time-?out|expired)\b|\bincomplete\b|\bNOT [A-Z]{4,}|\b(?:is|was|are|were) (?:missing|killed|aborted|lost|terminated)\b"
    r"|\bERROR\b|\berror:|\bnot (?:found|built|installed|available|responding|reachable)\b"
)
_QUIET = late(
    r"\b(?:INFO|DEBUG|WARN(?:ING)?|TRACE|NOTICE)\b|Warning\b|\bwarning:|^\s{0,8}[$#+>] |\bno (?:error|hang|stall)"
    r"|[\w.]{1,60}\s?=\s?\S|\bif\b|--\w|\bhttps?://"
)


class PointedLines:
    """Of one file."""

    def __init__(self) -> None:
        self._kept: dict[str, FailureLine] = {}  # by their words without numbers
        self._tried = 0

    def known(self, line: int, text: str) -> None:
        """A line that a rule knows to tell of a failure."""
        words = judged(text, text)
        between = words is not None and words.between
        self._keep(line, text, _BETWEEN if between else _OWN)

    def unread(self, line: int, text: str, speaks: bool) -> None:
        """A line that no rule knows; `speaks`: of a failure."""
        if speaks:
            words = judged(text, text)
            weight = _OWN if words is None or not words.general else _GENERAL
            between = words is not None and words.between
            self._keep(line, text, min(weight, _BETWEEN) if between else weight)
        elif self._tried < _TRIED and any(stem in text[:_LONG].lower() for stem in _STEMS):
            self._hint(line, text[:_LONG])

    def went_on(self) -> None:
        """The job made progress: it has survived most of what was said before."""
        for key in list(self._kept)[_SURVIVED:]:
            del self._kept[key]
        self._tried = 0

    def found(self, index: int) -> list[FailureLine]:
        """Those that say most, in the order of their lines."""
        best = sorted(self._kept.values(), key=lambda one: (-one.weight, one.line))[:MOST]
        for one in best:
            one.file = index
        return sorted(best, key=lambda one: one.line)

    def _hint(self, line: int, text: str) -> None:
        self._tried += 1
        if _HINTS.search(text) is None or _QUIET.search(text) is not None or is_frame(text):
            return
        self._keep(line, text, _HINT)

    def _keep(self, line: int, text: str, weight: int) -> None:
        key = _NUMBERS.sub("#", text[:_LONG])
        known = sum(one.weight >= weight for one in self._kept.values())
        if key in self._kept or known >= MOST:
            return
        says = readable(redaction.text(text.strip()[:_SAYS]))
        self._kept[key] = FailureLine(line=line, says=says, weight=weight)
