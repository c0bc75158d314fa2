"""A few ranks at work at both samples while all others sleep in their waits; and what is none."""

from __future__ import annotations

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.health import Reason, why_unknown
from hangdoctor.diagnosis.third_sample import pause_s, why_more
from hangdoctor.diagnosis.view import motion_of
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Wait, WaitOn
from hangdoctor.model.operations import Mark, RankOps
from hangdoctor.stacks.rank_thread import rank_thread
from tests.support.captures import (
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

TORCH = "/v/site-packages/torch/"
STEP = ("step", "/app/train.py", 30)
BACKWARD = stack(("_engine_run_backward", TORCH + "autograd/graph.py", 979), STEP, MAIN)
PICTURE = ("dump_grid", "/app/train.py", 18)
WORK = stack(PICTURE, MAIN)
TIMES = (0.0, 1.0)


def moving(
    rank: int, frames: tuple[list[Frame], list[Frame]], cpu_s: float, state: str = "S"
) -> RankCapture:
    """A rank whose thread ran between the samples, and used so much of the CPU."""
    threads = [
        thread(seen, state=state, switches=1 + 90 * n, cpu_s=cpu_s * n)
        for n, seen in enumerate(frames)
    ]
    return captured(
        rank, [sample(at, t, state=state) for at, t in zip(TIMES, threads, strict=True)]
    )


def in_backward(cpu_s: float = 0.01) -> list[RankCapture]:
    """Three ranks in another iteration at each sample."""
    later = stack(("_engine_run_backward", TORCH + "autograd/graph.py", 979), STEP, MAIN)
    later[1].values, BACKWARD[1].values = {"step": 8}, {"step": 7}
    return [moving(rank, (BACKWARD, later), cpu_s) for rank in range(3)]


def test_who_works_at_both_samples_while_all_others_sleep_is_slow() -> None:
    said = judged(*in_backward(), moving(3, (WORK, WORK), cpu_s=0.4, state="R"))
    assert (said.status, causes(said)) == ("slow", [("slow", [3])])
    assert said.causes[0].where.frame == "dump_grid (/app/train.py:18)"
    assert "Ranks 0-2 are waiting in gradient all_reduce" in said.summary


def test_one_sample_or_a_little_work_accuses_no_rank() -> None:
    elsewhere = moving(3, (WORK, WAIT), cpu_s=0.4)
    little = moving(3, (WORK, WORK), cpu_s=0.03)
    some = moving(3, (WORK, WORK), cpu_s=0.15, state="R")  # the others are in another iteration
    busy_too = in_backward(cpu_s=0.3)
    for ranks in (
        [*in_backward(), elsewhere],
        [*in_backward(), little],
        [*in_backward(), some],
        [*busy_too, moving(3, (WORK, WORK), cpu_s=0.4, state="R")],
    ):
        assert judged(*ranks).status in ("healthy", "unknown"), ranks


def test_a_wait_in_the_records_is_not_denied() -> None:
    ranks = [moving(rank, (WORK, WORK), cpu_s=0.4, state="R") for rank in range(4)]
    case = open_case(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4, taken=1.0))
    assert why_unknown(case).reason is Reason.NONE_WAITS
    said = why_unknown(case, [Wait([1], WaitOn("world", "all_reduce"), [0])])
    assert (said.reason, said.ranks, said.others) == (Reason.SOME_WAIT, (1,), (0, 2, 3))


def test_the_depth_of_a_recursion_is_no_progress() -> None:
    call = ("distance", "/app/train.py", 16)
    shallow, deep = stack(*[call] * 3, MAIN), stack(*[call] * 9, MAIN)
    assert motion_of(moving(0, (shallow, deep), cpu_s=0.9), 9) == "running"
    assert motion_of(moving(0, (deep, WORK), cpu_s=0.9), 9) == "moved"


