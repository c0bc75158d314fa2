"""Pass: what is wrong with a process itself: dead, stopped, in uninterruptible I/O, or with its lock held."""

from __future__ import annotations

import signal

from ..model import Alternative, Cause, Evidence, Frame, Process
from .case import Case, nodes_of, on_node, short, waiters_sentence, where_held, who
from .position import counters
from .view import RankView, all_states


def find(case: Case) -> list[Cause]:
    """Causes that need no comparison between ranks; each is certain of its fact, if not of its consequence."""
    causes: list[Cause] = []
    causes += _dead(case)
    for view in case.alive:
        if view.stopped:
            causes.append(_stopped(case, view))
        elif in_io(view):
            causes.append(_io_wait(case, view))
        elif _holds_lock(view):
            causes.append(_interpreter_lock(case, view))
    return causes


def end_of(view: RankView, oom: int) -> str:
    code = view.capture.exit_code
    if code is None:
        return "has ended; nothing is left that tells how" + (
            f" ({oom} processes of its cgroup were killed for memory)" if oom else ""
        )
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        memory = f" (its cgroup counts {oom} kills for lack of memory)" if oom and -code == signal.SIGKILL else ""
        return f"was killed by {name}{memory}"
    return f"has exited with code {code}"


def _dead(case: Case) -> list[Cause]:
    oom = max((n.oom_kills for n in case.capture.nodes), default=0)
    if not case.alive or not case.gone:
        return []
    groups: dict[str, list[RankView]] = {}
    for view in case.gone:
        groups.setdefault(end_of(view, oom), []).append(view)
    causes = []
    for how, views in groups.items():
        ranks = [v.rank for v in views]
        held = waiters_sentence(case, ranks)
        how_many = how if len(views) == 1 else how.replace("has ", "have ", 1).replace("was ", "were ", 1)
        causes.append(
            Cause(
                "dead",
                ranks,
                nodes_of(views),
                0.97 if held else 0.85,
                f"{who(views)} {how_many}" + (f"; {held}." if held else "."),
                where_held(case, case.held_up(ranks), None),
                [Evidence("proc", ranks, f"no living process: {how}")],
                advice=_dead_advice(views, oom),
            )
        )
    return causes


def _dead_advice(views: list[RankView], oom: int) -> str:
    nodes = ", ".join(nodes_of(views)) or "its node"
    log = "the end of its log tells why it left" if any((v.capture.exit_code or 0) > 0 for v in views) else "look into its log"
    memory = "; it ran out of memory: fewer data-loader workers or a larger --mem" if oom else f"; on {nodes}: dmesg -T | tail"
    return f"The job cannot go on without it: end it and restart from the last checkpoint; {log}{memory}."


def _stopped(case: Case, view: RankView) -> Cause:
    capture = view.capture
    traced = capture.tracer > 0 or all_states(capture, "t")
    held = waiters_sentence(case, [view.rank])
    if capture.frozen:
        how, advice = "is frozen with its cgroup", "Thaw it: the freezer of its cgroup (suspended job? scontrol resume JOB)."
    elif traced:
        how = f"is held by a debugger (pid {capture.tracer})" if capture.tracer else "is held by a debugger"
        advice = f"Let the debugger go on or detach (process {capture.tracer or '?'}{on_node(view)})."
    else:
        how = "is stopped (SIGSTOP)"
        advice = f"If nobody stopped it on purpose: kill -CONT {view.pid}{on_node(view)}."
    at = f", at {short(view.place.frame)}" if view.place.frame is not None else ""
    evidence = [Evidence("proc", [view.rank], f"state {view.state or 'frozen'} in every sample")]
    if view.path:
        evidence.append(
            Evidence("stack", [view.rank], f"it stands at {short(view.path[-1])}, which says nothing while it cannot run")
        )
    return Cause(
        "stopped", [view.rank], nodes_of([view]), 0.98, f"{who([view])} {how}{at}" + (f"; {held}." if held else "."),
        where_held(case, case.held_up([view.rank]), view), evidence,
        [Alternative("not_entered", [view.rank], "its own code cannot be the reason while the process is not allowed to run")],
        advice,
    )  # fmt: skip


def in_io(view: RankView) -> bool:
    """True where the rank's thread was in uninterruptible I/O throughout."""
    samples = view.capture.samples
    tid = view.thread.tid if view.thread is not None else view.pid
    states = [next((t.state for t in s.threads if t.tid == tid), s.state) for s in samples]
    return bool(states) and all(s == "D" for s in states) and view.motion in ("still", "unknown")


