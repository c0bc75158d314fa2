"""Joins what operations say with what stacks and /proc say of the same ranks.

Operations decide who holds whom; stacks and /proc decide what a rank does instead. Where the two name
different ranks with confidence, the report says so and is less sure.
"""

from __future__ import annotations

from ..model import Cause, Evidence, Kind
from ..ranges import format_ranks
from . import faults, outsiders
from .case import Case, short, who
from .ops import OpsEvidence, OpsVerdict, diagnose_ops
from .ops.alone import ADVICE, USUAL
from .ops.movement import moved_ranks
from .view import RankView

# Kinds that are facts about a process: they say more than "did not enter".
_FACTS: frozenset[Kind] = frozenset({"dead", "stopped", "io_wait", "interpreter_lock"})


def has_operations(case: Case) -> bool:
    return any(v.capture.ops is not None for v in case.views)


def all_go_on(case: Case) -> bool:
    """Whether the operations of every captured rank moved between the looks, or ended well."""
    told = {v.rank: v.capture.ops for v in case.alive if v.capture.ops is not None}
    before = {v.rank: v.capture.ops_before for v in case.alive if v.capture.ops_before is not None}
    over = {rank for rank, ops in told.items() if ops.finished}
    return bool(told) and told.keys() == {v.rank for v in case.alive} and over | moved_ranks(before, told) == told.keys()


def ask_operations(case: Case, facts: list[Cause]) -> OpsVerdict:
    """The verdict of the operations alone, told what else is known about each rank."""
    known = {v.rank: v for v in case.views}
    kinds: dict[int, str] = {}
    for view in case.alive:
        if not view.place.communicates and view.path and not _waits_for_handle(view):
            kinds[view.rank] = outsiders.kind_of(view)
    kinds |= {r: c.kind for c in facts for r in c.ranks if c.kind in ("io_wait", "interpreter_lock")}
    silent = dict(case.silent) | {r: "no process of this rank was found" for r in case.absent}
    evidence = OpsEvidence(
        ops={r: v.capture.ops for r, v in known.items() if v.capture.ops is not None},
        earlier={r: v.capture.ops_before for r, v in known.items() if v.capture.ops_before is not None},
        world_size=case.world_size,
        layout=case.capture.layout,
        silent=silent,
        dead={v.rank: faults.end_of(v, 0) for v in case.gone if not (v.capture.ops is not None and v.capture.ops.finished)},
        stopped={v.rank for v in case.alive if v.stopped},
        places={v.rank: short(v.place.frame) for v in case.alive if v.place.frame is not None and not v.place.communicates},
        doing={v.rank: outsiders.doing_words(v) for v in case.alive if not v.stopped},
        outside=kinds,
        moving={
            v.rank for v in case.alive if not v.place.communicates and (v.motion == "moved" or kinds.get(v.rank) == "slow")
        },
        nodes={v.rank: v.node for v in case.views},
        taken_s=case.capture.taken,
    )
    return diagnose_ops(evidence)


def _waits_for_handle(view: RankView) -> bool:
    """True where the rank's own record says that it waits for an asynchronous operation to end."""
    ops = view.capture.ops
    return ops is not None and any(o.waited and o.state != "done" for o in ops.operations)


def join(case: Case, facts: list[Cause], by_ops: list[Cause], by_stacks: list[Cause]) -> tuple[list[Cause], list[str]]:
    """(causes, notes): the operations' causes with the evidence of the others, and facts about further ranks."""
    notes: list[str] = []
    by_ops = _credible(case, facts, by_ops, by_stacks)
    for cause in by_ops:
        for other in facts + by_stacks:
            if set(other.ranks) <= set(cause.ranks):
                _support(cause, other)
        _say_where_it_runs(case, cause)
        _say_what_holds(case, cause)
    named = {r for c in by_ops for r in c.ranks}
    further = [c for c in facts if not set(c.ranks) & named]
    sure = [c for c in by_stacks if c.confidence >= 0.9 and c.kind not in _FACTS and not set(c.ranks) & named]
    for cause in sure:
        notes.append(
            f"stacks and operations disagree: by its stack rank {format_ranks(cause.ranks)} is outside ({cause.where.frame}), "
            f"by its operations rank {format_ranks(sorted(named))} is the cause; the operations are believed"
        )
    if sure:
        for cause in by_ops:
            cause.confidence = round(max(0.1, cause.confidence - 0.15), 2)
    return by_ops + further, notes


def _credible(case: Case, facts: list[Cause], by_ops: list[Cause], by_stacks: list[Cause]) -> list[Cause]:
    """Without what facts refute: not all have come to an operation of which a member is dead or stopped, and a wait for a
    key of the store is for whoever sets it. A rank whose process was read is not unreachable."""
    unable = {r for c in facts for r in c.ranks}
    waits = {v.rank for v in case.waiting}
    kept: list[Cause] = []
    for cause in by_ops:
        at_key = cause.where.op == "store_wait" and (cause.kind == "in_communication" or set(cause.ranks) <= waits)
        if at_key and len(by_ops) + len(facts) > 1:
            continue
        if cause.kind == "in_communication" and set(cause.ranks) & unable:
            continue
        seen = cause.kind == "unreachable" and all(v.path for v in case.views if v.rank in cause.ranks)
        same = next((c for c in by_stacks if seen and c.ranks == cause.ranks and c.kind != "unreachable"), None)
        if same is not None:
            same.evidence += cause.evidence
        kept.append(same or cause)
    return kept


def _say_where_it_runs(case: Case, cause: Cause) -> None:
    """``Rank 3 never ...`` -> ``Rank 3 (node n2, pid 812) never ...``."""
    views = [v for v in case.views if v.rank in cause.ranks and v.pid]
    head = f"Rank {cause.ranks[0]} " if len(cause.ranks) == 1 else ""
    if len(views) == 1 and head and cause.summary.startswith(head):
        cause.summary = who(views) + cause.summary[len(head) - 1 :]


def _say_what_holds(case: Case, cause: Cause) -> None:
    """Operations know that a rank did not come; what its process waits for instead is the advice, and often the sentence."""
    held = outsiders.held_by(cause.kind, [v for v in case.alive if v.rank in cause.ranks])
    if held is None or len(cause.ranks) != 1:
        return
    if held.words and held.words not in cause.summary:
        known, *doubt = cause.summary.partition(USUAL)
        cause.summary = f"{known} {held.words[0].upper()}{held.words[1:]}." + "".join(doubt)
    usual = ADVICE[cause.kind]
    cause.advice = cause.advice.replace(usual, held.advice) if usual in cause.advice else cause.advice
    said = {e.says for e in cause.evidence}
    cause.evidence += [e for e in held.evidence if e.says not in said]


def _support(cause: Cause, other: Cause) -> None:
    """Take over what another pass knows of the same rank: a fact's kind, its frame, its evidence."""
    if other.kind in _FACTS and cause.kind in ("not_entered", "unreachable", "busy") and set(other.ranks) >= set(cause.ranks):
        cause.kind, cause.advice = other.kind, other.advice
    cause.where.frame = other.where.frame or cause.where.frame
    cause.nodes = cause.nodes or other.nodes
    said = {e.says for e in cause.evidence}
    cause.evidence += [Evidence(e.source, e.ranks, e.says) for e in other.evidence if e.says not in said]
    # A stack shows where a rank is, not for how long that is usual: it does not take the doubt away.
    if other.kind == cause.kind and not any(a.kind == "slow" for a in cause.alternatives):
        cause.confidence = round(max(cause.confidence, min(0.98, max(cause.confidence, other.confidence) + 0.02)), 2)
