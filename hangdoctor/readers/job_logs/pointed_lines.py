"""The lines of a file that a person points at, where no rule knows what failed: those that speak of a failure, the
first ones of their kind, whoever printed them.

They accuse no rank: they are shown beside a verdict that has little evidence.
"""

from __future__ import annotations

from ...model.log_lines import FailureLine
from ...text import redaction
from ...text.late import late
from ...text.plain import readable
from .failure_words import NUMBERS, is_frame, judged

MOST = 9  # lines of one file
_SURVIVED = 3  # of them, from before the job's last progress
_LONG = 400  # characters that are looked through
_SAYS = 200  # characters that are kept
_TRIED = 60  # lines in words that are no more than a hint, of one file
_FRAMES = 5  # of the first stack of a file, the innermost that have a name
# Functions of a runtime that are in the stack of any crash
_RUNTIME = late(
    r"\((?:\.text\+0x[0-9a-f]{1,16}|unknown)\)|\b(?:_{0,2}sigaction|main|_start|__libc_start_main\w{0,30}|g?signal|raise|abort|__restore_rt|killpg|pthread_kill\w{0,40}|lib(?:pthread|c)[.-][\w.-]{0,30}"
    r"|libstdc\+\+[\w.+-]{0,20}\(\+|ucs_\w{1,60}|libucs[\w.]{0,20}|Unknown {2,20}Unknown {2,20}Unknown)\b"
)
_STACK = late(
    r"^.{0,60}?(?:#\d{1,3} |\b\d{1,3}[: ]\s{0,4}0x|\[ ?\d{1,3}\] [/(])|\b0x[0-9a-f]{6}|\b[0-9A-Fa-f]{16}\b"
)
_NAMED = late(r"\b[A-Za-z_]\w{0,200}[a-z_]\w{2,200}\b")
_OWN, _BETWEEN, _GENERAL, _HINT = 4, 3, 2, 1
_STEMS = (
    *("sig", "hang", "stuck", "stall", "deadlock", "livelock", "watchdog", "incomplete", "missing"),
    *("kill", "abort", "error", "fail", "not ", "lost", "terminat", "too many", "exhaust", " free"),
)
# What any program may say of trouble, in words that are no failure by themselves
_HINTS = late(
    r"\bSIG(?:TERM|KILL|SEGV|ABRT|BUS|FPE|ILL|INT)\b|\b(?:[Hh]ang|HANG|[Hh]ung|[Ss]tuck|STUCK|[Ss]tall(?:ed|s)?|(?:[Dd]ead|[Ll]ive)lock(?:ed)?|(?:DEAD|LIVE)LOCK)\b"
    r"|\b[Ww]atchdog (?:time-?out|expired)\b|\bincomplete\b|\bNOT [A-Z]{4,}|\b(?:is|was|are|were) (?:missing|killed|aborted|lost|terminated)\b"
    r"|\b[Tt]oo many \w|\bexhausted\b|\b0/\d{1,9} free\b|\bERROR\b|\berror:|\bnot (?:found|built|installed|available|responding|reachable)\b"
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
        self._frames = 0
        self._in_stack = 0  # the line of the first stack that was read last

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
        elif _STACK.search(text[:_LONG]) is not None:
            self._frame(line, text)
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

    def _frame(self, line: int, text: str) -> None:
        """A line of a stack: of the first one, those that say where the program was."""
        first = not self._in_stack or line - self._in_stack <= 2
        if not first or self._frames >= _FRAMES or NUMBERS.sub(" ", text).isspace():
            return
        self._in_stack = line
        if _RUNTIME.search(text) is None and _NAMED.search(text) is not None:
            self._frames += 1
            self._keep(line, text, _HINT)

    def _hint(self, line: int, text: str) -> None:
        self._tried += 1
        if _HINTS.search(text) is None or _QUIET.search(text) is not None or is_frame(text):
            return
        self._keep(line, text, _HINT)

    def _keep(self, line: int, text: str, weight: int) -> None:
        key = NUMBERS.sub("#", text[:_LONG])
        known = sum(one.weight >= weight for one in self._kept.values())
        if key in self._kept or known >= MOST:
            return
        says = readable(redaction.text(text.strip()[:_SAYS]))
        self._kept[key] = FailureLine(line=line, says=says, weight=weight)