def _io_wait(case: Case, view: RankView) -> Cause:
    thread = view.thread or (view.capture.samples[-1].threads[0] if view.capture.samples[-1].threads else None)
    call = thread.syscall if thread is not None else ""
    wchan = thread.wchan if thread is not None else ""
    detail = "".join([f", in {call}" if call else "", f", kernel wait {wchan}" if wchan else ""])
    held = waiters_sentence(case, [view.rank])
    at = f" at {short(view.place.frame)}" if view.place.frame is not None else ""
    return Cause(
        "io_wait", [view.rank], nodes_of([view]), 0.93 if held else 0.75,
        f"{who([view])} is in uninterruptible I/O (state D){at}{detail}" + (f"; {held}." if held else "."),
        where_held(case, case.held_up([view.rank]), view),
        [Evidence("proc", [view.rank], f"state D in every sample and no CPU time used{detail}")],
        advice=f"Its file system or device does not answer. Try{on_node(view)}: timeout 5 stat on its mounts, and dmesg -T | tail.",
    )  # fmt: skip


def _gil_holder(view: RankView) -> tuple[int, bool] | None:
    """(thread, asleep): the thread that held the GIL in every sample."""
    samples = [s for s in view.capture.samples if any(t.frames for t in s.threads)]
    holders = [next((t for t in s.threads if t.gil), None) for s in samples]
    first = holders[0] if holders else None
    if first is None or any(h is None or h.tid != first.tid for h in holders) or len(holders) < 2:
        return None
    same = len({tuple((f.name, f.line) for f in h.frames) + counters(h.frames) for h in holders if h is not None}) == 1
    if not same:
        return None
    asleep = all(h is not None and h.state in ("S", "D") for h in holders) and all(
        h is not None and h.switches == first.switches for h in holders
    )
    return first.tid, asleep


def _holds_lock(view: RankView) -> bool:
    holder = _gil_holder(view)
    if holder is not None:
        tid, asleep = holder
        others = view.thread is not None and tid != view.thread.tid
        if not others and view.place.kind in ("checkpoint", "data"):
            return False  # it blocks in the file, lock in hand (torch.save opens its file that way): the file is the cause
        # A thread that runs holds the GIL by right; asleep, or against another that never gets it, it does not.
        if asleep or (others and view.motion == "still" and not view.place.communicates):
            return True
    return forked_with_lock(view) is not None


def forked_with_lock(view: RankView) -> Process | None:
    """The child, forked without exec, whose only Python thread waits for a lock that nobody in it can release."""
    if view.place.communicates:
        return None
    for child in view.capture.children:
        last = child.samples[-1] if child.samples else None
        threads = [t for t in last.threads if t.frames] if last is not None else []
        if len(threads) != 1 or child.argv[:3] != view.capture.argv[:3]:
            continue
        inner = threads[0].frames[0]
        code = inner.code
        waits = threads[0].syscall in ("futex", "") and threads[0].state in ("S", "")
        lock = code.startswith("with ") or "acquire" in code or inner.name in ("acquire", "_acquireLock")
        if waits and lock and not ("queues.py" in inner.file or "synchronize.py" in inner.file):
            return child
    return None


def _interpreter_lock(case: Case, view: RankView) -> Cause:
    held = waiters_sentence(case, [view.rank])
    child = forked_with_lock(view)
    if child is not None:
        frame: Frame | None = child.samples[-1].threads[0].frames[0]
        says = f"its forked child {child.pid} waits for a lock at {short(frame)}; the child has one thread, so nobody can release it"
        advice = "A thread of the parent held that lock when it forked: start the helper by spawn or forkserver, or before any thread."
    else:
        tid, _ = _gil_holder(view) or (0, False)
        thread = next((t for t in view.capture.samples[-1].threads if t.tid == tid), view.thread)
        frame = thread.frames[0] if thread is not None and thread.frames else None
        says = f"thread {tid} holds the interpreter lock (GIL) in every sample and does not let go, at {short(frame)}"
        advice = "Native code called there must release the GIL (ctypes.CDLL instead of PyDLL, Py_BEGIN_ALLOW_THREADS)."
    where = where_held(case, case.held_up([view.rank]), view)
    where.frame = str(frame) if frame is not None else where.frame
    return Cause(
        "interpreter_lock", [view.rank], nodes_of([view]), 0.9 if held else 0.7,
        f"{who([view])} cannot run Python: {says}" + (f"; {held}." if held else "."), where,
        [Evidence("stack", [view.rank], says)], advice=advice,
    )  # fmt: skip


def left_early(case: Case) -> bool:
    """True where more ranks have ended than still live, and none is known to have failed: the job is at its end."""
    return len(case.gone) > len(case.alive) and not any(v.capture.exit_code for v in case.gone)
