"""From a capture to a verdict: runs the passes in order and says what they come to."""

from __future__ import annotations

from ..model import Cause, Diagnosis, Job, JobCapture, Missing, RankLine, Status, Took, Wait, WaitOn
from . import calls, faults, fusion, gradients, lifecycle, outsiders, ras, straggling, waiting
from .case import Case, names, open_case, operation_of, short
from .position import group_by_operation
from .stacks import group_stacks
from .view import RankView

_WHYS = 4  # nodes whose reason for silence is told in the sentence


def diagnose(capture: JobCapture) -> Diagnosis:
    """The diagnosis of a capture. Pure: the same capture gives the same diagnosis, to the byte."""
    case = open_case(capture)
    status, causes, waits, notes = _conclude(case)
    status, causes = straggling.judge(case, status, causes)
    summary = _summary(case, status, causes)
    if status in ("healthy", "unknown"):
        causes = []
    blamed = {r for c in causes for r in c.ranks}
    parting = calls.find(case, causes)
    nodes = sorted(({n.node for n in capture.nodes} | {s.node for s in capture.silent}) - {""})
    return Diagnosis(
        status=status, job=Job(capture.job, case.world_size, nodes, capture.layout), summary=summary, causes=causes,
        waits=waits or _waits(case, blamed), stacks=group_stacks(case.views), missing=_missing(case),
        ranks=[_line(v) for v in case.views],
        notes=notes + sorted(set(capture.notes)) + sorted({note for n in capture.nodes for note in n.notes}),
        took=Took(capture_s=round(capture.took_s, 3)), calls=parting,
    )  # fmt: skip


def _conclude(case: Case) -> tuple[Status, list[Cause], list[Wait], list[str]]:
    """Status, causes, who waits for whom where operations tell, and notes: operations first, else stacks."""
    facts = process_facts(case)
    by_stacks = find_causes(case, facts)
    if not fusion.has_operations(case):
        causes = by_stacks or ras.find(case)
        return _status(case, causes), causes, [], []
    told = fusion.ask_operations(case, facts)
    told.causes, unrecorded = gradients.without_unrecorded(case, told.causes)
    told.notes += unrecorded
    if case.capture.job.startswith("pids:"):  # who was not asked for is not captured, and no culprit for that
        told.causes = [c for c in told.causes if not set(c.ranks) <= set(case.absent)]
        if not told.causes and case.absent:
            return _status(case, by_stacks), by_stacks, told.waits, told.notes
    if told.causes:
        causes, notes = fusion.join(case, facts, told.causes, by_stacks)
        return _more_severe(told.status, causes), _ordered(causes), told.waits, told.notes + notes
    if told.status == "healthy" and not facts and not any(c.kind == "end_stall" for c in by_stacks):
        # Silence is no sign of health: who was not seen may be the one that hangs.
        return ("unknown" if unseen(case) else "healthy"), [], [], told.notes
    by_ras = ras.find(case) if told.status == "unknown" and not by_stacks else []
    if by_ras:
        return "hang", by_ras, told.waits, told.notes
    if all(v.thread is None for v in case.views):
        return told.status, [], told.waits, told.notes  # dumps alone: there are no stacks to fall back on
    return _status(case, by_stacks), by_stacks, told.waits, told.notes


def _more_severe(status: Status, causes: list[Cause]) -> Status:
    """A process that is stopped or dead is a hang, whatever still moves."""
    return "hang" if any(c.kind != "slow" for c in causes) else status


def process_facts(case: Case) -> list[Cause]:
    """What is wrong with single processes; at the end of a job, ranks that left well are no dead ones."""
    facts = faults.find(case)
    return [c for c in facts if c.kind != "dead"] if faults.left_early(case) else facts


def find_causes(case: Case, facts: list[Cause]) -> list[Cause]:
    """All causes from stacks and /proc, likeliest first. Each pass is told whom the ones before it have named."""
    blamed = {r for c in facts for r in c.ranks}
    for find in (lifecycle.find_start, lifecycle.find_end):
        found = find(case, blamed)
        if found:
            return _ordered(facts + found)
    outside = outsiders.find(case, blamed)
    if outside:
        return _ordered(facts + outside)
    return _ordered(facts + gradients.advise(case, waiting.find(case, blamed)))


def _ordered(causes: list[Cause]) -> list[Cause]:
    return sorted(causes, key=lambda c: (-c.confidence, c.ranks))


def _status(case: Case, causes: list[Cause]) -> Status:
    if not case.views and not causes:
        return "unknown"
    if _all_move(case) and not any(c.kind in ("dead", "stopped") for c in causes):
        return "healthy"
    if not causes:
        return "unknown"
    return "slow" if all(c.kind == "slow" for c in causes) else "hang"


