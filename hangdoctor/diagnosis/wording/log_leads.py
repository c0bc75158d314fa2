"""What the logs show beside an open verdict: ranks to look at first. No verdict itself."""

from __future__ import annotations

from ...text.durations import duration
from ...text.plural import choose
from ..findings.log_stories import LogRemaining, Undecided
from . import terms

_MAY_DEPEND = (  # reasons that leave open who made other calls
    Undecided.SIGNALLED,
    Undecided.CANCELLED,
    Undecided.TIME_LIMIT,
    Undecided.WAITED_TO_LIMIT,
    Undecided.EQUAL_COUNTERS,
    Undecided.WAITERS_ONLY,
)
# Reasons that leave open whether the job stood
_MAY_HANG = (Undecided.GOES_ON, Undecided.NO_END, Undecided.ONE_WAITER)


def all_of(of: LogRemaining) -> str:
    """The clauses of all leads, each with its stop before it; "" without one."""
    return f"{_apart(of)}{_left_behind(of)}{_called_less(of)}{_left_before(of)}"


def _left_before(of: LogRemaining) -> str:
    """Who was ending while others waited: a lead, since it may have had nothing more to do."""
    if of.left is None or of.reason not in (*_MAY_DEPEND, *_MAY_HANG):
        return ""
    was, its = choose(of.left.ranks, "was", "were"), choose(of.left.ranks, "its", "their")
    who = terms.capital(terms.ranks(of.left.ranks))
    ago = duration(of.left.seconds)
    return f". {who} {was} ending {ago} before that, {its} process groups still up ({of.left.at}): see first whether that was too early for the waiters"


def _apart(of: LogRemaining) -> str:
    """What one rank alone printed at its start: a lead, and no verdict."""
    if of.apart is None or of.reason not in _MAY_DEPEND:
        return ""
    quote = of.apart.quote
    mine, usual = terms.cut(quote.says, 60), terms.cut(of.apart.usual, 60)
    who = f"rank {of.apart.rank}"
    return f". One line differs, which may be the reason: {who} printed '{mine}' ({quote.file}:{quote.line}), the others '{usual}'"


def _called_less(of: LogRemaining) -> str:
    """Who had not made a call that NCCL printed of the others: a lead, since the log may end there."""
    if of.less is None or of.reason not in (*_MAY_DEPEND, *_MAY_HANG):
        return ""
    ranks, others = terms.ranks(of.less.ranks), terms.ranks(of.less.others)
    call = f"{terms.op(of.less.op)} with {of.less.elements} elements"
    return f". By NCCL's own lines {others} went on to {call}, and {ranks} had not: look there first, unless the log ends too early"


def _left_behind(of: LogRemaining) -> str:
    """Whose prints stopped while those of all others went on: a lead, and no verdict."""
    if of.behind is None or of.reason not in (*_MAY_DEPEND, *_MAY_HANG):
        return ""
    ranks, others = terms.ranks(of.behind.ranks), terms.ranks(of.behind.others)
    last = f"'{terms.tail(of.behind.says, 60)}' ({of.behind.at})"
    return f". {terms.capital(ranks)} printed nothing after {last}, while {others} went on to step {of.behind.step}: look there first, though what it printed may lie in a buffer"
