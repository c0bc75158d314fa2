"""What the logs show beside an open verdict: ranks to look at first. No verdict itself."""

from __future__ import annotations

from ..findings.log_counts import CalledLess, LeftBefore, LeftBehind
from ..findings.log_remaining import LogRemaining, PrintedApart, Undecided
from . import terms
from .terms import choose

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
    leads: list[str] = []
    if of.apart is not None and of.reason in (*_MAY_DEPEND, Undecided.NO_END, Undecided.GOES_ON):
        leads.append(_apart(of.apart))
    if of.reason in (*_MAY_DEPEND, *_MAY_HANG):
        leads += _of_waits(of)
    return "".join(f". {lead}" for lead in leads)


def _of_waits(of: LogRemaining) -> list[str]:
    """Whom waiters may have waited for."""
    leads: list[str] = []
    if of.behind is not None:
        leads.append(_left_behind(of.behind))
    if of.less is not None:
        leads.append(_called_less(of.less))
    if of.left is not None:
        leads.append(_left_before(of.left))
    return leads


def _apart(apart: PrintedApart) -> str:
    """What one rank alone printed."""
    quote = apart.quote
    mine, usual = terms.cut(quote.says, 60), terms.cut(apart.usual, 60)
    says = f"rank {apart.rank} printed '{mine}' ({quote.file}:{quote.line})"
    if not usual:
        return f"One line differs, which may be the reason: {says}, and no other rank did"
    return f"One line differs, which may be the reason: {says}, the others '{usual}'"


def _left_behind(behind: LeftBehind) -> str:
    """Whose prints stopped while those of all others went on."""
    last = f"'{terms.tail(behind.says, 60)}' ({behind.at})"
    stopped = f"{terms.capital(terms.ranks(behind.ranks))} printed nothing after {last}"
    others = f"{terms.ranks(behind.others)} went on to step {behind.step}"
    return (
        f"{stopped}, while {others}: look there first, though what it printed may lie in a buffer"
    )


def _called_less(less: CalledLess) -> str:
    """Who had not made a call that NCCL printed of the others: the log may end too early for it."""
    call = f"{terms.op(less.op)} with {less.elements} elements"
    went_on = f"By NCCL's own lines {terms.ranks(less.others)} went on to {call}"
    return f"{went_on}, and {terms.ranks(less.ranks)} had not: look there first, unless the log ends too early"


def _left_before(left: LeftBefore) -> str:
    """Who was ending while others waited: it may have had nothing more to do."""
    was, its = choose(left.ranks, "was", "were"), choose(left.ranks, "its", "their")
    ago = terms.duration(left.seconds)
    ending = f"{terms.capital(terms.ranks(left.ranks))} {was} ending {ago} before that"
    return f"{ending}, {its} process groups still up ({left.at}): see first whether that was too early for the waiters"
