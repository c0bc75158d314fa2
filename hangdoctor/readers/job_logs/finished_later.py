"""An attempt that failed, and one after it that all ranks finished: torchrun writes no word when it
starts the ranks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, Ended, Finished, LastWords, Progress, Took

_OF_THE_END = (Finished, LastWords, Progress, Took)


def part_attempts(facts: Sequence[AnyFact]) -> None:
    """Where every rank of the last attempt has finished, and all its ends and errors were before
    that: what is later than these belongs to a further attempt.
    """
    last = max((f.attempt for f in facts), default=0)
    own = [f for f in facts if f.attempt == last]
    ends = {f.rank: f for f in own if isinstance(f, Finished) and f.rank >= 0 and not f.tests}
    ended = [f for f in own if isinstance(f, Ended) and f.code]
    seen = {f.rank for f in own if f.rank >= 0}
    if len(ends) < 2 or not ended or not seen <= ends.keys():
        return
    rest = [f for f in own if not isinstance(f, _OF_THE_END)]
    if not all(_is_before(f, end) for f in rest for end in ends.values()):
        return
    for fact in own:
        if isinstance(fact, _OF_THE_END):
            fact.attempt = last + 1


def _is_before(fact: AnyFact, end: Finished) -> bool:
    """By their lines in one file, else by their stamps."""
    if fact.file == end.file:
        return fact.line < end.line
    return 0 < fact.at < end.at