def _summary(case: Case, status: Status, causes: list[Cause]) -> str:
    if not case.views and not causes:
        whys = [f"{s.node}: {s.why}" if s.node else s.why for s in case.capture.silent]
        more = f"; and {len(whys) - _WHYS} more" if len(whys) > _WHYS else ""
        return "Could not tell: no rank was captured" + (f" ({'; '.join(whys[:_WHYS])}{more})." if whys else ".")
    if status == "healthy":
        text = _all_move(case) or "operations went on, or ended well, on every rank"
        return text[0].upper() + text[1:] + "."
    return causes[0].summary if causes else _why_unknown(case)


def _all_move(case: Case) -> str:
    """Why the job is healthy; "" where it is not shown to be."""
    alive = case.alive
    if case.gone or case.absent or case.silent or not alive:
        return ""
    moved = [v for v in alive if v.motion in ("moved", "looping")]
    if len(moved) == len(alive):
        return f"all {len(alive)} ranks moved between the two captures"
    settled = [v for v in alive if v.motion in ("still", "unknown") or v.stopped or v.stack_error]
    idle = [v for v in alive if not v.place.communicates and v.motion not in ("moved", "running", "looping")]
    starting = [v for v in alive if v.place.kind in ("start", "end")]
    if moved and not settled and not idle and not starting and len(moved) * 2 >= len(alive):
        return f"{len(moved)} of {len(alive)} ranks moved between the two captures, and the others ran in their communications"
    stirred = [v for v in alive if v.motion == "stirred" and v.place.communicates]
    if not settled and not idle and not starting and len(stirred) + len(moved) == len(alive):
        return "every rank ran and got on within its communications between the two captures"
    return ""


def unseen(case: Case) -> list[int]:
    """Ranks of which nothing is known."""
    return sorted({*case.absent, *case.silent})


def _why_unknown(case: Case) -> str:
    groups = group_by_operation(case.waiting)
    if unseen(case) and fusion.all_go_on(case):
        why = "; ".join(sorted({f"{s.node}: {s.why}" for s in case.capture.silent if s.node}))
        return (
            f"Could not tell: operations went on, or ended well, on every rank that was seen, but {names(unseen(case)).lower()} "
            f"{'was' if len(unseen(case)) == 1 else 'were'} not{f' ({why})' if why else ': capture the whole job (--jobid, --hostfile)'}."
        )
    blind = [v.rank for v in case.alive if v.stack_error]
    if blind:
        first = next(v.stack_error for v in case.alive if v.stack_error)
        return f"Could not tell, because no stack of {names(blind).lower()} could be read: {first}."
    if case.absent and groups:
        return (
            f"Could not tell, because all captured ranks wait ({names(v.rank for v in groups[0]).lower()} in {operation_of(groups[0])}) and "
            f"{names(case.absent).lower()} {'was' if len(case.absent) == 1 else 'were'} not captured: capture the whole job (--jobid, --hostfile)."
        )
    running = [v.rank for v in case.alive if v.motion in ("running", "looping", "moved", "stirred")]
    if running and not groups:
        return (
            f"Could not tell: nobody waits in a communication; {names(running).lower()} "
            f"{'is' if len(running) == 1 else 'are'} working. Capture again with a larger --settle, or when the job stalls."
        )
    if len(case.views) == 1 and groups:
        return f"Could not tell from one rank alone: {names([case.views[0].rank]).lower()} waits in {operation_of(groups[0])}; capture its peers too."
    if any(v.motion == "unknown" for v in case.alive) and not groups:
        return "Could not tell, because no rank stands in a communication that is known, and there is one sample only."
    return "Could not tell: no rank stands out. Two captures further apart (--settle 10), or the black box (hangdoctor run), would tell more."


def _waits(case: Case, blamed: set[int]) -> list[Wait]:
    """Who waits on what, and for whom as far as the causes tell."""
    waits = []
    for group in group_by_operation([v for v in case.waiting if v.rank not in blamed]):
        place = group[0].place
        waits.append(Wait([v.rank for v in group], WaitOn(place.group or None, place.op or None), sorted(blamed)))
    return waits


def _missing(case: Case) -> list[Missing]:
    missing = [Missing(s.ranks, s.node or None, "node" if s.node else "dumps", s.why) for s in case.capture.silent]
    if case.absent:
        missing.append(Missing(case.absent, None, "ranks", "no process of these ranks was found on the captured nodes"))
    for view in case.alive:
        if view.stack_error:
            missing.append(Missing([view.rank], view.node, "stack", view.stack_error))
    return missing


def _line(view: RankView) -> RankLine:
    capture = view.capture
    place = view.place
    at = short(place.frame) if place.frame is not None else ("no stack" if view.stack_error else "")
    if capture.gone:
        state, at = "gone", ""
    else:
        state = view.state + ("" if view.motion == "unknown" else f" {view.motion}")
    op = f"{place.op} " if place.op and place.communicates else ""
    return RankLine(view.rank, view.node, view.pid, capture.gpu, capture.local_rank, state, f"{op}{at}".strip())
