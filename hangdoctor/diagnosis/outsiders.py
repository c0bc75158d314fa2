"""Pass: ranks that are alive and not in the communication that others wait in.

The rank that stands outside is the one that holds the others, unless it is *ahead* of them: the ranks
that wait in an earlier operation of the program than the others are held by someone, and a minority
alone is not guilt.
"""

from __future__ import annotations

import re

from ..model import Alternative, Cause, Evidence, Kind, Process
from . import holding
from .case import Case, names, nodes_of, on_node, short, waiters_sentence, where_held, who
from .position import compare, counters, is_ahead, is_behind
from .view import RankView

# A function that feeds the training, by its name; "load" alone says too little (load_config, load_library).
_DATAISH = re.compile(r"batch|data(?!class)|fetch|sample|(?<![a-z])loader|(?<![a-z])shard", re.I)


def outside(case: Case, blamed: set[int]) -> list[RankView]:
    """Living ranks that are in no communication, or got on in one, and that no pass has explained yet."""
    return [v for v in case.alive if v.rank not in blamed and not v.waits and not v.stopped and v.capture.samples]


def passed_on(case: Case, free: list[RankView], blamed: set[int]) -> set[int]:
    """Those of `free` that are ahead of everybody who waits: they wait too, in something that no rule knows.

    One rank alone that is ahead may have skipped the operation, so it takes company: at least as many
    ranks at one line as wait behind, or another cause that explains the wait.
    """
    waiting = [v for v in case.waiting if v.rank not in blamed]
    ahead = [v for v in free if v.motion in ("still", "stirred", "unknown", "running") and is_ahead(v, waiting)]
    together: set[int] = set()
    for view in ahead:
        company = [o for o in ahead if compare(o.path, view.path) == 0]
        if (len(company) > 1 and len(company) >= len(waiting)) or blamed:
            together.add(view.rank)
    return together


def find(case: Case, blamed: set[int]) -> list[Cause]:
    """One cause for each place outside the operation that others wait in."""
    free = outside(case, blamed)
    if not free:
        return []
    waiting = [v for v in case.waiting if v.rank not in blamed]
    excused = passed_on(case, free, blamed)
    suspects = [v for v in free if v.rank not in excused]
    if not waiting:
        # Nobody waits for anybody: only a rank that has not run at all is worth a word.
        suspects = [v for v in suspects if v.motion == "still" and v.path]
        if len(suspects) < len(case.alive) and len(suspects) * 2 > len(case.alive):
            return []
        if len(suspects) > 1 and all(compare(v.path, suspects[0].path) == 0 for v in case.alive):
            return []  # all stand at one place, so nobody holds anybody: a job that is through, or between its steps
    groups: dict[tuple[object, ...], list[RankView]] = {}
    for view in suspects:
        frame = view.place.frame
        key = (kind_of(view), frame.name if frame else "", frame.file if frame else "", frame.line if frame else 0)
        groups.setdefault(key, []).append(view)
    causes = [_cause(case, group, waiting) for group in groups.values()]
    return sorted(causes, key=lambda c: (-c.confidence, c.ranks))


def kind_of(view: RankView) -> Kind:
    """What a rank outside does instead."""
    if view.place.kind == "checkpoint":
        return "slow" if gets_on(view) else "checkpoint_wait"
    if view.motion in ("running",) or (view.place.kind == "code" and view.motion == "looping" and _is_busy_loop(view)):
        return "busy"
    if view.place.kind == "data":
        return "data_wait"
    if view.place.kind in ("queue", "child") and view.capture.children and _data_by_name(view):
        return "data_wait"
    if view.place.kind == "queue" and _has_workers(view):
        return "data_wait"
    if view.motion == "moved" or counts_on(view):
        return "slow"
    return "not_entered"


def counts_on(view: RankView) -> bool:
    """True where a loop counter of the rank's own code grew between the samples."""
    if view.motion != "looping" or view.thread is None:
        return False
    before = next((t for t in view.capture.samples[0].threads if t.tid == view.thread.tid), None)
    first = dict(counters(list(reversed(before.frames)))) if before is not None else {}
    return any(first.get(name, count) < count for name, count in counters(view.path))


