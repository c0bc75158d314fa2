"""Captures without any record of operations: what states, stacks and their motion say of each rank,
and of the job.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.view import motion_of, view_job, view_rank
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    Process,
    RankCapture,
    SilentNode,
    ThreadSample,
)
from tests.support.captures import (
    C10D,
    LOAD,
    MAIN,
    WAIT,
    captured,
    causes,
    judged,
    sample,
    stack,
    still,
    thread,
)

WAITING = [still(r, WAIT) for r in range(3)]


def test_one_is_elsewhere_and_the_others_wait() -> None:
    said = judged(*WAITING, still(3, LOAD), took_s=1.23456)
    assert (said.status, causes(said)) == ("hang", [("not_entered", [3])])
    [cause] = said.causes
    assert cause.where.frame == "load_batch (/app/data.py:40)" and cause.where.op == "all_reduce"
    assert [(w.ranks, w.on.op) for w in said.waits] == [([0, 1, 2], "all_reduce")]
    assert said.took.capture_s == 1.235 and said.missing == []
    assert [(g.ranks, g.thread, [f.name for f in g.frames]) for g in said.stacks] == [
        ([0, 1, 2], "MainThread", ["main", "step", "all_reduce"]),
        ([3], "MainThread", ["main", "load_batch"]),
    ]
    assert [(r.rank, r.state) for r in said.ranks] == [(n, "S still") for n in range(4)]


def test_a_loop_that_tries_again_is_busy_with_its_exception() -> None:
    def trying(*inner: tuple[str, str, int]) -> list[Frame]:
        frames = stack(*inner, ("read", "/app/data.py", 40 + len(inner)), MAIN)
        frames[len(inner)].catches = "ConnectionError"
        return frames

    connect = trying(("create_connection", "/usr/lib/python3.11/socket.py", 7))
    samples = [sample(0.0, thread(connect)), sample(1.0, thread(trying(), switches=9))]
    [cause] = judged(*WAITING, captured(3, samples)).causes
    assert (cause.kind, cause.ranks) == ("busy", [3])
    assert "retrying after ConnectionError in read (data.py:40)" in cause.summary
    # Blocked in one attempt, it has not tried again
    [cause] = judged(*WAITING, still(3, connect)).causes
    assert cause.kind == "not_entered" and "retrying" not in cause.summary
    # Elsewhere at the first sample, it is on its way
    samples = [sample(0.0, thread(LOAD)), sample(1.0, thread(trying(), switches=9))]
    assert causes(judged(*WAITING, captured(3, samples))) == [("slow", [3])]


def test_where_no_system_call_is_known_the_line_says_what_blocks() -> None:
    locked = stack(("locked", "/app/registry.py", 19), MAIN, code="fcntl.flock(f, fcntl.LOCK_EX)")
    [cause] = judged(*WAITING, still(3, locked)).causes
    assert "blocked in flock in locked (registry.py:19)" in cause.summary
    moves = captured(3, [sample(0.0, thread(LOAD)), sample(1.0, thread(locked, switches=9))])
    [cause] = judged(*WAITING, moves).causes
    assert cause.kind == "slow" and "flock" not in cause.summary


BARRIER = [Frame("barrier", C10D, 3, group="world"), Frame("main", "/app/train.py", 8)]


def in_group(op: str, line: int, group: str, code: str = "reduce(x, group=dp)") -> list[Frame]:
    """A call by a function that main calls at this line."""
    step = Frame("reduce_gradients", "/app/train.py", 31, code)
    return [Frame(op, C10D, 9, group=group), step, Frame("main", "/app/train.py", line)]


def test_one_rank_behind_in_a_smaller_group_may_wait_for_one_that_is_past_it() -> None:
    """It called once more than the other member of the group, or that one once less: no side is named."""
    past = [still(rank, BARRIER) for rank in range(3)]
    said = judged(*past, still(3, in_group("all_reduce", 6, "sub")))
    assert (said.status, said.causes) == ("unknown", [])
    assert "ranks 0-2 wait in barrier" in said.summary and "rank 3 in all_reduce" in said.summary
    assert "hangdoctor run" in said.summary
    # Called from one line, nothing shows which comes first.
    beside = judged(*past, still(3, in_group("all_reduce", 8, "sub")))
    assert (beside.status, beside.causes) == ("unknown", [])
    # Ahead of the others it has left the barrier out, and in a call of all ranks the others are missing.
    ahead = judged(*past, still(3, in_group("all_reduce", 9, "sub")))
    assert causes(ahead) == [("order", [3])]
    for group, code in (("world", ""), ("sub", "all_gather(x, group)"), ("sub", "f(group=WORLD)")):
        of_all = judged(*past, still(3, in_group("all_gather", 6, group, code)))
        assert causes(of_all) == [("order", [3])]


def test_halves_in_different_operations_are_not_all_named() -> None:
    halves = [still(0, BARRIER), still(1, BARRIER)]
    halves += [still(2, in_group("all_reduce", 6, "sub")), still(3, in_group("send", 6, "sub"))]
    said = judged(*halves)
    assert (said.status, said.causes) == ("unknown", [])
    assert "rank 2 in all_reduce (train.py:31), rank 3 in send" in said.summary


def mpi(code: str, line: int) -> list[Frame]:
    return stack(("exchange", "/app/heat.py", line), ("main", "/app/heat.py", 50), code=code)


def test_the_line_of_an_mpi_call_says_which_rank_it_waits_for() -> None:
    """Ranks 2 and 3 wait for one another; 0 and 1 behind them."""
    halo = mpi("comm.Sendrecv(top, dest=rank - 1, recvbuf=low, source=rank + 1)", 24)
    more = mpi("comm.Recv(row, source=(rank + 1) % size, tag=TAG + 1)", 30)
    last = mpi("comm.Sendrecv(low, dest=4 - 5, recvbuf=top, source=rank - 1)", 25)
    said = judged(still(0, halo), still(1, halo), still(2, more), still(3, last))
    assert causes(said) == [("p2p_unmatched", [2, 3])]
    assert "rank 2 in Recv in exchange (heat.py:30), rank 3 in Sendrecv" in said.summary
    assert "Compare heat.py:30 with heat.py:25" in said.advice
    # A line that names its peer by a variable says nothing here: the reader of stacks knows those
    hidden = mpi("comm.Recv(row, source=self.below)", 30)
    said = judged(still(0, halo), still(1, halo), still(2, hidden), still(3, last))
    assert [2, 3] not in [ranks for _, ranks in causes(said)]


def test_lines_of_pipeline_stages_are_no_order() -> None:
    file = "/v/site-packages/torch/distributed/pipelining/schedules.py"

    def stage(line: int) -> list[Frame]:
        wait = ("_wait_batch_p2p", file, 683)
        return stack(wait, ("step", "/app/train.py", line), MAIN, code="w.wait()")

    said = judged(*[still(r, stage(line)) for r, line in enumerate((24, 28, 28, 26))])
    assert (said.status, causes(said)) == ("unknown", [])
    barrier = stack(("barrier", C10D, 9), ("step", "/app/train.py", 40), MAIN)
    said = judged(*[still(r, stage(24 + r)) for r in range(3)], still(3, barrier))
    assert [ranks for _, ranks in causes(said)] == [[3]]


ACCELERATE = "/v/site-packages/accelerate/utils/operations.py"


def test_a_call_by_a_framework_is_named_by_the_users_line() -> None:
    inside = [("_gather_one", ACCELERATE, 335), ("gather", ACCELERATE, 400)]
    evaluate = ("evaluate", "/app/train.py", 88)
    wait = stack(("all_gather", C10D, 9), *inside, evaluate, MAIN)
    poll = stack(*[("poll", ACCELERATE, line) for line in range(5)], evaluate, MAIN)
    [cause] = judged(*[still(r, wait) for r in range(3)], still(3, poll)).causes
    assert cause.where.frame == "evaluate (/app/train.py:88)"
    assert "evaluate (train.py:88)" in cause.summary and "operations.py" not in cause.summary
    [at] = [e.says for e in cause.evidence if e.ranks == [3] and "poll" in e.says]
    assert at.startswith("poll (utils/operations.py:0)")
    assert at.endswith("< ... < evaluate (app/train.py:88)")
    # All in one call: the sentence and the evidence have the two frames
    [cause] = judged(*[still(r, wait) for r in range(4)]).causes
    assert cause.where.frame == "evaluate (/app/train.py:88)"
    said = "_gather_one (utils/operations.py:335), called from evaluate (app/train.py:88)"
    assert any(said in e.says for e in cause.evidence)


def test_two_operations_of_a_framework_below_one_line_are_two() -> None:
    fit = ("fit", "/app/train.py", 88)
    loop = "/v/site-packages/lightning/loops.py"
    train = stack(("all_reduce", C10D, 9), ("advance", loop, 7), ("run", loop, 5), fit)
    validate = stack(("all_reduce", C10D, 9), ("advance", loop, 9), ("run", loop, 5), fit)
    said = judged(*[still(r, train) for r in range(3)], still(3, validate))
    assert causes(said) != [("in_communication", [0, 1, 2, 3])]


@pytest.mark.parametrize(
    ("culprit", "kind"),
    [
        (still(3, LOAD, "T"), "stopped"),
        (still(3, LOAD, frozen=True), "stopped"),
        (still(3, LOAD, "t", tracer=7), "stopped"),
        (still(3, LOAD, "D"), "io_wait"),
        (captured(3, [], gone=True, exit_code=-9), "dead"),
        (still(3, WAIT, "T"), "stopped"),
    ],
)
def test_what_is_wrong_with_the_process_itself(culprit: RankCapture, kind: str) -> None:
    said = judged(*WAITING, culprit)
    assert (said.status, causes(said)) == ("hang", [(kind, [3])])


def test_stopped_in_one_sample_only_is_not_stopped() -> None:
    samples = [sample(0.0, thread(LOAD), state="T"), sample(1.0, thread(LOAD), state="S")]
    assert causes(judged(*WAITING, captured(3, samples))) == [("not_entered", [3])]
    samples = [sample(0.0, thread(LOAD, state="D"), state="D"), sample(1.0, thread(LOAD))]
    assert causes(judged(*WAITING, captured(3, samples))) == [("not_entered", [3])]


def moving(rank: int) -> RankCapture:
    other = stack(("forward", "/app/model.py", 3), MAIN)
    samples = [sample(0.0, thread(LOAD)), sample(1.0, thread(other, switches=7, cpu_s=0.5))]
    return captured(rank, samples)


def test_all_that_move_are_healthy_and_some_are_not_the_whole() -> None:
    ranks = [moving(r) for r in range(4)]
    assert judged(*ranks).status == "healthy" and judged(*ranks).causes == []
    assert judged(*ranks[:3]).status == "unknown"
    assert judged(*ranks[:3], silent=[SilentNode("n2", "no answer", [3])]).status == "unknown"
    assert judged(*ranks[:3], captured(3, [], gone=True, exit_code=1)).status != "healthy"


def test_nothing_was_captured() -> None:
    said = diagnose(
        JobCapture("j", [], [SilentNode("n2", "no answer", [0]), SilentNode("", "no dump", [1])], 2)
    )
    assert said.status in ("unknown", "hang")
    missing = [(m.ranks, m.node, m.what, m.why) for m in said.missing]
    assert ([0], "n2", "node", "no answer") in missing and (
        [1],
        None,
        "dumps",
        "no dump",
    ) in missing


def test_a_rank_without_a_stack_is_missing_one() -> None:
    blind = captured(
        3, [sample(0.0, stack_error="not permitted"), sample(1.0, stack_error="not permitted")]
    )
    said = judged(*WAITING, blind)
    assert [(m.ranks, m.what, m.why) for m in said.missing] == [([3], "stack", "not permitted")]
    assert {r.rank: r.place for r in said.ranks}[3] == "no stack"
    assert [g.ranks for g in said.stacks] == [[0, 1, 2]]


# --------------------------------------------------------------------------- motion


def pair(before: ThreadSample | None, after: ThreadSample | None, seconds: float = 1.0) -> Process:
    samples = [sample(at, *([t] if t else [])) for at, t in ((0.0, before), (seconds, after))]
    return Process(9, samples=samples)


SAME = thread(LOAD)
LATER = stack(("load_batch", "/app/data.py", 41), MAIN)


@pytest.mark.parametrize(
    ("before", "after", "motion"),
    [
        (SAME, SAME, "still"),
        (SAME, thread(LOAD, switches=2), "stirred"),
        (SAME, thread(LATER, switches=2), "looping"),
        (SAME, thread(WAIT), "moved"),
        (thread(LOAD, switches=-1), SAME, "still"),
        (thread(LOAD, switches=-1), thread(LOAD, cpu_s=0.01), "unknown"),
        (thread(LOAD, switches=0), thread(LOAD, switches=0), "still"),
        (SAME, thread(LOAD, cpu_s=0.9, switches=2), "running"),
        (thread(LOAD, state="R"), thread(LOAD, state="R", switches=2), "running"),
        (SAME, None, "unknown"),
        (None, SAME, "unknown"),
        (SAME, thread([], switches=2), "stirred"),
        (thread(LOAD, state="R"), thread(LOAD, switches=2), "stirred"),
    ],
)
def test_motion(before: ThreadSample | None, after: ThreadSample | None, motion: str) -> None:
    assert motion_of(pair(before, after), 9) == motion
    assert motion_of(Process(9, samples=[sample(0.0, SAME)]), 9) == "unknown"
    assert motion_of(pair(SAME, SAME), 8) == "unknown"


def test_a_view_is_of_the_last_sample_that_has_a_stack() -> None:
    view = view_rank(
        captured(
            0, [sample(0.0, thread(LOAD)), sample(1.0, thread([]), state="R", stack_error="late")]
        )
    )
    assert (
        [f.name for f in view.path] == ["main", "load_batch"]
        and view.stack_error == ""
        and view.state == "R"
    )
    gone = view_rank(still(0, LOAD, gone=True))
    assert gone.path == [] and gone.gone and not gone.stopped and not gone.waits
    assert view_rank(captured(0, [])).state == "" and not view_rank(captured(0, [])).stopped


def test_of_a_rank_that_two_nodes_claim_the_living_one_counts() -> None:
    job = JobCapture(
        "j",
        [
            NodeCapture("n1", ranks=[captured(0, [], gone=True)]),
            NodeCapture("n2", ranks=[still(0, LOAD, pid=99)]),
        ],
    )
    assert [v.pid for v in view_job(job)] == [99]


def test_a_stack_of_the_main_thread_that_was_lost_once_is_taken_from_the_other_sample() -> None:
    """As of a rank that computes, whose frames change while they are read."""
    busy = still(0, [Frame("spawn", "/app/env.py", 17), Frame("main", "/app/rl.py", 60)])
    first, second = busy.samples[0], busy.samples[-1]
    other = ThreadSample(busy.pid + 1, "writer", frames=[Frame("run", "/app/log.py", 9)])
    first.threads = [*first.threads, other]
    busy.samples = [first, structs.replace(second, threads=[other])]
    view = view_rank(busy)
    assert view.thread is not None and view.thread.tid == busy.pid
    assert view.place.frame is not None and view.place.frame.name == "spawn"


def test_where_all_send_and_none_receives_no_rank_is_wrong_alone() -> None:
    ring = [
        Frame("exchange", "/app/solver.py", 27, "self.comm.Send(row, dest=self.right)"),
        Frame("main", "/app/train.py", 9),
    ]
    said = judged(*(still(r, ring) for r in range(4)))
    assert (said.status, causes(said)) == ("unknown", [])
    assert "ranks 0-3 all wait in Send in exchange (solver.py:27) and none receives" in said.summary
