"""Each pass on stacks, processes and RAS by a table: what was captured, who is the cause, and all that is said of it.

The kinds and ranks stand here; the rest is `tests/data/stack_passes/judged.txt`, which
`python -m tests.diagnosis.test_stack_passes` writes anew, to be read in the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    Process,
    ProcessSample,
    RankCapture,
    SilentNode,
)
from hangdoctor.model.layout import Layout
from hangdoctor.model.ras import RasCommunicator, RasCounts, RasProcess, RasRank, RasReport
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


def has_gil(rank: int, frames: list[Frame]) -> RankCapture:
    """A rank of which another thread runs with the GIL."""
    samples = [
        sample(at, thread(LOAD), thread(frames, tid=20, gil=True, state="R", switches=int(at)))
        for at in (0.0, 1.0)
    ]
    return captured(rank, samples)


def dead(rank: int, code: int | None) -> RankCapture:
    return captured(rank, [], gone=True, exit_code=code)


def blocked(rank: int, syscall: str, frames: list[Frame] = LOAD, **more: Any) -> RankCapture:
    """A rank that sleeps in a system call."""
    wchan = more.pop("wchan", "")
    samples = [sample(at, thread(frames, syscall=syscall, wchan=wchan)) for at in (0.0, 1.0)]
    return captured(rank, samples, **more)


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
SAVE = stack(("save_checkpoint", "/app/ckpt.py", 7), MAIN)
WORKER = stack(("_worker_loop", "/lib/multiprocessing/process.py", 3))
QUEUE = stack(("get", "/lib/multiprocessing/queues.py", 7), MAIN)
PDB = stack(("readline", "/lib/cmd.py", 7), ("set_trace", "/lib/pdb.py", 3), MAIN)
ASKS = stack(("main", "/app/train.py", 5), code="input('go on?')")
LOCK = stack(("fetch", "/app/data.py", 8), MAIN, code="with lock.acquire():")
RUNS = stack(("wait", "/lib/subprocess.py", 7), MAIN)
LOCKED = sample(1.0, thread(stack(("emit", "/x.py", 9), code="with self.lock:"), syscall="futex"))
OTHER = stack(("forward", "/app/model.py", 3), MAIN)
ALL = [still(r, WAIT) for r in range(3)]
WORLD = call("all_reduce", group="world")
HELD = [still(r, WORLD) for r in range(3)]
LIBRARY = stack(("wait", "/usr/lib/python3.11/threading.py", 3))
OTHER_BRANCH = [*WORLD[:-1], Frame("main", "/app/train.py", 9)]
N2 = [SilentNode("n2", "no answer", [3])]
TP = Layout(dp=2, pp=1, tp=2)


def ras(*communicators: RasCommunicator) -> RasReport:
    return RasReport(communicators=list(communicators))


def lost(state: str, size: int = 4) -> RasReport:
    return ras(RasCommunicator("ab", size, missing=[RasRank(3, RasProcess("h9", 7), state=state)]))


def fewer(size: int, *rows: RasCounts) -> RasReport:
    return ras(RasCommunicator("ab", size, differences=list(rows)))


FEW = (RasCounts("all_reduce", 9, 3), RasCounts("all_reduce", 8, 1, [3]))
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


Causes = list[tuple[str, list[int]]]
TABLE: dict[str, tuple[JobCapture, str, Causes]] = {
    # ---- beginning and end
    "late for set-up": (four({0: INIT, 1: INIT, 2: INIT, 3: LOAD}), "hang", [("start_stall", [3])]),
    "two late for set-up": (four({0: INIT, 1: INIT, 2: OTHER, 3: LOAD}), "hang", [("start_stall", [2]), ("start_stall", [3])]),
    "all in set-up": (four(dict.fromkeys(range(4), INIT)), "hang", [("start_stall", [0, 1, 2, 3])]),
    "one not there in set-up": (four(dict.fromkeys(range(3), INIT)), "hang", [("start_stall", [3])]),
    "two not there in set-up": (four(dict.fromkeys(range(2), INIT)), "hang", [("start_stall", [2, 3])]),
    "one silent in set-up": (four(dict.fromkeys(range(3), INIT), silent=N2), "hang", [("start_stall", [3])]),
    "stopped in set-up": (job([*(still(r, INIT) for r in range(3)), still(3, LOAD, "T")]), "hang", [("stopped", [3])]),
    "a later group": (four({0: NEW, 1: NEW, 2: WORLD, 3: WORLD}), "hang", [("order", [0, 1, 2, 3])]),
    "all in teardown": (four(dict.fromkeys(range(4), LEAVE)), "hang", [("end_stall", [0, 1, 2, 3])]),
    "left inside": (four({0: LEAVE, 1: LEAVE, 2: LEAVE, 3: LOAD}), "hang", [("end_stall", [3])]),
    "left inside in a collective": (four({0: LEAVE, 1: LEAVE, 2: LEAVE, 3: WAIT}), "hang", [("end_stall", [3])]),
    "left too soon": (four({0: WAIT, 1: WAIT, 2: WAIT, 3: LEAVE}), "hang", [("end_stall", [3])]),
    "ended too soon": (job([*ALL, dead(3, 0)]), "hang", [("dead", [3])]),
    "ended and leaving": (job([still(0, LEAVE), dead(1, 0), dead(2, 0), dead(3, 0)]), "hang", [("end_stall", [0])]),
    "as many ended as leave": (job([still(0, LEAVE), still(1, LEAVE), dead(2, 0), dead(3, 0)]), "hang", [("dead", [2, 3])]),
    "one ended badly": (job([still(0, LEAVE), dead(1, 0), dead(2, 0), dead(3, 1)]), "hang", [("dead", [1, 2]), ("dead", [3])]),
    # ---- processes
    "dead": (job([*ALL, dead(3, 1)]), "hang", [("dead", [3])]),
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
    "forked with a lock that it got": (job([*ALL, forks(LOCKED, sample(2.0, thread(OTHER)))]), "hang", [("not_entered", [3])]),
    "another program in a lock": (job([*ALL, forks(LOCKED, argv=("sh",))]), "hang", [("not_entered", [3])]),
    "a child that was not seen": (job([*ALL, forks()]), "hang", [("not_entered", [3])]),
    "another thread has the GIL": (job([*ALL, has_gil(3, OTHER)]), "hang", [("interpreter_lock", [3])]),
    "in a library": (job([*ALL, still(3, LIBRARY)]), "hang", [("not_entered", [3])]),
    "no sample": (job([*ALL, captured(3, [])]), "unknown", []),
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
    "data loader": (job([*ALL, still(3, BATCH)]), "hang", [("data_wait", [3])]),
    "queue with workers": (job([*ALL, still(3, QUEUE, children=[child("S", frames=WORKER)])]), "hang", [("data_wait", [3])]),
    "queue without": (job([*ALL, still(3, QUEUE)]), "hang", [("not_entered", [3])]),
    "checkpoint": (job([*ALL, still(3, SAVE)]), "hang", [("checkpoint_wait", [3])]),
    "busy": (job([*ALL, moves(3, OTHER, OTHER, cpu_s=0.9, states=("R", "R"))]), "hang", [("busy", [3])]),
    "moved": (job([*ALL, moves(3, OTHER, LOAD)]), "slow", [("slow", [3])]),
    "two outside": (four({0: WAIT, 1: WAIT, 2: LOAD, 3: LOAD}), "hang", [("not_entered", [2, 3])]),
    "two outside at two places": (four({0: WAIT, 1: WAIT, 2: LOAD, 3: SAVE}), "hang", [("not_entered", [2]), ("checkpoint_wait", [3])]),
    "no rank waits": (four(dict.fromkeys(range(4), LOAD)), "unknown", []),
    "one sleeps and none waits": (job([*(moves(r, OTHER, LOAD) for r in range(3)), still(3, SAVE)]), "hang", [("checkpoint_wait", [3])]),
    # ---- what holds it
    "debugger": (job([*ALL, still(3, PDB)]), "hang", [("not_entered", [3])]),
    "asks a person": (job([*ALL, blocked(3, "read(0 -> /dev/pts/1)", ASKS)]), "hang", [("not_entered", [3])]),
    "stopped child": (job([*ALL, blocked(3, "wait4", RUNS, children=[child("T")])]), "hang", [("not_entered", [3])]),
    "dead child": (job([*ALL, blocked(3, "wait4", RUNS, children=[child("Z", code=3)])]), "hang", [("not_entered", [3])]),
    "living child": (job([*ALL, blocked(3, "wait4", RUNS, children=[child("S")])]), "hang", [("not_entered", [3])]),
    "pipe": (job([*ALL, blocked(3, "read(5 -> pipe:[12])")]), "hang", [("not_entered", [3])]),
    "file lock": (job([*ALL, blocked(3, "flock(5 -> /data/lock)")]), "hang", [("not_entered", [3])]),
    "fifo": (job([*ALL, blocked(3, "openat", wchan="wait_for_partner")]), "hang", [("not_entered", [3])]),
    "lock": (job([*ALL, blocked(3, "futex", LOCK)]), "hang", [("not_entered", [3])]),
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
    "two receive": (four({0: call("recv", 31, src=1), 1: call("recv", 31, src=0), 2: WAIT, 3: WAIT}), "hang", [("p2p_unmatched", [0, 1])]),
    "two receive in a larger job": (five({0: WORLD, 1: WORLD, 2: WORLD, 3: call("recv", 31, src=4), 4: call("recv", 31, src=3)}), "hang", [("p2p_unmatched", [3, 4])]),
    "another branch": (five({0: WORLD, 1: WORLD, 2: WORLD, 3: call("recv", 40, src=4), 4: OTHER_BRANCH}), "hang", [("order", [4])]),
    "another branch among few": (job([still(r, f) for r, f in enumerate((WORLD, WORLD, call("recv", 40, src=3), OTHER_BRANCH))]), "hang", [("order", [2])]),
    "a message and a reduction of three": (job([still(r, f, world_size=3) for r, f in enumerate((WORLD, WORLD, call("recv", 40, src=0)))], world_size=3), "hang", [("order", [0, 2])]),
    "a message and a reduction of four": (four({0: WORLD, 1: WORLD, 2: WORLD, 3: call("recv", 40, src=0)}), "hang", [("order", [3])]),
    "other group": (four({0: WORLD, 1: WORLD, 2: WORLD, 3: call("all_reduce", group="sub", code="all_reduce(x, group=tp_group)")}, layout=TP), "hang", [("mismatch", [3])]),
    "half a group": (four({0: call("all_reduce", code="f(tp_group)", group="sub"), 1: LOAD, 2: call("all_reduce", code="f(tp_group)", group="sub"), 3: call("all_reduce", code="f(tp_group)", group="sub")}, layout=TP), "hang", [("not_entered", [1])]),
    # ---- NCCL's RAS, stragglers
    "lost by RAS": (job(BLIND, ras=lost("dead")), "hang", [("unreachable", [3])]),
    "not lost by RAS": (job(BLIND, ras=lost("nocomm")), "unknown", []),
    "lost in another communicator": (job(BLIND, ras=lost("missing", 2)), "hang", [("unreachable", [3])]),
    "RAS where stacks say who": (job([*ALL, still(3, LOAD)], ras=lost("dead")), "hang", [("not_entered", [3])]),
    "fewer by RAS": (job(BLIND, ras=fewer(4, *FEW)), "hang", [("not_entered", [3])]),
    "fewer in another communicator": (job(BLIND, ras=fewer(3, *FEW)), "hang", [("not_entered", [3])]),
    "half are fewer by RAS": (job(BLIND, ras=fewer(4, RasCounts("", 9, 2), RasCounts("", 8, 2, [2, 3]))), "hang", [("not_entered", [2, 3])]),
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
    assert (found.status, [(c.kind, c.ranks) for c in found.causes]) == (status, causes)


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