def gets_on(view: RankView) -> bool:
    """True where a rank in a checkpoint makes progress: other lines or counters, or bytes written or read."""
    samples = view.capture.samples
    if view.motion in ("moved", "looping") or len(samples) < 2:
        return view.motion in ("moved", "looping")
    first, last = samples[0], samples[-1]
    pairs = [(first.read_bytes, last.read_bytes), (first.write_bytes, last.write_bytes)]
    return any(0 <= before < after for before, after in pairs)


def _is_busy_loop(view: RankView) -> bool:
    samples = view.capture.samples
    used = samples[-1].cpu_s - samples[0].cpu_s
    return used > 0.5 * max(samples[-1].at_s - samples[0].at_s, 1e-3)


def _data_by_name(view: RankView) -> bool:
    return any(_DATAISH.search(frame.name) for frame in view.path)


def _has_workers(view: RankView) -> bool:
    """True where a child was made by multiprocessing: it feeds the queue that the rank waits on."""
    return any(
        any("multiprocessing" in f.file for t in s.threads for f in t.frames) for c in view.capture.children for s in c.samples
    )


def doing_words(view: RankView) -> str:
    """What its thread does at its place, by motion and system call: ``sleeping``, ``blocked in recvfrom``; "" if nothing tells."""
    thread = view.thread
    if view.motion == "running":
        return "running without a pause"
    if view.motion in ("moved", "looping"):
        return "still working"
    if thread is None or not thread.syscall:
        return "not moving" if view.motion == "still" else ""
    calls = {
        "clock_nanosleep": "sleeping", "nanosleep": "sleeping", "futex": "waiting for a lock or another thread",
        "wait4": "waiting for a child process", "waitid": "waiting for a child process", "pause": "waiting for a signal",
    }  # fmt: skip
    return calls.get(thread.syscall, f"blocked in {thread.syscall}")


def _cause(case: Case, group: list[RankView], waiting: list[RankView]) -> Cause:
    view = group[0]
    ranks = [v.rank for v in group]
    kind = kind_of(view)
    frame = view.place.frame or (view.path[-1] if view.path else None)
    at = f"at {short(frame)}" if frame is not None else "at a place that its stack does not tell"
    doing = doing_words(view)
    held = waiters_sentence(case, ranks)
    verb = _VERBS[kind] if waiting else _ALONE.get(kind, _VERBS[kind])
    if len(group) > 1:
        verb = (
            verb.replace("stands", "stand")
            .replace("waits", "wait")
            .replace("does ", "do ")
            .replace("is ", "are ")
            .replace("its", "their")
        )
    sentence = f"{who(group)} {verb} {at}{f', {doing}' if doing else ''}"
    confidence = _confidence(case, group, waiting, kind)
    by = held_by(kind, group)
    parts = [sentence, by.words if by is not None else "", held]
    return Cause(
        kind, ranks, nodes_of(group), confidence, "; ".join(p for p in parts if p) + ".",
        where_held(case, case.held_up(ranks), view), _evidence(group, waiting, doing) + (by.evidence if by is not None else []),
        _alternatives(case, group, waiting), by.advice if by is not None else _advice(kind, view),
    )  # fmt: skip


def held_by(kind: Kind, group: list[RankView]) -> holding.Holding | None:
    """What holds the one rank of a group, where the kind leaves that open."""
    if len(group) != 1:
        return None
    look = {"not_entered": holding.find, "data_wait": holding.failed_child}.get(kind)
    return look(group[0]) if look is not None else None


_VERBS: dict[Kind, str] = {
    "not_entered": "never reached the operation that its peers wait in and stands",
    "busy": "does not come to the operation that its peers wait in: it is busy",
    "data_wait": "waits for its data loader",
    "checkpoint_wait": "is inside a checkpoint",
    "slow": "is late but still on its way",
}
_ALONE: dict[Kind, str] = {"not_entered": "stands still outside any communication", "busy": "is busy"}


