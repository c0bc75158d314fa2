"""The line that shows how far a long benchmark is, beside its results: those go to stdout."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A line on standard error, at once: the table goes to standard output."""
    print(text, file=sys.stderr, flush=True)
