"""Pass: ranks that are alive and not in the communication that others wait in.

The rank outside blocks the others, unless it is *ahead* of them: the ranks
that wait in an earlier operation of the program than the others wait for someone, and a minority
alone is not guilt.
"""

from __future__ import annotations

import re
from itertools import pairwise

from ..model.capture import Process, ProcessSample
from ..model.diagnosis import Kind
from ..stacks.blocking_lines import blocking_call, waited_in
from ..stacks.rank_thread import serves_calls
from ..text.late import late
from . import byte_counts, far_sides, gil, pools
from . import findings as f
from . import held_by as holding
from .case import Case, finding_on, op_of, ranks_of, stack_clue
from .confidence import Ground, Less, Limit, sure
from .draft import Draft, add_first, ordered
from .findings import Against, Clue, Doing, Finding, Why
from .position import compare, counters, is_ahead
from .view import RankView

_OF_CHILD = 2  # of a child's
# A function that feeds the training, by its name; "load" alone says too little (load_config,
# load_library).
_DATAISH = late(r"batch|data(?!class)|fetch|sample|(?<![a-z])loader|(?<![a-z])shard", re.I)
_CONNECTION = "multiprocessing/connection.py"
_QUEUES = "multiprocessing/queues.py"
_LOADER = "torch/utils/data/dataloader.py"
_OF_EVENTS = ("Condition.wait", "Condition.wait_for", "Event.wait")
_JOINS = ("_shutdown_workers", "__del__")
_OF_A_WAIT = late(
    r"Empty|Full|Exists|NotFound|Connect|Refused|KeyError|ZMQ|[Tt]ime-?[Oo]ut|Again|^(?:Base)?Exception$|BlockingIO"
)


def outside(case: Case, blamed: set[int]) -> list[RankView]:
    """Living ranks that are in no communication, or got on in one, and that no pass has explained
    yet.
    """
    seen = [v for v in case.alive if not v.unread and v.rank not in blamed]
    return [v for v in seen if not v.waits and not v.stopped]


def passed_on(case: Case, free: list[RankView], blamed: set[int]) -> set[int]:
    """Those of `free` that are ahead of everyone who waits: they wait too, in something that no
    rule knows.

    One rank alone that is ahead may have skipped the operation, so it takes company: at least as
    many ranks at one line as wait behind, or another cause that explains the wait.
    """
    waiting = [v for v in case.waiting if v.rank not in blamed]
    ahead = [v for v in free if not v.got_on and is_ahead(v, waiting)]
    if blamed:
        return {v.rank for v in ahead if not keeps_failing(v)}
    together: set[int] = set()
    for view in ahead:
        company = [o for o in ahead if compare(o.path, view.path) == 0]
        if len(company) >= max(2, len(waiting)):
            together.add(view.rank)
    return together


def run(case: Case, draft: Draft) -> None:
    """Who is outside, where neither set-up nor teardown explains the wait."""
    draft.excused |= _fed_by_others(outside(case, draft.blamed))
    if any(finding.kind == "dead" for finding in draft.by_stacks):
        seen = outside(case, draft.blamed)  # a connection to the dead one is refused, too
        draft.excused |= {v.rank for v in seen if _looks_again(v) or keeps_failing(v)}
    add_first(find, case, draft)


def _fed_by_others(free: list[RankView]) -> set[int]:
    """Ranks that wait for what another process puts into a queue, none of their own children, or for
    further calls, while a rank is elsewhere: a learner waits for its actors, a server for its workers.
    """
    fed = {view.rank for view in free if _awaits_anothers(view) or _awaits_calls(view)}
    return fed if len(fed) < len(free) else set()


def _awaits_calls(view: RankView) -> bool:
    """Whether it serves a call by RPC that waits for an event in it, as for the calls of the other ranks."""
    served = bool(view.path) and serves_calls(view.path[0])
    return served and view.motion == "still" and view.path[-1].name in _OF_EVENTS


def _looks_again(view: RankView) -> bool:
    """Whether it sleeps in a ``while``, and looks in between whether something has come, as a file of
    another rank: where one has died, that is what it waits for.
    """
    inner = view.path[-1] if view.path else None
    sleeps = inner is not None and "sleep(" in inner.code and inner.counts == "while"
    return sleeps and view.motion in ("still", "stirred")


def _awaits_anothers(view: RankView) -> bool:
    frames = [frame for frame in view.path if frame.file.endswith(_QUEUES)]
    alone = not view.capture.children and view.motion == "still"
    return bool(frames) and view.place.kind == "queue" and alone