def test_a_thread_that_watches_is_not_where_a_backward_is() -> None:
    started = [("_bootstrap", "/usr/lib/python3.11/threading.py", 995)]
    watching = thread(stack(("watch", "/app/watch.py", 4), *started), tid=10, name="watch")
    main = thread(BACKWARD, switches=4)
    assert rank_thread([main, watching])[0] is main
    hook = thread(stack(("hook", "/app/hooks.py", 4)), tid=11, name="autograd")
    assert rank_thread([main, watching, hook])[0] is hook


def test_a_library_loop_that_wakes_now_and_then_is_not_where_the_training_is() -> None:
    ray = "/opt/target/ray/_private/worker.py"  # as `pip install --target` has it
    main = thread(stack(("main_loop", ray, 1069)), switches=8)
    training = thread(stack(("get", ray, 3009), ("loop", "/app/train.py", 33)), tid=10, name="t")
    found, place = rank_thread([main, training])
    assert found is training and place.frame is not None and place.frame.name == "loop"


def six(rank: int, frames: list[list[Frame]], states: str = "SSSSSS") -> RankCapture:
    """A rank at six moments, asleep at each unless told, which used no CPU to speak of."""
    times = (0.0, 1.0, 3.1, 4.1, 6.3, 7.3)
    threads = zip(frames, states, strict=True)
    seen = [thread(at, switches=9 * n, state=state) for n, (at, state) in enumerate(threads)]
    return captured(rank, [sample(s, t) for s, t in zip(times, seen, strict=True)])


def test_who_is_at_work_in_six_samples_while_all_others_wait_is_slow() -> None:
    """It sleeps, as in throttled reads: the CPU shows nothing, and two samples may be chance."""
    reads = stack(("read_shard", "/app/data.py", 7), MAIN)
    waiting = [six(rank, [BACKWARD] * 6) for rank in range(3)]
    ranks = [*waiting, six(3, [reads, WORK] * 3)]
    said = judged(*ranks)
    assert (said.status, causes(said)) == ("slow", [("slow", [3])])
    assert "in all 6 samples over 7.3 s it was at work" in said.summary
    elsewhere = judged(*waiting, six(3, [reads, WORK, reads, BACKWARD, reads, WORK]))
    assert elsewhere.causes == [], "at one of them it waited, too"
    gradients = six(3, [reads, WORK, reads, BACKWARD, reads, WORK], states="SSSRSS")
    assert causes(judged(*waiting, gradients)) == [("slow", [3])], "it computed its own"
    for rank in ranks:
        rank.samples = rank.samples[:2]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4, taken=1.0)
    assert causes(diagnose(capture)) == [] and why_more(capture, diagnose(capture))
    capture.nodes[0].ranks.pop()
    assert not why_more(capture, diagnose(capture)), "one rank was not seen"


LOADER = TORCH + "utils/data/dataloader.py"
EPOCH = ("epoch", "/app/train.py", 51)


def test_a_slow_rank_that_waits_for_its_loaders_workers_is_said_to() -> None:
    later = stack(("_engine_run_backward", TORCH + "autograd/graph.py", 979), STEP, MAIN)
    polls = ("_poll", "/usr/lib/python3.11/multiprocessing/connection.py", 423)
    loads = stack(polls, ("_try_get_data", LOADER, 1295), EPOCH, MAIN)
    waiting = [six(rank, [BACKWARD, later] * 3) for rank in range(3)]
    said = judged(*waiting, six(3, [loads] * 6))
    assert (said.status, causes(said)) == ("slow", [("slow", [3])])
    assert "it was without data from its loader while all others waited" in said.summary
    assert "it is waiting for its data loader in epoch (train.py:51)" in said.summary
    assert "py-spy top --subprocesses --pid" in said.causes[0].advice


def test_a_loader_without_workers_runs_the_users_own_code() -> None:
    later = stack(("_engine_run_backward", TORCH + "autograd/graph.py", 979), STEP, MAIN)
    reads = stack(("tokenize", "/app/data.py", 9), ("_next_data", LOADER, 760), EPOCH, MAIN)
    waiting = [six(rank, [BACKWARD, later] * 3) for rank in range(3)]
    said = judged(*waiting, six(3, [reads] * 6))
    assert "it is still working in tokenize (data.py:9)" in said.summary
    assert "--subprocesses" not in said.causes[0].advice


