"""The draft as a `Diagnosis`: findings in words, and the tables that go with them."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from ..model.capture import Frame, JobCapture
from ..model.diagnosis import Cause, Diagnosis, Job, Missing, RankLine, Status, Took, Wait, WaitOn
from ..stacks.user_code import is_idle_actor
from ..text.plain import readable
from ..text.scripts import script_in
from . import wording
from .case import Case
from .draft import Draft
from .findings import Doing, Finding
from .gloo_alone import has_no_recorder, is_gloo_alone
from .health import called, is_boxed, is_uncounted, why_healthy, why_unknown
from .left_open import ranks_of_all
from .lines_around import lines_around
from .lines_pointed import lines_pointed
from .position import group_by_operation
from .recorders import box_shows_nothing
from .stack_groups import group_stacks
from .still_alone import still_alone
from .view import Looks, RankView, view_rank
from .wording import ended, log_chain, log_outcomes, note_words, remaining
from .wording.ended import last_place
from .wording.terms import long_frame

_LONGEST_SCRIPT = 80  # characters


def conclude(case: Case, draft: Draft) -> Diagnosis:
    """What the passes found, in words."""
    boxed = is_boxed(case)
    gloo, no_recorder = is_gloo_alone(case), has_no_recorder(case)
    uncounted = is_uncounted(case, case.waiting)
    unread = any(node.boxes_unread for node in case.capture.nodes)
    # Processes without ranks are numbered all the same: a rank that the logs name is none of them.
    ranked = [] if case.capture.names else case.views
    places = {view.rank: view.place.frame for view in ranked}
    for finding in [*draft.findings, *draft.open]:
        finding.homes = case.homes(finding.ranks) if ranked else []
        finding.boxed, finding.over, finding.gloo = boxed, case.capture.over, gloo
        finding.no_recorder = no_recorder or case.capture.native
        finding.native = case.capture.native
        finding.boxes_unread, finding.site = unread, case.capture.site
        finding.uncounted = uncounted or case.capture.native
        _add_frame(finding, places)
        if finding.frame is not None and is_idle_actor(finding.frame):
            finding.doing = Doing("idle")
    status: Status = draft.status or "unknown"
    causes = [wording.cause(finding) for finding in draft.findings]
    left_open = [wording.cause(finding) for finding in draft.open]
    blamed = {r for c in causes for r in c.ranks}
    capture = case.capture
    around = lines_around(case, draft)
    return Diagnosis(
        status=status,
        job=Job(
            capture.job,
            _world_size(case),
            _nodes(capture),
            layout=capture.layout,
            script=_script(capture),
        ),
        summary=_summary(case, draft, status, causes, left_open),
        causes=causes,
        open=left_open,
        waits=draft.waits or _waits(case, blamed),
        stacks=[] if capture.names else group_stacks(case.views),
        missing=_missing(case),
        ranks=[] if capture.names else _lines(case),
        notes=_notes(capture, draft),
        took=Took(capture_s=round(capture.took_s, 3)),
        calls=draft.calls,
        chain=[log_chain.happening(event) for event in draft.chain],
        around=around,
        pointed=lines_pointed(case, draft, around),
        called=called(case),
        advice=_advice(case, draft, status, causes, left_open),
    )


def _add_frame(finding: Finding, places: dict[int, Frame | None]) -> None:
    """Where no pass did: the line at which the stacks show the first of its ranks, for who reads the
    fields and not the sentence.
    """
    if finding.where.frame is None:
        known = [frame for rank in finding.ranks if (frame := places.get(rank)) is not None]
        frame = finding.frame or next(iter(known), None)
        finding.where.frame = str(frame) if frame is not None else None


def _world_size(case: Case) -> int:
    """0, not known, where the captured ranks may be a part of the job, or no rank is known."""
    capture = case.capture
    if capture.names:
        return capture.world_size
    lone = capture.numbered and len(case.views) == 1  # of a text without ranks
    return 0 if capture.part or lone else case.world_size


def _advice(
    case: Case, draft: Draft, status: Status, causes: list[Cause], left_open: list[Cause]
) -> str:
    """What to do where no cause says it: nodes did not answer, or it is open which of several ranks is wrong."""
    if left_open and not causes:
        return left_open[0].advice
    if causes or status != "unknown" or draft.remaining is not None or draft.ended is not None:
        return ""
    nodes = [one.node for one in case.capture.silent if one.node]
    return remaining.advice(why_unknown(case, draft.waits), case.capture.by_hand, nodes)


def _script(capture: JobCapture) -> str:
    """What most ranks run."""
    scripts = (readable(script_in(rank.argv)) for rank in capture.ranks())
    found = Counter(filter(None, scripts)).most_common(1)
    return found[0][0][:_LONGEST_SCRIPT] if found else ""


def _nodes(capture: JobCapture) -> list[str]:
    """All nodes of the job that are known by name, silent ones too."""
    answered = {n.node for n in capture.nodes} | {r.node for r in capture.ranks()}
    silent = {s.node for s in capture.silent}
    logged = set(capture.logs.homes.values()) if capture.logs is not None else set()
    named = (answered | silent | logged) - {""}
    # torchrun --standalone logs its node by that name, whatever the node calls itself.
    return sorted(named - {"localhost"} or named)


def _notes(capture: JobCapture, draft: Draft) -> list[str]:
    """Notes of the diagnosis, of the capture, and of its nodes, each once."""
    own = [note_words.note(note) for note in draft.notes]
    of_nodes = {note for n in capture.nodes for note in n.notes}
    return own + sorted(set(capture.notes)) + sorted(of_nodes)


def _summary(
    case: Case, draft: Draft, status: Status, causes: list[Cause], left_open: list[Cause]
) -> str:
    if draft.ended is not None:
        return ended.meanwhile(draft.ended, causes[0].summary if causes else "")
    if causes:
        return causes[0].summary
    if left_open and not causes:
        return remaining.which_of(ranks_of_all(draft.open)) + left_open[0].summary
    lead = remaining.lead(still_alone(case)) if status == "unknown" else ""
    if draft.remaining is not None:
        return log_outcomes.remaining(draft.remaining) + lead
    if status == "healthy":
        return remaining.healthy(why_healthy(case))
    why = note_words.unseen(draft.notes) or remaining.unknown(why_unknown(case, draft.waits))
    return why + lead + remaining.unstopped(case.capture.unstopped)


def _waits(case: Case, blamed: set[int]) -> list[Wait]:
    """Which ranks wait on what, and for which ranks, as far as the causes show."""
    waits: list[Wait] = []
    if case.capture.names:
        return waits  # of no rank
    for group in group_by_operation([v for v in case.waiting if v.rank not in blamed]):
        place = group[0].place
        on = WaitOn(place.group or None, place.op or None)
        waits.append(Wait([v.rank for v in group], on, sorted(blamed)))
    return waits


def _missing(case: Case) -> list[Missing]:
    missing = [
        Missing(s.ranks, s.node or None, "node" if s.node else "dumps", s.why)
        for s in case.capture.silent
    ]
    if case.absent:
        why = "no process of these ranks was found on the captured nodes"
        if case.capture.agents():
            why = "torchrun has not started them"
        missing.append(Missing(case.absent, None, "ranks", why))
    return missing + _without_stack(case)


def _without_stack(case: Case) -> list[Missing]:
    """One line for all ranks of a node whose stack is missing for one reason."""
    found: dict[tuple[str, str], list[int]] = {}
    for view in case.alive:
        if view.stack_error:
            found.setdefault((view.node, view.stack_error), []).append(view.rank)
    return [Missing(ranks, node, "stack", why) for (node, why), ranks in found.items()]


def _lines(case: Case) -> list[RankLine]:
    """The table of ranks; of those that ended during the capture, where they were before."""
    capture = case.capture
    before: dict[int, RankView] = {}
    if capture.ended_meanwhile:
        looks = Looks()
        alive = [structs.replace(rank, gone=False) for rank in capture.ranks()]
        before = {rank.rank: view_rank(rank, looks) for rank in alive}
    return [_line(v, capture.over, before.get(v.rank)) for v in case.views]


def _line(view: RankView, over: bool, before: RankView | None) -> RankLine:
    capture = view.capture
    state = _state(view)
    place = "" if capture.gone else _where(view)
    if over and not capture.samples:
        last = last_place(capture.ops)
        if before is not None and not last and before.place.frame is not None:
            last = f"was in {_where(before)}"
        state, place = "ended", last
    return RankLine(
        view.rank,
        view.node,
        view.pid,
        capture.gpu,
        local_rank=capture.local_rank,
        state="gone" if capture.gone else state,
        place=place,
        unrecorded=_unrecorded(view),
    )


def _unrecorded(view: RankView) -> str:
    shows_nothing = view.capture.ops is not None and box_shows_nothing(view.capture.ops)
    return view.place.op if shows_nothing and view.waits else ""


def _state(view: RankView) -> str:
    return view.state + ("" if view.motion == "unknown" else f" {view.motion}")


def _where(view: RankView) -> str:
    place = view.place
    op = place.op if place.communicates else ""
    if place.frame is not None:
        at = long_frame(place.frame)
        return f"{op} in {at}" if op else at
    return op or ("no stack" if view.stack_error else "")
