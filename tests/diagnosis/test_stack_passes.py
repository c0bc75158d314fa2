"""Each pass on stacks, processes and RAS by a table: what was captured, who is the cause, and all that is said of it.

The kinds and ranks stand here; the rest is `tests/data/stack_passes/judged.txt`, which
`python -m tests.diagnosis.test_stack_passes` writes anew, to be read in the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.third_sample import pause_s
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    LockHolder,
    NodeCapture,
    Process,
    ProcessSample,
    RankCapture,
    SilentNode,
)
from hangdoctor.model.layout import Layout
from hangdoctor.model.ras_report import RasCommunicator, RasCounts, RasProcess, RasRank, RasReport
from tests.support.captures import (
    C10D,
    LOAD,
    MAIN,
    WAIT,
    captured,
    sample,
    stack,
    still,
    thread,
    told,
)

SAID = Path(__file__).parents[1] / "data" / "stack_passes" / "judged.txt"
UNREAD = captured(3, [sample(0.0, state="", stack_error="the deadline came first", unread=True)])


def call(name: str, line: int = 31, group: str = "", code: str = "", **values: int) -> list[Frame]:
    inner = Frame(name, C10D, 9, group=group, values=values)
    return [
        inner,
        Frame("step", "/app/train.py", line, code=code),
        Frame("main", "/app/train.py", 5),
    ]


def handle(line: int) -> list[Frame]:
    """In a handle's wait(), which is native: the user's line is all that shows it."""
    return [Frame("rotate", "/app/ring.py", line, code="out.wait()"), Frame(*MAIN)]


def loop(count: int, line: int = 31) -> list[Frame]:
    inner = Frame("all_reduce", C10D, 9, group="world")
    outer = Frame("main", "/app/train.py", 5, values={"step": count})
    return [inner, Frame("step", "/app/train.py", line), outer]


def moves(rank: int, *frames: list[Frame], **more: Any) -> RankCapture:
    """A rank seen at one place after the other; `cpu_s` is what it used in between."""
    used = more.pop("cpu_s", 0.0)
    states = more.pop("states", ("S", "S"))
    samples = [
        sample(
            float(n),
            thread(f, switches=1 + 5 * n, cpu_s=n * used, state=states[n]),
            state=states[n],
        )
        for n, f in enumerate(frames)
    ]
    return captured(rank, samples, **more)


def forks(*samples: ProcessSample, argv: tuple[str, ...] = ("python", "train.py")) -> RankCapture:
    """Rank 3 of a program, which waits for a child."""
    own = Process(pid=77, ppid=12, argv=list(argv), samples=list(samples))
    return still(3, LOAD, argv=["python", "train.py"], children=[own])


def has_gil(frames: list[Frame], tid: int = 20, at: tuple[float, ...] = (0.0, 1.0)) -> RankCapture:
    """Rank 3, of which a thread runs with the GIL; the number of its main thread is 9."""
    others = [] if tid == 9 else [thread(LOAD)]
    name = "MainThread" if tid == 9 else ""
    samples = [
        sample(s, *others, thread(frames, tid=tid, name=name, gil=True, state="R", switches=int(s)))
        for s in at
    ]
    return captured(3, samples)


def asks(
    *places: list[Frame],
    own: list[Frame] = LOAD,
    wakes: int = 200,
    state: str = "R",
    written: int = 0,
    woken: str = "S",
) -> RankCapture:
    """Rank 3, whose main thread wakes up so often a second, and another has the GIL at these places."""
    samples = []
    for n, place in enumerate(places):
        main = thread(own, syscall="futex", switches=n * wakes, state=woken if n else "S")
        count = n if state == "R" else 0
        saver = thread(
            place,
            tid=20,
            name="saver",
            gil=True,
            state=state,
            switches=count,
            write_bytes=n * written,
        )
        samples.append(sample(float(n), main, saver))
    return captured(3, samples)


def writes(place: list[Frame], before: int, after: int) -> RankCapture:
    """Rank 3, whose process had written so many bytes at each sample."""
    return captured(
        3, [sample(s, thread(place), write_bytes=n) for s, n in ((0.0, before), (1.0, after))]
    )


def transfers(
    place: list[Frame],
    *,
    written: int = 0,
    read: int = 0,
    of_others: int = 0,
    by_thread: bool = True,
    **more: Any,
) -> RankCapture:
    """Rank 3, which ran, with the bytes of its thread and what other threads wrote beside it."""
    samples = []
    for n in (0, 1):
        own = {"read_bytes": read * n, "write_bytes": written * n} if by_thread else {}
        of = {"state": "D", "switches": 1 + n, "cpu_s": 0.01 * n} | own | more
        whole = {"read_bytes": read * n, "write_bytes": (written + of_others) * n}
        samples.append(sample(float(n), thread(place, **of), state="D", **whole))
    return captured(3, samples)


def polls(rank: int) -> RankCapture:
    """A rank that tries to lock a file that rank 0 has locked, again and again."""
    acquire = stack(("FileLock.acquire", "/app/data.py", 9), MAIN)
    samples = [
        sample(at, thread(acquire, syscall="clock_nanosleep", switches=1 + n))
        for n, at in enumerate((0.0, 1.0))
    ]
    return captured(rank, samples, lock=LockHolder(9, "python", path="/data/cache.lock"))


def receives(
    *, received: int = 0, sent: int = 0, of_all: int = 0, syscall: str = "recvfrom(5 -> socket:[7])"
) -> RankCapture:
    """Rank 3, which waits for a connection or for another thread, with the bytes that came."""
    samples = []
    for n in (0, 1):
        carried = {} if syscall == "futex" else {"received": received * n, "sent": sent * n}
        own = thread(LOAD, syscall=syscall, switches=1 + n, **carried)
        samples.append(sample(float(n), own, received=of_all * n))
    return captured(3, samples)


def asleep_with_gil(place: list[Frame]) -> RankCapture:
    """Rank 3, whose only thread sleeps and has the GIL."""
    return captured(3, [sample(s, thread(place, gil=True)) for s in (0.0, 1.0)])


def shut_down(rank: int, state: str = "S", **more: Any) -> RankCapture:
    """A rank without an interpreter; `told`: py-spy alone says so."""
    by_pyspy = more.pop("told", False)
    why = "Failed to find a python interpreter" if by_pyspy else "Python has shut down"
    samples = [
        sample(at, thread([]), state=state, stack_error=why, shut_down=not by_pyspy)
        for at in (0.0, 1.0)
    ]
    return captured(rank, samples, **more)


def dead(rank: int, code: int | None) -> RankCapture:
    return captured(rank, [], gone=True, exit_code=code)


def blocked(rank: int, syscall: str, frames: list[Frame] = LOAD, **more: Any) -> RankCapture:
    """A rank that sleeps in a system call."""
    wchan = more.pop("wchan", "")
    samples = [sample(at, thread(frames, syscall=syscall, wchan=wchan)) for at in (0.0, 1.0)]
    return captured(rank, samples, **more)


def locked(rank: int, by: int, path: str = "/data/lock", argv: str = "") -> RankCapture:
    """A rank that waits for a file lock that process `by` holds; rank r is process 9 + r."""
    holder = LockHolder(by, argv.partition(" ")[0], argv.split())
    return blocked(rank, f"flock(5 -> {path})", lock=holder)


def child(
    state: str, *, argv: str = "worker", code: int | None = None, frames: Any = (), **more: Any
) -> Process:
    """A child of rank 3."""
    gone = state == "Z"
    samples = [
        sample(at, thread(list(frames), syscall="read(0 -> /x)"), state=state) for at in (0.0, 1.0)
    ]
    of = {
        "pid": 77,
        "ppid": 12,
        "argv": [argv],
        "samples": samples,
        "gone": gone,
        "exit_code": code,
    }
    return Process(**(of | more))


INIT, NEW, LEAVE = (
    call("init_process_group", 3),
    call("new_group", 4),
    call("destroy_process_group", 90),
)
BATCH = stack(("_next_data", "/x/torch/utils/data/dataloader.py", 7), MAIN)
JOINS = stack(
    ("wait", "/lib/multiprocessing/connection.py", 9),
    ("wait", "/lib/multiprocessing/popen_fork.py", 4),
    ("_shutdown_workers", "/x/torch/utils/data/dataloader.py", 8),
    ("__del__", "/x/torch/utils/data/dataloader.py", 7),
)
SAVE = stack(("save_checkpoint", "/app/ckpt.py", 7), MAIN)
WORKER = stack(("_worker_loop", "/lib/multiprocessing/process.py", 3))
QUEUE = stack(("get", "/lib/multiprocessing/queues.py", 7), MAIN)
PDB = stack(("readline", "/lib/cmd.py", 7), ("set_trace", "/lib/pdb.py", 3), MAIN)
ASKS = stack(("main", "/app/train.py", 5), code="input('go on?')")
LOCK = stack(("fetch", "/app/data.py", 8), MAIN, code="with lock.acquire():")
RUNS = stack(("wait", "/lib/subprocess.py", 7), MAIN)
LOCKED = sample(1.0, thread(stack(("emit", "/x.py", 9), code="with self.lock:"), syscall="futex"))
OTHER = stack(("forward", "/app/model.py", 3), MAIN)
OTHER_LINE = stack(("forward", "/app/model.py", 4), MAIN)
ALL = [still(r, WAIT) for r in range(3)]
WORLD = call("all_reduce", group="world")
HELD = [still(r, WORLD) for r in range(3)]
LIBRARY = stack(("wait", "/usr/lib/python3.11/threading.py", 3))
FURTHER = stack(("step", "/app/train.py", 50), MAIN)
OTHER_BRANCH = [*WORLD[:-1], Frame("main", "/app/train.py", 9)]
N2 = [SilentNode("n2", "no answer", [3])]
TP = Layout(dp=2, pp=1, tp=2)
PIPE = Layout(dp=2, pp=2, tp=1)


def ras(*communicators: RasCommunicator) -> RasReport:
    return RasReport(communicators=list(communicators))


def lost(state: str, size: int = 4) -> RasReport:
    return ras(RasCommunicator("ab", size, missing=[RasRank(3, RasProcess("h9", 7), state=state)]))


def fewer(size: int, *rows: RasCounts) -> RasReport:
    return ras(RasCommunicator("ab", size, differences=list(rows)))


FEW = (RasCounts("all_reduce", 9, 3), RasCounts("all_reduce", 8, 1, [3]))


def snapshots(*counts: tuple[float, int]) -> list[NodeCapture]:
    """What RAS said at each of these times: how many reductions rank 3 has launched, of 9."""
    nodes = []
    for at_s, launched in counts:
        report = fewer(4, FEW[0], RasCounts("all_reduce", launched, 1, [3]))
        report.at_s = at_s
        nodes.append(NodeCapture("n1", ras=report))
    return nodes


BLIND = [
    captured(r, [sample(0.0, stack_error="no"), sample(1.0, stack_error="no")]) for r in range(4)
]


def job(ranks: list[RankCapture], **more: Any) -> JobCapture:
    node = NodeCapture("n1", ranks=ranks, oom_kills=more.pop("oom", 0), ras=more.pop("ras", None))
    of = {"job": "j", "nodes": [node], "world_size": 4, "taken": 1.0}
    return JobCapture(**(of | more))


def four(frames: dict[int, list[Frame]], **more: Any) -> JobCapture:
    return job([still(r, f) for r, f in frames.items()], **more)


def five(frames: dict[int, list[Frame]]) -> JobCapture:
    return job([still(r, f, world_size=5) for r, f in frames.items()], world_size=5)


# new_group at step 7: the first set-up is long past.
LATER = [*NEW[:-1], Frame(NEW[-1].name, NEW[-1].file, NEW[-1].line, values={"step": 7})]
Causes = list[tuple[str, list[int]]]
TABLE: dict[str, tuple[JobCapture, str, Causes]] = {
    # ---- beginning and end
    "late for set-up": (four({0: INIT, 1: INIT, 2: INIT, 3: LOAD}), "hang", [("start_stall", [3])]),
    "two late for set-up": (four({0: INIT, 1: INIT, 2: OTHER, 3: LOAD}), "hang", [("start_stall", [2]), ("start_stall", [3])]),
    "late for a later group": (four({0: LATER, 1: LATER, 2: LATER, 3: LOAD}), "hang", [("not_entered", [3])]),
    "all in set-up": (four(dict.fromkeys(range(4), INIT)), "hang", [("start_stall", [0, 1, 2, 3])]),
    "one not there in set-up": (four(dict.fromkeys(range(3), INIT)), "hang", [("start_stall", [3])]),
    "a gap among the local ranks in set-up": (job([*(still(r, INIT) for r in range(3)), captured(3, [], pid=0, gone=True)]), "hang", [("start_stall", [3])]),
    "a zombie in set-up": (job([*(still(r, INIT) for r in range(3)), captured(3, [], gone=True)]), "hang", [("dead", [3])]),
    "two not there in set-up": (four(dict.fromkeys(range(2), INIT)), "hang", [("start_stall", [2, 3])]),
    "one silent in set-up": (four(dict.fromkeys(range(3), INIT), silent=N2), "hang", [("start_stall", [3])]),
    "stopped in set-up": (job([*(still(r, INIT) for r in range(3)), still(3, LOAD, "T")]), "hang", [("stopped", [3])]),
    "a later group": (four({0: NEW, 1: NEW, 2: WORLD, 3: WORLD}), "hang", [("order", [0, 1, 2, 3])]),
    "all in teardown": (four(dict.fromkeys(range(4), LEAVE)), "hang", [("end_stall", [0, 1, 2, 3])]),
    "left inside": (four({0: LEAVE, 1: LEAVE, 2: LEAVE, 3: LOAD}), "hang", [("end_stall", [3])]),
    "left inside in a collective": (four({0: LEAVE, 1: LEAVE, 2: LEAVE, 3: WAIT}), "hang", [("end_stall", [3])]),
    "left too soon": (four({0: WAIT, 1: WAIT, 2: WAIT, 3: LEAVE}), "hang", [("end_stall", [3])]),
    "as many left as are inside": (four({0: LEAVE, 1: LEAVE, 2: WAIT, 3: WAIT}), "hang", [("end_stall", [2, 3])]),
    "all that were captured in teardown": (four(dict.fromkeys(range(3), LEAVE)), "unknown", []),
    "ended too soon": (job([*ALL, dead(3, 0)]), "hang", [("dead", [3])]),
    "ended and leaving": (job([still(0, LEAVE), dead(1, 0), dead(2, 0), dead(3, 0)]), "hang", [("end_stall", [0])]),
    "as many ended as leave": (job([still(0, LEAVE), still(1, LEAVE), dead(2, 0), dead(3, 0)]), "hang", [("dead", [2, 3])]),
    "one ended badly": (job([still(0, LEAVE), dead(1, 0), dead(2, 0), dead(3, 1)]), "hang", [("dead", [1, 2]), ("dead", [3])]),
    # ---- processes
    "dead": (job([*ALL, dead(3, 1)]), "hang", [("dead", [3])]),
    "dead, and stopped before": (job([*ALL, captured(3, [sample(0.0, thread(LOAD), state="T")], gone=True, exit_code=-9)]), "hang", [("dead", [3])]),
    "dead, and others behind it": (job([still(0, WAIT), captured(1, [sample(0.0, thread(LOAD))], gone=True, exit_code=-9), *(still(r, WAIT) for r in (2, 3))]), "hang", [("dead", [1])]),
    "no threads": (job([*ALL, captured(3, [sample(0.0), sample(1.0)])]), "hang", [("not_entered", [3])]),
    "dead in two ways": (job([*ALL[:2], dead(2, -9), dead(3, 1)], oom=2), "hang", [("dead", [2]), ("dead", [3])]),
    "dead for want of memory": (job([*ALL, dead(3, None)], oom=2), "hang", [("dead", [3])]),
    "all gone": (job([dead(r, 1) for r in range(4)]), "unknown", []),
    "stopped by a debugger": (job([*ALL, still(3, LOAD, "t", tracer=7)]), "hang", [("stopped", [3])]),
    "traced and running": (job([*ALL, still(3, LOAD, tracer=7)]), "hang", [("not_entered", [3])]),
    "in I/O": (job([*ALL, still(3, LOAD, "D")]), "hang", [("io_wait", [3])]),
    "in I/O without a stack": (job([*ALL, captured(3, [sample(t, state="D", stack_error="no") for t in (0.0, 1.0)])]), "hang", [("io_wait", [3])]),
    "stopped without a stack": (job([*ALL, captured(3, [sample(t, state="T", stack_error="no") for t in (0.0, 1.0)])]), "hang", [("stopped", [3])]),
    "frozen": (job([*ALL, still(3, LOAD, frozen=True)]), "hang", [("stopped", [3])]),
    "forked with a lock": (job([*ALL, forks(sample(0.0, thread([])), LOCKED)]), "hang", [("interpreter_lock", [3])]),
    "forked with a lock, seen once": (job([*ALL, forks(LOCKED)]), "hang", [("interpreter_lock", [3])]),
    "forked with a lock, beside a native thread": (job([*ALL, forks(sample(1.0, thread([], tid=5), LOCKED.threads[0]))]), "hang", [("interpreter_lock", [3])]),
    "forked with a lock that it got": (job([*ALL, forks(LOCKED, sample(2.0, thread(OTHER)))]), "hang", [("not_entered", [3])]),
    "another program in a lock": (job([*ALL, forks(LOCKED, argv=("sh",))]), "hang", [("not_entered", [3])]),
    "a child that was not seen": (job([*ALL, forks()]), "hang", [("not_entered", [3])]),
    "another thread has the GIL": (job([*ALL, has_gil(OTHER)]), "hang", [("interpreter_lock", [3])]),
    "another thread has the GIL, seen once": (job([*ALL, has_gil(OTHER, at=(0.0,))]), "hang", [("not_entered", [3])]),
    "another thread has the GIL, and none waits": (job([*(moves(r, OTHER, LOAD) for r in range(3)), has_gil(OTHER)]), "hang", [("interpreter_lock", [3])]),
    "asks for the GIL of a thread at work": (job([*ALL, asks(OTHER, OTHER)]), "hang", [("interpreter_lock", [3])]),
    "asks for it, and was just woken up": (job([*ALL, asks(OTHER, OTHER, woken="R")]), "hang", [("interpreter_lock", [3])]),
    "asks for it in the collective": (job([*ALL, asks(OTHER, OTHER, own=WAIT)]), "hang", [("interpreter_lock", [3])]),
    "asks for it, and the thread sleeps": (job([*ALL, asks(OTHER, OTHER, state="S")]), "hang", [("interpreter_lock", [3])]),
    "asks for it, and the thread gets on": (job([*ALL, asks(OTHER, OTHER_LINE)]), "slow", [("slow", [3])]),
    "asks for it, and the thread writes": (job([*ALL, asks(OTHER, OTHER, written=1 << 20)]), "slow", [("slow", [3])]),
    "asks for it at a lock": (job([*ALL, asks(OTHER, OTHER, own=LOCK)]), "hang", [("not_entered", [3])]),
    "wakes up now and then beside it": (job([*ALL, asks(OTHER, OTHER, wakes=40)]), "hang", [("not_entered", [3])]),
    "moved behind a thread with the GIL": (job([*ALL, captured(3, [sample(float(n), thread(at, switches=n), thread(OTHER, tid=20, name="saver", gil=n != 1)) for n, at in enumerate((FURTHER, FURTHER, LOAD))])]), "slow", [("slow", [3])]),
    "its own thread runs with the GIL": (job([*ALL, has_gil(OTHER, tid=9)]), "hang", [("busy", [3])]),
    "asleep with the GIL": (job([*ALL, asleep_with_gil(OTHER)]), "hang", [("interpreter_lock", [3])]),
    "asleep with the GIL in a checkpoint": (job([*ALL, asleep_with_gil(SAVE)]), "hang", [("checkpoint_wait", [3])]),
    "writes in a checkpoint": (job([*ALL, writes(SAVE, 0, 2 << 20)]), "slow", [("slow", [3])]),
    "writes a little in a checkpoint": (job([*ALL, writes(SAVE, 0, 40_000)]), "hang", [("checkpoint_wait", [3])]),
    "writes a little in a checkpoint, and runs": (job([*ALL, captured(3, [sample(s, thread(SAVE, switches=n), write_bytes=b) for s, n, b in ((0.0, 1, 0), (1.0, 9, 40_000))])]), "slow", [("slow", [3])]),
    "wrote in a checkpoint before": (job([*ALL, writes(SAVE, 9, 9)]), "hang", [("checkpoint_wait", [3])]),
    "in a checkpoint, and bytes are not counted": (job([*ALL, writes(SAVE, -1, 9)]), "hang", [("checkpoint_wait", [3])]),
    "polls for a lock that a rank has": (job([still(0, WAIT), *(polls(r) for r in (1, 2, 3))]), "hang", [("order", [0])]),
    "a pipe runs on": (job([*ALL, transfers(LOAD, read=2000, state="S", syscall="read(5 -> pipe:[7])")]), "slow", [("slow", [3])]),
    "a line in a pipe": (job([*ALL, transfers(LOAD, read=80, state="S", syscall="read(5 -> pipe:[7])")]), "hang", [("not_entered", [3])]),
    "a connection carries data": (job([*ALL, receives(received=2000)]), "slow", [("slow", [3])]),
    "a connection answers questions": (job([*ALL, receives(received=2000, sent=900)]), "hang", [("not_entered", [3])]),
    "a connection is silent": (job([*ALL, receives()]), "hang", [("not_entered", [3])]),
    "other threads receive": (job([*ALL, receives(of_all=1 << 20, syscall="futex")]), "slow", [("slow", [3])]),
    "other threads receive a little": (job([*ALL, receives(of_all=9000, syscall="futex")]), "hang", [("not_entered", [3])]),
    "in a library": (job([*ALL, still(3, LIBRARY)]), "hang", [("not_entered", [3])]),
    "no sample": (job([*ALL, captured(3, [])]), "unknown", []),
    # ---- no interpreter
    "shut down": (job([*ALL, shut_down(3)]), "hang", [("end_stall", [3])]),
    "two shut down": (job([*ALL[:2], shut_down(2), shut_down(3)]), "hang", [("end_stall", [2, 3])]),
    "shut down before set-up": (job([*(still(r, INIT) for r in range(3)), shut_down(3)]), "hang", [("end_stall", [3])]),
    "shut down, and others in teardown": (job([*(still(r, LEAVE) for r in range(3)), shut_down(3)]), "hang", [("end_stall", [3])]),
    "shut down, and none waits": (job([*(moves(r, OTHER, LOAD) for r in range(3)), shut_down(3)]), "unknown", []),
    "shut down and stopped": (job([*ALL, shut_down(3, "T")]), "hang", [("stopped", [3])]),
    "all shut down": (job([shut_down(r) for r in range(4)]), "unknown", []),
    "no interpreter": (job([*ALL, shut_down(3, told=True)]), "hang", [("end_stall", [3])]),
    "no interpreter yet": (job([*ALL, shut_down(3, told=True, started=0.5)]), "hang", [("not_entered", [3])]),
    "no interpreter in set-up": (job([*(still(r, INIT) for r in range(3)), shut_down(3, told=True)]), "hang", [("start_stall", [3])]),
    # ---- for want of time
    "not read": (job([*ALL, UNREAD]), "unknown", []),
    "its stack not read": (job([*ALL, captured(3, [sample(0.0, thread([]), stack_error="late", unread=True)])]), "unknown", []),
    "may not be read": (job([*ALL, captured(3, [sample(0.0, thread([]), stack_error="not permitted")])]), "hang", [("not_entered", [3])]),
    "one outside and one not read": (job([*ALL[:2], still(2, LOAD), UNREAD]), "hang", [("not_entered", [2])]),
    "one stopped and one not read": (job([*ALL[:2], still(2, LOAD, "T"), UNREAD]), "hang", [("stopped", [2])]),
    "not read in set-up": (job([*(still(r, INIT) for r in range(3)), UNREAD]), "unknown", []),
    "late and not read in set-up": (job([still(0, INIT), still(1, INIT), still(2, LOAD), UNREAD]), "hang", [("start_stall", [2])]),
    "not read in teardown": (job([*(still(r, LEAVE) for r in range(3)), UNREAD]), "unknown", []),
    "inside and not read in teardown": (job([still(0, LEAVE), still(1, LEAVE), still(2, LOAD), UNREAD]), "hang", [("end_stall", [2])]),
    # ---- outside
    "writes": (job([*ALL, transfers(OTHER, written=1 << 20)]), "slow", [("slow", [3])]),
    "writes, counted for the process alone": (job([*ALL, transfers(OTHER, written=1 << 20, by_thread=False)]), "slow", [("slow", [3])]),
    "writes, and switches are not counted": (job([*ALL, transfers(OTHER, written=1 << 20, switches=-1)]), "slow", [("slow", [3])]),
    "computes and writes": (job([*ALL, transfers(OTHER, written=1 << 20, state="R")]), "slow", [("slow", [3])]),
    "writes a log": (job([*ALL, transfers(OTHER, written=40_000)]), "hang", [("not_entered", [3])]),
    "another thread writes": (job([*ALL, transfers(OTHER, of_others=8 << 20)]), "hang", [("not_entered", [3])]),
    "asleep, and another thread writes": (job([*ALL, writes(OTHER, 0, 8 << 20)]), "hang", [("not_entered", [3])]),
    "reads": (job([*ALL, transfers(OTHER, read=2 << 20)]), "slow", [("slow", [3])]),
    "reads data": (job([*ALL, transfers(BATCH, read=2 << 20)]), "slow", [("slow", [3])]),
    "polls a small file": (job([*ALL, transfers(OTHER, read=200_000)]), "hang", [("not_entered", [3])]),
    "computes and polls a file": (job([*ALL, transfers(OTHER, read=8 << 20, state="R")]), "hang", [("busy", [3])]),
    "loops": (job([*ALL, moves(3, OTHER, OTHER_LINE)]), "hang", [("not_entered", [3])]),
    "data loader": (job([*ALL, still(3, BATCH)]), "hang", [("data_wait", [3])]),
    "data loader that joins its workers": (job([*ALL, still(3, JOINS)]), "hang", [("data_wait", [3])]),
    "queue with workers": (job([*ALL, still(3, QUEUE, children=[child("S", frames=WORKER)])]), "hang", [("data_wait", [3])]),
    "queue without": (job([*ALL, still(3, QUEUE)]), "hang", [("not_entered", [3])]),
    "checkpoint": (job([*ALL, still(3, SAVE)]), "hang", [("checkpoint_wait", [3])]),
    "busy": (job([*ALL, moves(3, OTHER, OTHER, cpu_s=0.9, states=("R", "R"))]), "hang", [("busy", [3])]),
    "moved": (job([*ALL, moves(3, OTHER, LOAD)]), "slow", [("slow", [3])]),
    "two outside": (four({0: WAIT, 1: WAIT, 2: LOAD, 3: LOAD}), "hang", [("not_entered", [2, 3])]),
    "two outside at two places": (four({0: WAIT, 1: WAIT, 2: LOAD, 3: SAVE}), "hang", [("not_entered", [2]), ("checkpoint_wait", [3])]),
    "no rank waits": (four(dict.fromkeys(range(4), LOAD)), "unknown", []),
    "one sleeps and none waits": (job([*(moves(r, OTHER, LOAD) for r in range(3)), still(3, SAVE)]), "hang", [("checkpoint_wait", [3])]),
    "more outside than wait": (four({0: WAIT, 1: LOAD, 2: LOAD, 3: LOAD}), "hang", [("not_entered", [1, 2, 3])]),
    "as many are further": (four({0: WAIT, 1: WAIT, 2: FURTHER, 3: FURTHER}), "hang", [("in_communication", [0, 1])]),
    "one is further": (four({0: WAIT, 1: WAIT, 2: WAIT, 3: FURTHER}), "hang", [("not_entered", [3])]),
    "one waits in I/O, and one sleeps": (job([still(0, WAIT, "D"), *(moves(r, OTHER, LOAD) for r in (1, 2)), still(3, SAVE)]), "hang", [("io_wait", [0]), ("checkpoint_wait", [3])]),
    # ---- what holds it
    "two in one file": (job([*ALL[:2], *(blocked(r, "flock(5 -> /data/lock)") for r in (2, 3))]), "hang", [("not_entered", [2, 3])]),
    "a child that was not read": (job([*ALL, blocked(3, "wait4", RUNS, children=[Process(pid=77, ppid=12, argv=["sh"])])]), "hang", [("not_entered", [3])]),
    "a lock, and other threads": (job([*ALL, captured(3, [sample(t, thread(LOCK, syscall="futex"), thread(OTHER, tid=30, name="saver"), thread(SAVE, tid=31, name="")) for t in (0.0, 1.0)])]), "hang", [("not_entered", [3])]),
    "debugger": (job([*ALL, still(3, PDB)]), "hang", [("not_entered", [3])]),
    "asks a person": (job([*ALL, blocked(3, "read(0 -> /dev/pts/1)", ASKS)]), "hang", [("not_entered", [3])]),
    "stopped child": (job([*ALL, blocked(3, "wait4", RUNS, children=[child("T")])]), "hang", [("not_entered", [3])]),
    "dead child": (job([*ALL, blocked(3, "wait4", RUNS, children=[child("Z", code=3)])]), "hang", [("not_entered", [3])]),
    "living child": (job([*ALL, blocked(3, "wait4", RUNS, children=[child("S")])]), "hang", [("not_entered", [3])]),
    "pipe": (job([*ALL, blocked(3, "read(5 -> pipe:[12])")]), "hang", [("not_entered", [3])]),
    "file lock": (job([*ALL, blocked(3, "flock(5 -> /data/lock)")]), "hang", [("not_entered", [3])]),
    "fifo": (job([*ALL, blocked(3, "openat", wchan="wait_for_partner")]), "hang", [("not_entered", [3])]),
    "lock": (job([*ALL, blocked(3, "futex", LOCK)]), "hang", [("not_entered", [3])]),
    # ---- a file lock, and who holds it
    "holder runs a child": (job([ALL[0], locked(1, 12), locked(2, 12), blocked(3, "wait4", RUNS, children=[child("S")])]), "hang", [("not_entered", [3])]),
    "holder in a collective": (job([*ALL[:2], locked(2, 9), locked(3, 9)]), "hang", [("order", [0])]),
    "holder in a checkpoint": (job([ALL[0], ALL[1], locked(2, 12), still(3, SAVE)]), "hang", [("checkpoint_wait", [3])]),
    "holder goes on": (job([*ALL[:2], locked(2, 12), moves(3, OTHER, LOAD)]), "slow", [("slow", [3])]),
    "holder stopped": (job([*ALL[:2], locked(2, 12), still(3, LOAD, "T")]), "hang", [("stopped", [3])]),
    "child of a rank holds it": (job([*ALL[:2], locked(2, 77), still(3, LOAD, children=[Process(pid=77, ppid=12, argv=["gzip"])])]), "hang", [("not_entered", [3])]),
    "chain of locks": (job([ALL[0], locked(1, 11), locked(2, 12, "/data/b"), still(3, LOAD)]), "hang", [("not_entered", [3])]),
    "ring of locks": (job([*ALL[:2], locked(2, 12), locked(3, 11, "/data/b")]), "hang", [("order", [2, 3])]),
    "one behind a ring of locks": (job([ALL[0], locked(1, 11), locked(2, 12), locked(3, 11, "/data/b")]), "hang", [("order", [2, 3])]),
    "another process holds it": (job([*ALL[:2], locked(2, 99, argv="rsync -a /data host:/data"), locked(3, 99, argv="rsync -a /data host:/data")]), "hang", [("not_entered", [2, 3])]),
    "an ended process took it": (job([*ALL, locked(3, 99)]), "hang", [("not_entered", [3])]),
    "its own lock": (job([*ALL, locked(3, 12)]), "hang", [("not_entered", [3])]),
    "one more sleeps": (job([ALL[0], locked(1, 11), still(2, SAVE), still(3, LOAD)]), "hang", [("checkpoint_wait", [2]), ("not_entered", [3])]),
    # ---- all wait
    "all in one": (four(dict.fromkeys(range(4), WORLD)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "all in one by lines": (four(dict.fromkeys(range(4), WAIT)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "one silent": (job(ALL, silent=N2), "hang", [("unreachable", [3])]),
    "one not captured": (job(ALL), "unknown", []),
    "one line further": (four({0: WORLD, 1: WORLD, 2: WORLD, 3: call("all_reduce", 40, "world")}), "hang", [("order", [3])]),
    "one line behind": (four({0: WORLD, 1: call("broadcast", 40, "world", src=0), 2: call("broadcast", 40, "world", src=0), 3: call("broadcast", 40, "world", src=0)}), "hang", [("order", [0])]),
    "two and two": (four({0: WORLD, 1: WORLD, 2: call("barrier", 40, "world"), 3: call("barrier", 40, "world")}), "hang", [("order", [0, 1, 2, 3])]),
    "a count behind": (four({0: loop(7), 1: loop(7), 2: loop(7), 3: loop(6)}), "hang", [("order", [3])]),
    "two roots": (four({0: call("broadcast", 31, "world", src=0), 1: call("broadcast", 31, "world", src=0), 2: call("broadcast", 31, "world", src=0), 3: call("broadcast", 31, "world", src=1)}), "hang", [("mismatch", [3])]),
    "recv and no send": (four({0: call("recv", 31, src=1), 1: WAIT, 2: WAIT, 3: WAIT}), "hang", [("order", [0, 1])]),
    "two receive from two that reduce": (four({0: call("recv", 40, src=2), 1: call("recv", 40, src=3), 2: WAIT, 3: WAIT}), "unknown", []),
    "at handles of one function": (four({0: handle(17), 1: handle(17), 2: handle(17), 3: handle(18)}), "unknown", []),
    "at one handle": (four({0: handle(17), 1: handle(17), 2: handle(17), 3: handle(17)}), "hang", [("in_communication", [0, 1, 2, 3])]),
    "two receive": (four({0: call("recv", 31, src=1), 1: call("recv", 31, src=0), 2: WAIT, 3: WAIT}), "hang", [("p2p_unmatched", [0, 1])]),
    "two receive in a larger job": (five({0: WORLD, 1: WORLD, 2: WORLD, 3: call("recv", 31, src=4), 4: call("recv", 31, src=3)}), "hang", [("p2p_unmatched", [3, 4])]),
    "another branch": (five({0: WORLD, 1: WORLD, 2: WORLD, 3: call("recv", 40, src=4), 4: OTHER_BRANCH}), "hang", [("order", [4])]),
    "another branch among few": (job([still(r, f) for r, f in enumerate((WORLD, WORLD, call("recv", 40, src=3), OTHER_BRANCH))]), "hang", [("p2p_unmatched", [2, 3])]),
    "a message and a reduction of three": (job([still(r, f, world_size=3) for r, f in enumerate((WORLD, WORLD, call("recv", 40, src=0)))], world_size=3), "hang", [("p2p_unmatched", [0, 2])]),
    "a message and a reduction of four": (four({0: WORLD, 1: WORLD, 2: WORLD, 3: call("recv", 40, src=0)}), "hang", [("p2p_unmatched", [0, 3])]),
    "sends to one that reduces": (four({0: WAIT, 1: call("send", 40, dst=2), 2: WAIT, 3: WAIT}), "hang", [("order", [1, 2])]),
    "both halves of a transfer": (four({0: call("send", 40, dst=1), 1: call("recv", 41, src=0), 2: WAIT, 3: WAIT}), "hang", [("in_communication", [0, 1])]),
    "receives from one that receives": (four({0: call("recv", 40, src=1), 1: call("recv", 41, src=2), 2: WAIT, 3: WAIT}), "hang", [("order", [1, 2])]),
    "receives from any": (four({0: call("recv", 40, src=-1), 1: WAIT, 2: WAIT, 3: WAIT}), "unknown", []),
    "a group that can be but one": (four(dict.fromkeys(range(4), call("all_reduce", group="sub")), layout=Layout(dp=4, pp=1, tp=1)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "a group named by its axis": (four({0: call("all_reduce", group="tp"), 1: call("broadcast", 40, "tp", src=0), 2: WORLD, 3: WORLD}, layout=TP), "hang", [("order", [0, 1])]),
    "a stage one line further": (four({0: WORLD, 1: WORLD, 2: WORLD, 3: call("all_reduce", 40, "world")}, layout=PIPE), "hang", [("order", [3])]),
    "the stages on lines of their own": (four({0: WORLD, 1: WORLD, 2: call("all_reduce", 40, "world"), 3: call("all_reduce", 40, "world")}, layout=PIPE), "hang", [("order", [0, 1, 2, 3])]),
    "one ran for a moment": (job([*ALL, moves(3, WAIT, WAIT)]), "hang", [("in_communication", [0, 1, 2, 3])]),
    "set-up polls": (job([*(still(r, INIT) for r in range(3)), moves(3, INIT, [Frame("poll", C10D, 99), *INIT])]), "hang", [("start_stall", [0, 1, 2, 3])]),
    "other group": (four({0: WORLD, 1: WORLD, 2: WORLD, 3: call("all_reduce", group="sub", code="all_reduce(x, group=tp_group)")}, layout=TP), "hang", [("mismatch", [3])]),
    "half a group": (four({0: call("all_reduce", code="f(tp_group)", group="sub"), 1: LOAD, 2: call("all_reduce", code="f(tp_group)", group="sub"), 3: call("all_reduce", code="f(tp_group)", group="sub")}, layout=TP), "hang", [("not_entered", [1])]),
    # ---- NCCL's RAS, stragglers
    "lost by RAS": (job(BLIND, ras=lost("dead")), "hang", [("unreachable", [3])]),
    "not lost by RAS": (job(BLIND, ras=lost("nocomm")), "unknown", []),
    "lost in another communicator": (job(BLIND, ras=lost("missing", 2)), "hang", [("unreachable", [])]),
    "RAS where stacks say who": (job([*ALL, still(3, LOAD)], ras=lost("dead")), "hang", [("not_entered", [3])]),
    "fewer by RAS": (job(BLIND, ras=fewer(4, *FEW)), "hang", [("not_entered", [3])]),
    "fewer in another communicator": (job(BLIND, ras=fewer(3, *FEW)), "hang", [("not_entered", [])]),
    "half are fewer by RAS": (job(BLIND, ras=fewer(4, RasCounts("", 9, 2), RasCounts("", 8, 2, [2, 3]))), "hang", [("not_entered", [2, 3])]),
    "RAS alone, all equal": (job([], ras=ras(RasCommunicator("ab", 4))), "unknown", []),
    "RAS alone, one behind": (job([], ras=fewer(4, *FEW)), "unknown", []),
    "RAS alone, one far behind": (job([], ras=fewer(4, FEW[0], RasCounts("all_reduce", 7, 1, [3]))), "hang", [("not_entered", [3])]),
    "RAS alone, one count": (job([], ras=fewer(4, FEW[1])), "unknown", []),
    "RAS alone, one behind for long": (job([], nodes=snapshots((0.0, 8), (2.0, 8))), "hang", [("not_entered", [3])]),
    "RAS alone, one was behind and went on": (job([], nodes=snapshots((0.0, 7), (9.0, 8))), "unknown", []),
    "RAS alone, two answers of one moment": (job([], nodes=snapshots((0.0, 8), (1.9, 8))), "unknown", []),
    "fewer, and not named": (job(BLIND, ras=fewer(4, FEW[0], RasCounts("all_reduce", 8, 1))), "unknown", []),
    "straggler": (job([moves(r, OTHER, LOAD) for r in range(4)], slowest=0, waited={0: 4, 1: 61, 2: 60, 3: 65}, waited_s=30.0), "slow", [("slow", [0])]),
    "straggler in a checkpoint": (job([*(moves(r, OTHER, LOAD) for r in range(3)), moves(3, OTHER, SAVE)], slowest=3, waited={0: 60, 1: 61, 2: 89, 3: 4}, waited_s=30.0), "slow", [("slow", [3])]),
    "two ways without members": (four({0: WAIT, 1: WAIT, 2: WAIT, 3: call("broadcast", 40)}), "hang", [("order", [3])]),
    "straggler alone": (job([moves(r, OTHER, LOAD) for r in range(4)], slowest=2, waited={2: 4}, waited_s=30.0), "healthy", []),
    "straggler in a hang": (job([*ALL, still(3, LOAD)], slowest=0, waited={0: 4, 1: 61}, waited_s=30.0), "hang", [("not_entered", [3])]),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_who_is_the_cause(name: str) -> None:
    capture, status, causes = TABLE[name]
    found = diagnose(capture)
    told = [(c.kind, c.ranks) for c in found.causes or found.open]
    assert (found.status, told) == (status, causes)


def test_a_thread_that_is_at_work_with_the_gil_is_captured_again() -> None:
    found = [
        TABLE[f"asks for {name}"][0]
        for name in ("the GIL of a thread at work", "it, and the thread sleeps")
    ]
    assert [pause_s(capture, diagnose(capture)) for capture in found] == [8.0, 0.0]


def everything() -> str:
    return (
        "\n".join(line for name, row in TABLE.items() for line in told(name, diagnose(row[0])))
        + "\n"
    )


def test_all_that_is_said() -> None:
    assert everything() == SAID.read_text()


if __name__ == "__main__":
    SAID.parent.mkdir(exist_ok=True)
    SAID.write_text(everything())
