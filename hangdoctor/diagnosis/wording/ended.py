"""How a job ended, and what a rank of it was at, in a few words."""

from __future__ import annotations

from ...model.operations import RankOps
from ..findings import EndedMeanwhile
from . import terms

_WHILE_READ = "the job ended while it was being read"
_MOST = 4  # different ends in one sentence


def last_place(ops: RankOps | None) -> str:
    """`in all_reduce #12, iteration 3`; "" where nothing was recorded."""
    if ops is None or not len(ops.operations):
        return ""
    open_ones = [o for o in ops.unfinished() if o.waited or not o.asynchronous]
    last = open_ones[-1] if open_ones else ops.operations[-1]
    parts = [f"{'in' if open_ones else 'after'} {last.op} #{last.seq}"]
    if ops.phase:
        parts.append(ops.phase)
    if ops.iteration >= 0:
        parts.append(f"iteration {ops.iteration}")
    return ", ".join(parts)


def meanwhile(of: EndedMeanwhile, cause: str = "") -> str:
    """That the job ended while it was captured, and how: by the sentence on its cause where one is
    known.
    """
    if of.named:
        return f"{terms.capital(_WHILE_READ)}. {cause}"
    return f"Could not tell: {_WHILE_READ}. {_how(of)}"


def _how(of: EndedMeanwhile) -> str:
    """The exit codes, and what would show more."""
    if all(end.code == 0 for end, _ in of.ends):
        return "All its ranks ended with exit code 0."
    next_step = "The job's own output may show more: hangdoctor diagnose FILE."
    known = [(end, ranks) for end, ranks in of.ends if end.code is not None]
    if not known:
        return f"How its ranks ended is unknown. {next_step}"
    said = [f"{terms.ranks(ranks)}: {terms.end(end)}" for end, ranks in known[:_MOST]]
    more = f"; and {terms.count(len(known) - _MOST, 'other end')}" if len(known) > _MOST else ""
    return f"{terms.capital('; '.join(said))}{more}. {next_step}"