def _confidence(case: Case, group: list[RankView], waiting: list[RankView], kind: Kind) -> float:
    confidence = 0.92 if waiting else 0.55
    if group[0].motion in ("moved", "looping"):
        confidence = 0.6
    elif group[0].motion == "unknown":
        confidence = min(confidence, 0.75)
    if not group[0].path:
        confidence = min(confidence, 0.5)
    if is_ahead(group[0], waiting):
        confidence = min(confidence, 0.65)
    if len(group) > len(waiting) > 0:
        confidence = min(confidence, 0.7)
    if case.absent or case.silent:
        confidence -= 0.05
    return round(confidence, 2)


def _evidence(group: list[RankView], waiting: list[RankView], doing: str) -> list[Evidence]:
    view, ranks = group[0], [v.rank for v in group]
    evidence: list[Evidence] = []
    if view.path:
        shown = " < ".join(short(f) for f in reversed(view.path[-4:]))
        code = view.path[-1].code
        evidence.append(Evidence("stack", ranks, shown + (f": {code}" if code else "")))
    elif view.stack_error:
        evidence.append(Evidence("stack", ranks, f"no stack: {view.stack_error}"))
    thread = view.thread
    if thread is not None and thread.state:
        more = f", kernel wait {thread.wchan}" if thread.wchan else ""
        evidence.append(
            Evidence("proc", ranks, f"state {thread.state}, {view.motion} between the samples{more}; {doing or 'no call told'}")
        )
    if thread is not None and thread.gil:
        evidence.append(
            Evidence("stack", ranks, "it holds the interpreter lock (GIL) meanwhile: its other threads cannot run either")
        )
    for child in view.capture.children:
        evidence += _child_evidence(ranks, child)
    if waiting:
        stuck = [v.rank for v in waiting if v.motion == "still"]
        evidence.append(Evidence("stack", [v.rank for v in waiting], "stand in communications" +
                                 (f"; {names(stuck).lower()} did not run once between the samples" if stuck else "")))  # fmt: skip
    return evidence


def _child_evidence(ranks: list[int], child: Process) -> list[Evidence]:
    if not child.samples:
        return []
    state = child.samples[-1].state
    main = next((t for t in child.samples[-1].threads if t.frames), None)
    if state in ("Z", ""):
        how = f" ({holding.end_words(child.exit_code)})" if child.exit_code is not None else ""
        return [Evidence("proc", ranks, f"its child {child.pid} is dead{how}")]
    if state in "Tt":
        return [Evidence("proc", ranks, f"its child {child.pid} is stopped")]
    if main is None:
        return []
    return [Evidence("stack", ranks, f"its child {child.pid} (state {state}) stands at {short(main.frames[0])}")]


def _alternatives(case: Case, group: list[RankView], waiting: list[RankView]) -> list[Alternative]:
    out: list[Alternative] = []
    if waiting:
        out.append(Alternative("in_communication", [v.rank for v in waiting],
                               f"the operation cannot finish while {names(v.rank for v in group).lower()} is not in it"))  # fmt: skip
    if case.silent:
        out.append(
            Alternative("unreachable", sorted(case.silent), "these did not report; a captured rank already explains the wait")
        )
    if is_behind(group[0], waiting):
        return out
    if is_ahead(group[0], waiting):
        out.append(
            Alternative(
                "order",
                [v.rank for v in group],
                "it is past the line where the others wait: it may have skipped that operation",
            )
        )
    return out


def _advice(kind: Kind, view: RankView) -> str:
    pid = view.pid
    if kind == "data_wait" and not view.capture.children:
        return "The loader works in the rank itself: look at what the dataset waits for, shown above (its file system, its connection)."
    return {
        "data_wait": "Look at the loader's workers below: a dead or blocked worker, its file system, or a bad sample. "
        "DataLoader(timeout=...) turns this into an error.",
        "checkpoint_wait": f"Look at the file system that it writes to: ls -l /proc/{pid}/fd, and df on its target.",
        "busy": f"See where it spends its time: py-spy top --pid {pid}{on_node(view)}. If it is only slow, capture again with a larger --settle.",
        "slow": "It moved between the two captures. Capture again with a larger --settle to tell slow from stuck.",
    }.get(kind, f"Look at the frame where it stands; its native frames{on_node(view)}: py-spy dump --native --pid {pid}.")
