"""The line that shows how far a long benchmark is, beside its results: those go to stdout."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
