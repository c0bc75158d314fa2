"""Pass: what is wrong with a process itself: dead, stopped, in uninterruptible I/O, or with its
lock held.
"""

from __future__ import annotations

import signal

from ..model.capture import ProcessSample, RankCapture, ThreadSample
from . import byte_counts, gil, gil_shared, held_by, own_loops, shut_down
from . import findings as f
from .case import Case, finding_on, nodes_of, ranks_of, waiters, where_held
from .confidence import Ground, Limit, sure
from .draft import Draft, ordered, ranks_blamed
from .findings import Against, Clue, End, Finding, Why
from .position import iteration
from .view import RankView, all_states

_IMPORTS_S = 600.0  # a program that is in an import for longer trains in it


def run(case: Case, draft: Draft) -> None:
    """What is wrong with single processes; at the end of a job, ranks that left cleanly are no dead
    ones.
    """
    facts = find(case)
    if left_early(case) or left_well(case):
        facts = [c for c in facts if c.kind != "dead"]
    facts, beside = gil_shared.joined(case, facts)
    draft.excused |= beside
    draft.facts = facts
    draft.by_stacks = ordered(facts)


def find(case: Case) -> list[Finding]:
    """Findings that need no comparison between ranks; each is certain of its fact, if not of its
    consequence.
    """
    found = _dead(case) + shut_down.find(case)
    over = ranks_blamed(found)
    for view in case.alive:
        if view.rank in over:
            continue
        if view.stopped:
            found.append(_stopped(case, view))
        elif in_io(view):
            found.append(_io_wait(case, view))
        elif _holds_lock(view):
            found.append(_interpreter_lock(case, view))
    return found


def end_of(view: RankView, oom_kills: int) -> End:
    """How a process ended; the kills of its cgroup count where nothing else shows it, or where it
    was killed.
    """
    code = view.capture.exit_code
    by_kill = code is None or -code == signal.SIGKILL
    return End(code, oom_kills if by_kill else 0, view.capture.told)


def _dead(case: Case) -> list[Finding]:
    oom = max((n.oom_kills for n in case.capture.nodes), default=0)
    if not case.alive or not case.gone:
        return []
    groups: dict[End, list[RankView]] = {}
    never_seen = set() if oom else set(unstarted(case))
    for view in case.gone:
        if view.rank in never_seen:
            continue
        groups.setdefault(end_of(view, oom), []).append(view)
    return [_dead_alike(case, end, views) for end, views in groups.items()]


def has_communicated(view: RankView) -> bool:
    """Whether its records or its loop counters show that a rank's first operation is behind it."""
    ops = view.capture.ops
    if ops is not None and ops.has_communicated():
        return True
    return (iteration(view.path) or 0) > 0


def unstarted(case: Case) -> list[int]:
    """Ranks that no trace shows, neither a zombie nor an exit code, in a job that is still in its
    set-up: they may never have been started. `lifecycle` says so.
    """
    if not case.alive or not all(map(_sets_up, case.alive)):
        return []
    if any(has_communicated(v) for v in case.alive):
        return []
    return [
        v.rank
        for v in case.gone
        if not v.pid and v.capture.exit_code is None and not v.capture.told
    ]


def _sets_up(view: RankView) -> bool:
    """Whether it is in `init_process_group`, or imports what its program needs before that."""
    own = view.capture.importing
    imports = own is not None and own.seconds <= _IMPORTS_S and not view.place.communicates
    return view.place.kind == "start" or imports


def _dead_alike(case: Case, end: End, views: list[RankView]) -> Finding:
    ranks = ranks_of(views)
    held = waiters(case, ranks)
    return Finding(
        kind="dead",
        ranks=list(ranks),
        story=f.Died(end, before_s=min(view.capture.left_s for view in views)),
        confidence=sure(Ground.DEAD if held is not None else Ground.DEAD_ALONE),
        nodes=nodes_of(views),
        where=where_held(case, case.held_up(ranks), None),
        waiters=held,
        clues=[Clue("proc", ranks, f.Ended(end))],
    )


def _stopped(case: Case, view: RankView) -> Finding:
    finding = finding_on(
        case, "stopped", [view], _stop_story(view.capture), confidence=sure(Ground.STOPPED)
    )
    state = "frozen" if view.capture.frozen else view.state
    finding.clues = [Clue("proc", (view.rank,), f.StoppedState(state))]
    if view.path:
        finding.clues.append(Clue("stack", (view.rank,), f.CannotRun(view.path[-1])))
    finding.against = [Against("not_entered", (view.rank,), Why.CANNOT_RUN)]
    return finding


def _stop_story(capture: RankCapture) -> f.Stopped:
    if capture.frozen:
        return f.Stopped("freezer")
    if capture.tracer > 0 or all_states(capture, "t"):
        return f.Stopped("debugger", capture.tracer)
    return f.Stopped("signal")