def find(case: Case, blamed: set[int]) -> list[Finding]:
    """One finding for each place outside the operation that others wait in."""
    free = outside(case, blamed)
    if not free:
        return []
    waiting = [v for v in case.waiting if v.rank not in blamed]
    excused = passed_on(case, free, blamed)
    suspects = [v for v in free if v.rank not in excused]
    if not waiting:
        suspects = _idle_alone(case, suspects)
    groups: dict[tuple[object, ...], list[RankView]] = {}
    for view in suspects:
        groups.setdefault((kind_of(view), view.place.at), []).append(view)
    return ordered(finding_outside(case, group, waiting) for group in groups.values())


def _idle_alone(case: Case, suspects: list[RankView]) -> list[RankView]:
    """Where no rank waits for another, only a rank that has not run at all is worth a word."""
    idle = [v for v in suspects if v.motion == "still" and v.path and v.place.kind != "work"]
    if 2 * len(idle) > len(case.alive) > 2:
        return []  # most of a job cannot be what keeps it: what they wait in is not known
    if len(idle) > 1 and all(compare(v.path, idle[0].path) == 0 for v in case.alive):
        # All at one place, so none blocks another: a job that is through, or between its steps.
        return []
    return idle


def kind_of(view: RankView) -> Kind:
    """What a rank outside does instead."""
    place = view.place.kind
    if place == "checkpoint":
        return "slow" if byte_counts.gets_on(view) else "checkpoint_wait"
    if retries_after(view):
        return "busy"
    if gil.goes_on(view):
        return "slow"
    if byte_counts.writes_on(view):
        return "slow"  # though it computes: a loop without end writes nothing
    busy_loop = place == "code" and view.motion == "looping" and _is_busy_loop(view)
    if view.motion == "running" or busy_loop or view.spins:
        return "slow" if counts_to_an_end(view) else "busy"
    if byte_counts.reads_on(view):
        return "slow"
    if place == "data" or _waits_for_data(view):
        return "data_wait"
    if view.motion == "moved" or counts_on(view) or counts_to_an_end(view):
        return "slow"
    return "not_entered"


def retries_after(view: RankView) -> str:
    """The exceptions after which the loop that it was in at both samples tries again; "" elsewhere."""
    samples = [s for s in view.capture.samples if s.threads]
    if len(samples) < 2 or view.thread is None or view.motion == "still":
        return ""
    loops = [_retry_loops(sample, view.thread.tid) for sample in (samples[0], samples[-1])]
    both = [names for at, names in loops[1].items() if loops[0].get(at) == names]
    return both[0] if both else ""


def keeps_failing(view: RankView) -> bool:
    """Whether it tries again and again what fails by itself: a queue that is empty, or a time-out,
    may be of what another rank is to do.
    """
    caught = retries_after(view)
    return bool(caught) and _OF_A_WAIT.search(caught) is None


def _retry_loops(sample: ProcessSample, tid: int) -> dict[tuple[str, str], str]:
    """What the functions of a thread catch and try again after, the innermost first."""
    frames = next((t.frames for t in sample.threads if t.tid == tid), [])
    return {(f.name, f.file): f.catches for f in frames if f.catches}


def _waits_for_data(view: RankView) -> bool:
    """Whether the queue or the child that it waits on feeds the training."""
    place = view.place.kind
    if pools.awaits_task(view) and not _data_by_name(view):
        return False
    if place == "queue" and view.capture.children and _data_by_name(view):
        return True
    if place == "child" and _has_workers(view) and _data_by_name(view):
        return True  # no program that it has started, such as one that checks a shard
    if place in ("queue", "child") and _joins_workers(view):
        return True
    if place == "queue" and _asks_workers(view):
        return True
    return place == "queue" and _has_workers(view) and not _asks_a_child(view)


def _asks_a_child(view: RankView) -> bool:
    """Whether it waits for the answer of a child by a pipe of its own, as an actor does of its
    environment: a loader has queues, or says what it is.
    """
    files = [frame.file for frame in view.path]
    by_pipe = any(file.endswith(_CONNECTION) for file in files)
    return by_pipe and not any(file.endswith(_QUEUES) for file in files) and not _data_by_name(view)


