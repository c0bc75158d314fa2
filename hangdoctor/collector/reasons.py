"""Why a capture is made: what the core decides by, and the words that people read of it."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Why(Enum):
    """Who wanted it: the watchdog, in one of two ways, or a person. The value stands in front of the words."""

    STALL = "stall: "
    SLOW = "slow: "
    ASKED = ""


class Reason(Struct, frozen=True):
    """`str` of it is what incidents, notes and the page say."""

    why: Why
    words: str

    def __str__(self) -> str:
        return f"{self.why.value}{self.words}"


def stall(words: str) -> Reason:
    """The job makes no progress, or there is evidence that it will make none."""
    return Reason(Why.STALL, words)


def slow(words: str) -> Reason:
    """One rank is slower than the others."""
    return Reason(Why.SLOW, words)


def asked(words: str) -> Reason:
    """A person wants it."""
    return Reason(Why.ASKED, words)
