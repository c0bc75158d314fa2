"""Why a capture is made: what the core decides by, and the words that people read of it."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Trigger(Enum):
    """Who wanted it: the watchdog, in one of four ways, or a person. The value stands in front of the words."""

    STALL = "stall: "
    SLOW = "slow: "
    ENDED = "ended: "
    START = "start: "
    ASKED = ""


class CaptureReason(Struct, frozen=True):
    """`str` of it is what incidents, notes and the page say."""

    trigger: Trigger
    words: str
    # By the collector's clock: the last progress before a stall, where one was declared; 0 unknown.
    since: float = 0.0

    def __str__(self) -> str:
        return f"{self.trigger.value}{self.words}"


def stall(words: str, since: float = 0.0) -> CaptureReason:
    """The job has made no progress since then, or there is evidence that it will make none."""
    return CaptureReason(Trigger.STALL, words, since)


def slow(words: str) -> CaptureReason:
    """One rank is slower than the others."""
    return CaptureReason(Trigger.SLOW, words)


def ended(words: str) -> CaptureReason:
    """No rank runs any more, and not all of them have finished."""
    return CaptureReason(Trigger.ENDED, words)


def start(words: str) -> CaptureReason:
    """The job has not started, and should have."""
    return CaptureReason(Trigger.START, words)


def asked(words: str) -> CaptureReason:
    """A person wants it."""
    return CaptureReason(Trigger.ASKED, words)