def _asks_workers(view: RankView) -> bool:
    """Whether the loader asks the queue that its workers fill: only it does so there, whether they
    were seen or not, as in a black box.
    """
    return any(_LOADER in frame.file and frame.name == "_try_get_data" for frame in view.path)


def _joins_workers(view: RankView) -> bool:
    """Whether the loader waits for its workers to end, also while an interrupt unwinds the stack."""
    return any(_LOADER in frame.file and frame.name in _JOINS for frame in view.path)


def counts_on(view: RankView) -> bool:
    """True where a loop counter of the rank's own code grew between the samples."""
    if view.motion != "looping" or view.thread is None:
        return False
    before = next((t for t in view.capture.samples[0].threads if t.tid == view.thread.tid), None)
    if before is None:
        return False
    first = dict(counters(list(reversed(before.frames))))
    return any(first.get(name, count) < count for name, count in counters(view.path))


def counts_to_an_end(view: RankView) -> bool:
    """Whether the variable of a ``for`` loop that it is in grew between two samples. From the first to
    the last it may have fallen: the loop has begun anew.
    """
    samples = [s for s in view.capture.samples if s.threads]
    if view.thread is None:
        return False
    seen = [_counted(sample, view.thread.tid) for sample in samples]
    return any(_grew(before, now) for before, now in pairwise(seen))


def _grew(before: dict[tuple[str, str, str], int], now: dict[tuple[str, str, str], int]) -> bool:
    return any(before.get(at, count) < count for at, count in now.items())


def _counted(sample: ProcessSample, tid: int) -> dict[tuple[str, str, str], int]:
    """The numbers that the ``for`` loops around a thread's lines have come to."""
    frames = next((t.frames for t in sample.threads if t.tid == tid), [])
    counting = [f for f in frames if f.counts in f.values]
    return {(f.name, f.file, f.counts): f.values[f.counts] for f in counting}


def _is_busy_loop(view: RankView) -> bool:
    samples, own = view.capture.samples, view.thread
    before = own and next((t for t in samples[0].threads if t.tid == own.tid), None)
    if own is None or before is None:
        return False
    return own.cpu_s - before.cpu_s > 0.5 * max(samples[-1].at_s - samples[0].at_s, 1e-3)


def _data_by_name(view: RankView) -> bool:
    return any(_DATAISH.search(frame.name) for frame in view.path)


def _has_workers(view: RankView) -> bool:
    """True where a child was made by multiprocessing: it feeds the queue that the rank waits on."""
    samples = [s for child in view.capture.children for s in child.samples]
    threads = [t for s in samples for t in s.threads]
    return any("multiprocessing" in frame.file for t in threads for frame in t.frames)


def doing_of(view: RankView) -> Doing | None:
    """What its thread does at its place, by motion and system call; None where nothing shows it."""
    thread, exceptions = view.thread, retries_after(view)
    if exceptions:
        return Doing("retrying", exceptions)
    if view.motion == "running" or view.spins:
        return Doing("running")
    if view.got_on:
        return Doing("working")
    if gil.goes_on(view):
        return None
    if thread is None or not thread.syscall:
        call = blocking_call(view.path[-1].code) if view.path else ""
        call = call or (waited_in(thread.frames) if thread is not None else "")
        still = Doing("blocked", call) if call else Doing("still")
        return still if view.motion == "still" else None
    queue = waited_in(thread.frames) if thread.syscall.startswith("futex") else ""
    return Doing("blocked", queue if queue.startswith("queue.") else thread.syscall)


def finding_outside(case: Case, group: list[RankView], waiting: list[RankView]) -> Finding:
    """The finding on ranks outside at one place, while `waiting` are in a communication."""
    kind = kind_of(group[0])
    held = case.held_up([v.rank for v in group])
    story = f.NeverReached(op_of(held) if held and waiting else None)
    finding = finding_on(case, kind, group, story, confidence=_confidence(case, group, waiting))
    finding.children = finding.children or any(_joins_workers(v) for v in group)
    # Bytes that grow are work, although its thread does not run.
    works = kind == "slow" and not gil.goes_on(group[0])
    finding.doing = Doing("working") if works else doing_of(group[0])
    if kind == "data_wait" and finding.doing is not None and finding.doing.call == "queue.get":
        finding.doing = Doing("still")  # the loader's own queue
    finding.holding = held_by(case, kind, group)
    finding.clues = _clues(group, waiting)
    finding.add_clues(holding.clues(finding.holding, group[0]))
    finding.against = _against(case, group, waiting)
    return finding


