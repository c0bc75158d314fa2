"""Where the call histories of two ranks part, in words."""

from __future__ import annotations

from ...model.calls import Function
from ...model.diagnosis import CallsOf
from ...text.durations import duration
from . import terms

_FORMS = {
    "call": "called {}",
    "return": "returned from {}",
    "exception": "left {} by an exception",
    "ran": "ran {}",
    "failed": "ran {}, which raised an exception",
}


def step(kind: str, function: Function) -> str:
    """``called load (app/train.py:4)``."""
    return _FORMS[kind].format(terms.long_frame(function))


def times(said: str, number: int) -> str:
    """A step, and how many times it came in a row: ``ran poll (app/train.py:4) x 40``."""
    return f"{said} x {number}" if number > 1 else said


def since(age_s: float, rank: int) -> str:
    """From when on two ranks are compared, one of which was traced later."""
    return f"for the last {duration(age_s)}, in which rank {rank} was traced too"


def parting(culprit: CallsOf, peer: CallsOf | None, alike: str, since: str = "") -> str:
    """What the two did last together, and what each did then."""
    own = culprit.calls[0] if culprit.calls else "made no further call"
    last = culprit.calls[-1] if culprit.calls else "recorded nothing"
    if peer is None:
        return f"the last recorded call of rank {culprit.rank}: {last}"
    both = f"ranks {culprit.rank} and {peer.rank}"
    if not alike:
        return (
            f"the recorded calls of {both} have nothing in common; rank {culprit.rank} last {last}"
        )
    theirs = peer.calls[0] if peer.calls else "made no further call"
    when = f"{since}, " if since else ""
    return f"{when}{both} did the same until both {alike}; then rank {culprit.rank} {own}, rank {peer.rank} {theirs}"


def unaligned(culprit: CallsOf, peer: CallsOf | None) -> str:
    """That the rounds of a loop cannot be laid beside each other."""
    own = culprit.calls[-1] if culprit.calls else "recorded nothing"
    who = f"ranks {culprit.rank} and {peer.rank}" if peer is not None else f"rank {culprit.rank}"
    return (
        f"{who} repeat the same calls, and their records do not show which rounds belong together; "
        f"rank {culprit.rank} last {own}"
    )
