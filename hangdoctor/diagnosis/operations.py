"""Pass: what the operations alone say, given what else is known about each rank (`ops`)."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.capture import Frame
from ..model.operations import RankOps
from . import faults, outsiders, stack_roots
from .case import Case, op_of
from .draft import Draft
from .findings import Doing, Finding, Op
from .ops import OpsEvidence, diagnose_ops
from .ops.evidence import Remark
from .ops.moved import moved_ranks
from .recorders import by_recorder, records_of
from .view import RankView

_OF_LIVING = (Remark.ONE_CAPTURE, Remark.IN_PASSING, Remark.SOME_MOVED)
_KINDS_OF_FACTS = ("io_wait", "interpreter_lock")  # more than a stack says about a rank outside


def run(case: Case, draft: Draft) -> None:
    """Ask the operations, where there are records."""
    if not any(v.capture.ops is not None for v in case.views):
        return
    draft.ops = diagnose_ops(gather(case, draft.facts))
    draft.waits = draft.ops.waits
    notes = draft.ops.notes
    if case.capture.over:  # processes that have ended do not move, and cannot be captured again
        notes = [note for note in notes if note.remark not in _OF_LIVING]
    draft.notes += notes


def leave_out_unasked(case: Case, draft: Draft) -> None:
    """Of processes given by their ids (--pid), who was not asked for is not a culprit for not being
    captured.
    """
    if draft.ops is None or not case.capture.job.startswith("pids:"):
        return
    draft.ops.findings = [c for c in draft.ops.findings if not set(c.ranks) <= set(case.absent)]
    draft.beyond = not draft.ops.findings and bool(case.absent)


def gather(case: Case, facts: list[Finding]) -> OpsEvidence:
    """The records of all ranks with what stacks and /proc know."""
    ops, before = records_of(case)
    ops = stack_roots.added(case, ops) | _without_any(case, ops)
    outside = _kinds_outside(case, facts)
    not_found = {r: "no process found" for r in case.absent}
    dead = [v for v in case.gone if v.rank not in ops or not ops[v.rank].finished]
    unrecorded = _unrecorded(case, ops)
    return OpsEvidence(
        ops=ops,
        earlier=before,
        world_size=case.world_size,
        layout=case.capture.layout,
        silent=dict(case.silent) | not_found,
        dead={v.rank: faults.end_of(v, 0) for v in dead},
        stopped={v.rank for v in case.alive if v.stopped},
        places=_places(case),
        doing=_doings(case),
        outside=outside,
        moving={v.rank for v in case.alive if _moves(v, outside)} | _got_on_in_boxes(case),
        unrecorded=unrecorded,
        transfers=_transfers(case, unrecorded or {}),
        nodes={v.rank: v.node for v in case.views},
        taken_s=case.capture.taken,
        kept=case.capture.over or case.capture.origin == "files",
    )


def _places(case: Case) -> dict[int, Frame]:
    """Where ranks are that are in no communication."""
    found: dict[int, Frame] = {}
    for view in case.alive:
        if view.place.frame is not None and not view.place.communicates:
            found[view.rank] = view.place.frame
    return found


def _doings(case: Case) -> dict[int, Doing]:
    found: dict[int, Doing] = {}
    for view in case.alive:
        doing = None if view.stopped else outsiders.doing_of(view)
        if doing is not None:
            found[view.rank] = doing
    return found


def _kinds_outside(case: Case, facts: list[Finding]) -> dict[int, str]:
    kinds: dict[int, str] = {}
    for view in case.alive:
        if not view.place.communicates and view.path and not _waits_for_handle(view):
            kinds[view.rank] = outsiders.kind_of(view)
    for fact in facts:
        if fact.kind in _KINDS_OF_FACTS:
            kinds |= dict.fromkeys(fact.ranks, fact.kind)
    return kinds


def _by_gloo(ops: dict[int, RankOps]) -> bool:
    """Whether all records are of gloo's recorder."""
    return all(some.source == "flight_recorder" and not some.runs_ahead for some in ops.values())


def _without_any(case: Case, ops: dict[int, RankOps]) -> dict[int, RankOps]:
    """Living ranks of which gloo's recorder has nothing while it was read of others: they have made no
    call of torch's yet, or it does not show where they are; their stacks do.
    """
    if not ops or case.capture.origin == "files" or not _by_gloo(ops):
        return {}
    bare = [v.rank for v in case.alive if v.rank not in ops and v.path]
    return {r: RankOps(r, case.world_size, source="flight_recorder") for r in bare}


def _unrecorded(case: Case, ops: dict[int, RankOps]) -> dict[int, int] | None:
    """Ranks that wait by their stacks, of which gloo's recorder, which has no sends and receives, shows
    no wait -> their peer.
    """
    living = [v for v in case.alive if v.rank in ops and not v.stopped]
    if not living or not _by_gloo(ops) or not all(v.path for v in living):
        return None
    return {v.rank: v.place.peer for v in living if v.waits and not _shows_wait(ops[v.rank])}


def _transfers(case: Case, unrecorded: Mapping[int, int]) -> dict[int, Op]:
    """The sends and receives that these are in, where their lines are known."""
    waiting = [v for v in case.alive if v.rank in unrecorded and v.place.kind == "p2p"]
    return {v.rank: op_of([v]) for v in waiting if v.place.frame is not None}


def _shows_wait(ops: RankOps) -> bool:
    """Whether a record shows what the rank waits in, and for which ranks."""
    return any(op.group not in ops.unsure for op in ops.unfinished())


def _moves(view: RankView, outside: dict[int, str]) -> bool:
    if view.place.communicates:
        return False
    moved = view.motion == "moved" and outside.get(view.rank) != "busy"
    return moved or outside.get(view.rank) == "slow"


def _got_on_in_boxes(case: Case) -> set[int]:
    """Ranks whose black boxes moved between the samples, where records of torch's recorder are read
    instead, which are of one moment.
    """
    if not by_recorder(case):
        return set()
    boxes = {v.rank: v.capture for v in case.alive}
    now = {rank: c.ops for rank, c in boxes.items() if c.ops is not None}
    before = {rank: c.ops_before for rank, c in boxes.items() if c.ops_before is not None}
    return moved_ranks(before, now)


def _waits_for_handle(view: RankView) -> bool:
    """True where the rank's own record says that it waits for an asynchronous operation to end."""
    ops = view.capture.ops
    return ops is not None and any(o.waited for o in ops.unfinished())


def all_go_on(case: Case) -> bool:
    """Whether the operations of every captured rank moved between the samples, or ended cleanly."""
    now, before = records_of(case)
    alive = {v.rank for v in case.alive}
    now = {rank: ops for rank, ops in now.items() if rank in alive}
    before = {rank: ops for rank, ops in before.items() if rank in alive}
    over = {rank for rank, ops in now.items() if ops.finished}
    return bool(now) and now.keys() == alive and over | moved_ranks(before, now) == alive
