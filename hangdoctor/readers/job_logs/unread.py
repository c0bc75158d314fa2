"""The first line of a file that speaks of an error or a time-out and that no rule knows: what a person
reads first where nothing else is known.
"""

from __future__ import annotations

from ...text import redaction
from ...text.late import late
from ...text.plain import readable

_SAYS = 300  # characters that are kept
_WORDS = (
    "rror",
    "ERROR",
    "FATAL",
    "CRITICAL",
    "imed out",
    "imeout",
    "times out",
    "xception",
    "be stuck",
)
_TROUBLE = late(
    r"(?<![=\w])(?:ERROR|FATAL|CRITICAL)\b|\b(?:[A-Z]\w{0,60})?(?:Error|Exception)\b|\berror:"
    r"|\b(?:[Tt]imed out|times out|[Tt]imeout (?:occurred|reached|exceeded|expired))\b|\bmay be stuck\b"
)
_NO_TROUBLE = late(r"\b(?:WARN(?:ING)?|INFO|DEBUG|\w{0,40}Warning)\b")
_LONG = 2000  # characters that are looked through


def speaks_of_trouble(text: str) -> bool:
    """Whether a line says that something failed, and no logger's level says that it is no error."""
    if not any(word in text for word in _WORDS):
        return False
    head = text[:_LONG]
    return _TROUBLE.search(head) is not None and _NO_TROUBLE.search(head) is None


def kept(text: str) -> str:
    """A line as it is kept."""
    return readable(redaction.text(text[:_SAYS].strip()))
