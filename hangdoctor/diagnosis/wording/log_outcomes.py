"""What the logs come to in words where they name no rank, and what happened in the order of time."""

from __future__ import annotations

import time

from ...model.diagnosis import Happening
from ..findings.log_stories import Event, LogRemaining, Undecided
from . import terms
from .log_words import NEXT_TIME
from .terms import choose

_NO_YEAR = 978_307_200.0  # the end of the year that stands for an unknown one


def remaining(of: LogRemaining) -> str:
    """Why the logs name no rank, and what would have decided it."""
    if of.reason is Undecided.ENDED_CLEANLY:
        last = f", after iteration {of.iteration}" if of.iteration >= 0 else ""
        return f"The job ended cleanly{last}, as its log shows."
    beside = ""
    if of.ras and of.reason in _WAITS:
        beside = f". NCCL RAS reaches all {of.ras} ranks with equal counts: {_BEYOND}"
    return f"Could not tell: {_reason(of)}{beside}."


_BEYOND = "no process is missing, so it is probably the network, a link or a GPU"
_WAITS = (Undecided.EQUAL_COUNTERS, Undecided.WAITERS_ONLY, Undecided.ONE_WAITER)


def _reason(of: LogRemaining) -> str:
    who = terms.ranks(of.ranks) or "a rank"
    op = terms.op(of.op) if of.op is not None and of.op.name else "an operation"
    only = choose(of.ranks or 1, "waits", "wait")
    decide = f"counters of all ranks would show who did not come. {NEXT_TIME}"
    texts = {
        Undecided.EQUAL_COUNTERS: f"{who} timed out in {op} alike, and nothing shows who is missing: {decide}",
        Undecided.WAITERS_ONLY: f"{who} timed out in several operations, and nothing shows who began it: {decide}",
        Undecided.ONE_WAITER: f"only {who} {only} in the log (in {op}), and a waiter is no culprit: collect the logs of all ranks. {NEXT_TIME}",
        Undecided.VICTIMS_ONLY: f"{who} lost a connection or got SIGTERM: that follows from another process's end, which these logs do not hold. Give the logs of all nodes",
        Undecided.ABORTS_ONLY: f"{who} ended with {_code(of.code)}, which is mostly a consequence, and the log shows no cause before it",
        Undecided.CANCELLED: "the job was cancelled (scancel or its user), and nothing failed before that in the log",
        Undecided.TIME_LIMIT: "Slurm ended the job at its time limit, and nothing failed before that in the log: a longer --time, or the last iterations show whether it had stopped",
        Undecided.PREEMPTED: "Slurm preempted the job, and nothing failed before that in the log",
        Undecided.GOES_ON: f"the log ends after iteration {of.iteration} without a failure or a clean end: it may be cut, or the job hangs or runs: hangdoctor dump shows a running one",
        Undecided.NO_END: "the log holds neither a failure nor a clean end: give the logs of all nodes and ranks, stderr too",
    }
    return texts[of.reason]


def _code(code: int) -> str:
    return f"exit code {code}" if code > 0 else terms.signal_name(-code)


# ---------------------------------------------------------------------- the chain


def happening(event: Event) -> Happening:
    """A line of the chain."""
    return Happening(
        role=event.role,
        ranks=list(event.ranks),
        node=event.node or None,
        at=_stamp(event.at),
        file=event.file,
        line=event.line,
        says=_says(event),
    )


def _stamp(at: float) -> str:
    if at <= 0:
        return ""
    form = "%Y-%m-%d %H:%M:%S" if at > _NO_YEAR else "%m-%d %H:%M:%S"
    return time.strftime(form, time.gmtime(at))


def _says(event: Event) -> str:
    if event.fact == "TimedOut" and event.op is not None:
        return f"timed out in {terms.op(event.op)} after {terms.duration(event.seconds)}"
    if event.fact == "GlooTimeout":
        return f"waited {terms.duration(event.seconds)} in gloo, until its limit"
    if event.fact == "Ended" and event.end is not None:
        return f"ended: {terms.end(event.end)}"
    if event.fact == "PeerClosed":
        return f"lost a connection: {terms.cut(event.says, 120)}"
    if event.fact == "Told":
        return "heard from another rank that an operation timed out"
    return terms.cut(event.says, 160)