def held_by(case: Case, kind: Kind, group: list[RankView]) -> f.Holding | None:
    """What holds the one rank of a group, where the kind leaves that open."""
    if len(group) != 1:
        return None
    if kind == "slow":
        return gil.behind(group[0])
    if kind in ("not_entered", "checkpoint_wait"):
        return far_sides.add(holding.find(group[0]), group[0], case.alive)
    if kind == "data_wait":
        return holding.failed_child(group[0]) or holding.worker(group[0])
    return None


def _confidence(case: Case, group: list[RankView], waiting: list[RankView]) -> float:
    view = group[0]
    doubts: list[Limit | Less] = []
    if view.motion == "unknown":
        doubts.append(Limit.ONE_SAMPLE)
    if not view.path:
        doubts.append(Limit.NO_STACK)
    if is_ahead(view, waiting):
        doubts.append(Limit.AHEAD)
    if len(group) > len(waiting) > 0:
        doubts.append(Limit.MORE_THAN_WAIT)
    if case.absent or case.silent or case.unread:
        doubts.append(Less.RANKS_UNSEEN)
    if view.lost_thread:
        return sure(Ground.LOST_THREAD, *doubts)
    if _may_be_slow(view):
        return sure(Ground.OUTSIDE_LOOPING, *doubts)
    if gil.goes_on(view):
        return sure(Ground.BEHIND_GIL, *doubts)
    if view.got_on:
        return sure(Ground.OUTSIDE_MOVING, *doubts)
    return sure(Ground.OUTSIDE if waiting else Ground.OUTSIDE_ALONE, *doubts)


def _may_be_slow(view: RankView) -> bool:
    """Whether a rank that seems stuck was at other lines of its loop: it polls, or works slowly."""
    return view.motion == "looping" and kind_of(view) == "not_entered"


def _clues(group: list[RankView], waiting: list[RankView]) -> list[Clue]:
    view, ranks = group[0], ranks_of(group)
    found: list[Clue] = []
    if view.path:
        found.append(stack_clue(group, view.path[-1].code))
    elif view.stack_error:
        found.append(Clue("stack", ranks, f.NoStack(view.stack_error)))
    found += _thread_clues(view, ranks)
    for child in view.capture.children:
        found += _child_clues(ranks, child)
    if waiting:
        still = tuple(v.rank for v in waiting if v.motion == "still")
        all_still = len(still) == len(waiting)
        found.append(Clue("stack", ranks_of(waiting), f.WaitsIn(still, all_still)))
    return found


def _thread_clues(view: RankView, ranks: tuple[int, ...]) -> list[Clue]:
    thread = view.thread
    if thread is None:
        return []
    found: list[Clue] = []
    if thread.state:
        state = f.ThreadState(thread.state, view.motion, thread.wchan, doing_of(view))
        found.append(Clue("proc", ranks, state))
    moved = byte_counts.of_thread(view)
    if byte_counts.writes_on(view) or byte_counts.reads_on(view):
        found.append(Clue("proc", ranks, moved))
    if thread.gil:
        found.append(Clue("stack", ranks, f.HasGil()))
    return found


def _child_clues(ranks: tuple[int, ...], child: Process) -> list[Clue]:
    if not child.samples:
        return []
    state = child.samples[-1].state
    main = next((t for t in child.samples[-1].threads if t.frames), None)
    if state == "Z" or not (state or main):
        end = f.End(child.exit_code) if child.exit_code is not None else None
        return [Clue("proc", ranks, f.ChildDied(child.pid, end))]
    if state in ("T", "t"):
        return [Clue("proc", ranks, f.ChildStopped(child.pid))]
    if main is None:
        return []
    return [Clue("stack", ranks, f.ChildAt(child.pid, state, tuple(main.frames[:_OF_CHILD])))]


def _against(case: Case, group: list[RankView], waiting: list[RankView]) -> list[Against]:
    found: list[Against] = []
    if waiting:
        found.append(Against("in_communication", ranks_of(waiting), Why.CULPRIT_IS_OUTSIDE))
    if case.silent:
        found.append(Against("unreachable", tuple(sorted(case.silent)), Why.EXPLAINED_WITHOUT_THEM))
    if is_ahead(group[0], waiting):
        found.append(Against("order", ranks_of(group), Why.MAY_HAVE_SKIPPED))
    if _may_be_slow(group[0]):
        found.append(Against("slow", ranks_of(group), Why.MAY_BE_SLOW))
    return found