def test_a_rank_that_computes_or_sleeps_may_step_on() -> None:
    """As long as the job's own iterations show, else for some seconds; not where it is blocked."""
    waiting = [still(rank, WAIT) for rank in range(3)]
    computes = moving(3, (WORK, WORK), cpu_s=0.9, state="R")
    for culprit, pause in ((computes, 8.0), (still(3, WORK), 0.0), (sleeps(3), 8.0)):
        capture = JobCapture(
            "j", [NodeCapture("n1", ranks=[*waiting, culprit])], [], 4, taken=100.0
        )
        assert pause_s(capture, diagnose(capture)) == pause, culprit
    for begun, pause in (([70.0, 80.0, 90.0, 95.0], 8.0), ([50.0, 51.0, 52.0], 0.0)):
        marks = [Mark("iteration", at) for at in begun]
        computes.ops = RankOps(3, 4, marks=marks)
        capture.nodes[0].ranks[3] = computes
        assert pause_s(capture, diagnose(capture)) == pause, begun


def sleeps(rank: int) -> RankCapture:
    frames = stack(("read_remote", "/app/data.py", 9), MAIN)
    return captured(rank, [sample(at, thread(frames, syscall="clock_nanosleep")) for at in TIMES])


def test_who_comes_back_from_its_waits_late_for_want_of_the_gil_is_slow() -> None:
    """In two of six samples its main thread is in a collective, and another thread has the GIL."""
    waiting = [six(rank, [BACKWARD] * 6) for rank in range(3)]
    saver = thread(stack(("save", "/app/stats.py", 34)), tid=20, name="saver", state="R", gil=True)
    late = six(3, [WORK, WAIT, WORK] * 2)
    for one in late.samples:
        one.threads.append(saver)
    [cause] = judged(*waiting, late).causes
    assert (cause.kind, cause.ranks) == ("slow", [3])
    assert "its thread 'saver' has the GIL in save (stats.py:34)" in cause.summary
    assert "in 6 of 6 samples" in " ".join(clue.says for clue in cause.evidence)
    for one in late.samples[:3]:
        one.threads.pop()
    assert judged(*waiting, late).causes == [], "no thread had it at half of them"


def naps(rank: int, frames: list[list[Frame]]) -> RankCapture:
    """It wakes up between its sleeps, and was seen in them alone, or elsewhere in some sample."""
    seen = [thread(at, switches=9 * n, syscall="clock_nanosleep") for n, at in enumerate(frames)]
    return captured(rank, [sample(float(n), one) for n, one in enumerate(seen)])


def test_ranks_that_all_slept_at_their_lines_are_looked_at_again() -> None:
    step = stack(("step", "/app/train.py", 33), MAIN)
    asleep = [naps(rank, [step, step]) for rank in range(4)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=asleep)], [], 4, taken=1.0)
    assert diagnose(capture).status == "unknown"
    assert "asleep at their lines" in why_more(capture, diagnose(capture))
    capture.nodes[0].ranks = [naps(rank, [step, WORK, step]) for rank in range(4)]
    assert diagnose(capture).status == "healthy"
    assert why_more(capture, diagnose(capture)) == ""
    capture.nodes[0].ranks = [
        naps(0, [step, WORK, step]),
        *(naps(r, [step] * 3) for r in (1, 2, 3)),
    ]
    assert "asleep at their lines" in why_more(capture, diagnose(capture)), "one went on"
    capture.nodes[0].ranks = [naps(rank, [step] * 6) for rank in range(4)]
    assert diagnose(capture).status == "unknown"
    assert why_more(capture, diagnose(capture)) == "", "enough is enough"
    nobody = JobCapture("j", [], [], 4, taken=1.0)
    assert why_more(nobody, diagnose(nobody)) == "", "no node answered"
    capture.nodes[0].ranks = [*asleep[:3], still(3, step)]
    assert why_more(capture, diagnose(capture)) == "", "one does not run at all"