def in_io(view: RankView) -> bool:
    """True where the rank's thread was in uninterruptible I/O throughout."""
    if view.motion not in ("still", "unknown") or byte_counts.writes_on(view):
        return False
    tid = view.thread.tid if view.thread is not None else view.pid
    samples = view.capture.samples
    return bool(samples) and all(_state_of(sample, tid) == "D" for sample in samples)


def _state_of(sample: ProcessSample, tid: int) -> str:
    """The state of a thread; the process's where the sample does not have it."""
    return next((t.state for t in sample.threads if t.tid == tid), sample.state)


def _io_wait(case: Case, view: RankView) -> Finding:
    threads = view.capture.samples[-1].threads
    thread = view.thread or (threads[0] if threads else None)
    call = thread.syscall if thread is not None else ""
    wchan = thread.wchan if thread is not None else ""
    finding = finding_on(case, "io_wait", [view], f.InputOutput(call, wchan), confidence=0.0)
    finding.confidence = sure(Ground.IO if finding.waiters is not None else Ground.IO_ALONE)
    finding.clues = [Clue("proc", (view.rank,), f.IdleState(call, wchan))]
    return finding


def _holds_lock(view: RankView) -> bool:
    held = gil.holders(view)
    if gil.at_one_place(held):
        another = view.thread is not None and held[-1].tid != view.thread.tid
        if not another and view.place.kind in ("checkpoint", "data"):
            # It blocks in the file, lock in hand (torch.save opens its file that way): the file is
            # the cause.
            return False
        # A thread that runs holds the GIL by right; asleep, or against another that never gets it,
        # it does not.
        waits = view.motion == "still" and not view.place.communicates
        if gil.asleep(held) or (another and (waits or gil.is_awaited(view))):
            return True
    return forked_with_lock(view) is not None


def forked_with_lock(view: RankView) -> f.ForkedLock | None:
    """A child, forked without exec, whose only Python thread waits for a lock that no thread in
    it
    can release.
    """
    if view.place.communicates:
        return None
    for child in view.capture.children:
        last = child.samples[-1] if child.samples else None
        threads = [t for t in last.threads if t.frames] if last is not None else []
        forked = child.argv[:3] == view.capture.argv[:3]
        if forked and len(threads) == 1 and _waits_for_lock(threads[0]):
            return f.ForkedLock(child.pid, threads[0].frames[0])
    return None


def _waits_for_lock(thread: ThreadSample) -> bool:
    """Whether it is asleep in a lock of its own program, not in one of multiprocessing's queues."""
    inner = thread.frames[0]
    if "queues.py" in inner.file or "synchronize.py" in inner.file:
        return False
    by_name = inner.name in ("acquire", "_acquireLock")
    by_code = inner.code.startswith("with ") or "acquire" in inner.code
    asleep = thread.syscall in ("futex", "") and thread.state in ("S", "")
    return asleep and (by_name or by_code)


def _interpreter_lock(case: Case, view: RankView) -> Finding:
    story = _lock_story(view)
    finding = finding_on(case, "interpreter_lock", [view], story, confidence=0.0)
    doubts: list[Limit] = []
    if isinstance(story, f.HoldsGil) and story.runs:
        doubts.append(Limit.GIL_AT_WORK)
        finding.against = [Against("slow", (view.rank,), Why.MAY_BE_SLOW)]
    ground = Ground.GIL if finding.waiters is not None else Ground.GIL_ALONE
    finding.confidence = sure(ground, *doubts)
    finding.clues = [Clue("stack", (view.rank,), story)]
    if story.frame is not None:
        finding.where.frame = str(story.frame)
    return finding


def _lock_story(view: RankView) -> f.HoldsGil | f.ForkedLock:
    forked = forked_with_lock(view)
    if forked is not None:
        return forked
    held = gil.holders(view)  # one of the two is why it cannot run
    frame = held_by.own_frame(held[-1]) if held[-1].frames else None
    runs = gil.is_awaited(view) and not gil.asleep(held)
    return f.HoldsGil(held[-1].tid, frame, held[-1].name, runs)


def left_early(case: Case) -> bool:
    """True where more ranks have ended than still live, and none is known to have failed: the job
    is at its end.
    """
    return len(case.gone) > len(case.alive) and not any(v.capture.exit_code for v in case.gone)


def left_well(case: Case) -> bool:
    """True where those that have ended did so with exit code 0, and all others get on without them."""
    ended = {v.capture.exit_code for v in case.gone}
    return ended == {0} and all(map(_goes_on, case.alive))


def _goes_on(view: RankView) -> bool:
    """Whether it moved, or ran in a collective, send or recv, in which one that waits stands still."""
    if own_loops.polls(view):
        return False
    return view.got_on or (view.motion == "stirred" and view.place.communicates)
