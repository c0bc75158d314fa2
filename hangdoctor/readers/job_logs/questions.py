"""A question that a program asks on standard input, ``replace it? [y/N]``, and what is printed after
it: without an answer its process waits there, and all others for it.

The question has no end of its line, so that the next line, of whoever writes it, stands behind it.
"""

from __future__ import annotations

import re

from ...model.log_facts import Asked
from ...text.late import late

_LONG = 600  # characters of a line that are looked through
_QUESTION = late(
    r"[\[(]y(?:es)?[/|]n(?:o)?(?:[/|][\w\[\]]{1,14}){0,3}[\])] ?[:?>]? ?"
    r"|\bpress (?:\[?enter\]?|\[?return\]?|any key)(?: to (?:continue|proceed|start|exit|quit))?[.:]{0,3} ?"
    r"|\benter your choice: ?|\busername for '[^']{1,200}': ?"
    r"|\bpass(?:word|phrase)(?: for (?:'[^'\n]{1,200}'|[^:'\n]{1,200}))?: ?",
    re.I,
)
_DEBUGGER = late(r"^(?:\((?:Pdb|pdb|rdb)(?:\+\+)?\)|i?pdb>) ?")
# What others write behind it: a launcher's logger, a rank's prefix, a scheduler, this tool.
_BEHIND = late(
    r"[WEIF]\d{4} \d\d:\d\d|\[rank\d{1,7}\]|\[\d{4}-\d\d-\d\d \d\d:|(?:srun|slurmstepd|hangdoctor): "
    r"|(?:WARNING|ERROR):torch|Traceback \(most|\*{3} |Terminated\b|Killed\b"
)
_NOISE = late(r"Warning\b|^\s*warnings\.warn\(|resource_tracker|\^{3,}")


class Questions:
    """Takes the lines of one file."""

    def __init__(self) -> None:
        self._last: Asked | None = None

    def keep(self, asked: Asked, line: int) -> None:
        """Take a question, maybe one that was asked before: what comes next may answer it."""
        asked.answered, asked.line = False, line
        self._last = asked

    def go_on(self, text: str, line: int) -> None:
        """Take a line that no rule knows: the program has gone on."""
        if self._last is None or line == self._last.line:
            return
        if text.strip() and _NOISE.search(text) is None:
            self._last.answered = True
            self._last = None


def asked_in(text: str) -> Asked | None:
    """The question that a line ends with, or has before what another one wrote."""
    if not _may_ask(text):
        return None
    debugger = _DEBUGGER.match(text)
    if debugger is not None:
        alone = _is_last(text[debugger.end() :])
        return Asked(question=debugger[0].strip(), debugger=True) if alone else None
    for match in _QUESTION.finditer(text[-_LONG:]):
        if _is_last(match.string[match.end() :]):
            return Asked(question=match.string[: match.end()].strip())
    return None


def _may_ask(text: str) -> bool:
    """Whether a question can be in a line: one after the other, as nearly every line has none."""
    answers = "y/" in text or "Y/" in text or "s/n" in text or "s/N" in text
    prompts = "ress " in text or "choice:" in text or "db" in text[:5]
    return answers or prompts or "assword" in text or "assphrase" in text or "sername for" in text


def _is_last(rest: str) -> bool:
    return not rest.strip() or _BEHIND.match(rest) is not None
