"""Pass: what the operations alone say, given what else is known about each rank (`ops`)."""

from __future__ import annotations

from . import faults, outsiders
from .case import Case
from .draft import Draft
from .findings import Finding
from .ops import OpsEvidence, diagnose_ops
from .ops.movement import moved_ranks
from .view import RankView

_KINDS_OF_FACTS = ("io_wait", "interpreter_lock")  # more than a stack says about a rank outside


def run(case: Case, draft: Draft) -> None:
    """Ask the operations, where there are records."""
    if not any(v.capture.ops is not None for v in case.views):
        return
    draft.ops = diagnose_ops(gather(case, draft.facts))
    draft.waits = draft.ops.waits
    draft.notes += draft.ops.notes


def leave_out_unasked(case: Case, draft: Draft) -> None:
    """Of processes given by their ids (--pid), who was not asked for is no culprit for not being
    captured.
    """
    if draft.ops is None or not case.capture.job.startswith("pids:"):
        return
    draft.ops.findings = [c for c in draft.ops.findings if not set(c.ranks) <= set(case.absent)]
    draft.beyond = not draft.ops.findings and bool(case.absent)


def gather(case: Case, facts: list[Finding]) -> OpsEvidence:
    """The records of all ranks with what stacks and /proc know."""
    known = {v.rank: v for v in case.views}
    outside = _kinds_outside(case, facts)
    not_found = {r: "no process found" for r in case.absent}
    dead = [v for v in case.gone if not (v.capture.ops is not None and v.capture.ops.finished)]
    coded = [v for v in case.alive if v.place.frame is not None and not v.place.communicates]
    return OpsEvidence(
        ops={r: v.capture.ops for r, v in known.items() if v.capture.ops is not None},
        earlier={
            r: v.capture.ops_before for r, v in known.items() if v.capture.ops_before is not None
        },
        world_size=case.world_size,
        layout=case.capture.layout,
        silent=dict(case.silent) | not_found,
        dead={v.rank: faults.end_of(v, 0) for v in dead},
        stopped={v.rank for v in case.alive if v.stopped},
        places={v.rank: v.place.frame for v in coded if v.place.frame is not None},
        doing={
            v.rank: doing
            for v in case.alive
            if not v.stopped and (doing := outsiders.doing_of(v)) is not None
        },
        outside=outside,
        moving={v.rank for v in case.alive if _moves(v, outside)},
        nodes={v.rank: v.node for v in case.views},
        taken_s=case.capture.taken,
    )


def _kinds_outside(case: Case, facts: list[Finding]) -> dict[int, str]:
    kinds: dict[int, str] = {}
    for view in case.alive:
        if not view.place.communicates and view.path and not _waits_for_handle(view):
            kinds[view.rank] = outsiders.kind_of(view)
    for fact in facts:
        if fact.kind in _KINDS_OF_FACTS:
            kinds |= dict.fromkeys(fact.ranks, fact.kind)
    return kinds


def _moves(view: RankView, outside: dict[int, str]) -> bool:
    return not view.place.communicates and (
        view.motion == "moved" or outside.get(view.rank) == "slow"
    )


def _waits_for_handle(view: RankView) -> bool:
    """True where the rank's own record says that it waits for an asynchronous operation to end."""
    ops = view.capture.ops
    return ops is not None and any(o.waited for o in ops.unfinished())


def all_go_on(case: Case) -> bool:
    """Whether the operations of every captured rank moved between the samples, or ended cleanly."""
    told = {v.rank: v.capture.ops for v in case.alive if v.capture.ops is not None}
    before = {v.rank: v.capture.ops_before for v in case.alive if v.capture.ops_before is not None}
    over = {rank for rank, ops in told.items() if ops.finished}
    everyone = told.keys() == {v.rank for v in case.alive}
    return bool(told) and everyone and over | moved_ranks(before, told) == told.keys()
