"""The watchdog against simulated jobs: half an hour passes in milliseconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec

from hangdoctor.clock import FakeClock
from hangdoctor.transport.messages import RankNow
from hangdoctor.watch.stall_watch import WORKING, Learned, Settings, Stall, StallWatch


class FakeJob:
    """Eight ranks on four nodes. `plan` yields (seconds until the next progress, phase, busy
    meanwhile).
    """

    def __init__(
        self, plan: Iterator[tuple[float, str, bool]], watchdog: StallWatch, box: bool = True
    ) -> None:
        self.clock = FakeClock()
        self.plan, self.dog, self.box = plan, watchdog, box
        self.event, self.phase, self.busy = 0.0, "", False
        self.next = 0.0
        self.deaf: set[int] = set()

    def advance(self) -> None:
        now = self.clock.monotonic()
        while self.next <= now:
            self.event = self.next
            seconds, self.phase, self.busy = next(self.plan)
            self.next = self.event + seconds

    def run(
        self, seconds: float, on_tick: Callable[[float], None] = lambda now: None
    ) -> list[Stall]:
        """Let time pass second by second, as the collector sees it; the stalls that were declared."""
        found = []
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(1.0)
            now = self.clock.monotonic()
            self.advance()
            for node in set(range(4)) - self.deaf:
                ranks = [
                    RankNow(
                        r,
                        idle_s=max(0.0, now - self.event),
                        phase=self.phase,
                        busy=self.busy and r == 0,
                        box=self.box,
                    )
                    for r in (2 * node, 2 * node + 1)
                ]
                self.dog.report(now, ranks)
            on_tick(now)
            stall = self.dog.tick(now)
            if stall is not None:
                found.append(stall)
        return found


def steady(step: float = 0.2) -> Iterator[tuple[float, str, bool]]:
    while True:
        yield step, "", False


def then_stuck(step: float, after: float) -> Iterator[tuple[float, str, bool]]:
    passed = 0.0
    while passed < after:
        passed += step
        yield step, "", False
    yield 1e9, "", False


def restless(seed: int, step: float, marks: bool) -> Iterator[tuple[float, str, bool]]:
    """Slow first steps and a compilation, steps up to five times as slow, evaluations and
    checkpoints, with or without marks.
    """
    chance = random.Random(seed)
    for _ in range(3):
        yield 20 * chance.random(), "", True
    yield 70.0, "", True  # compiling
    while True:
        for _ in range(int(120 / step)):
            yield (
                step * (5 if chance.random() < 0.02 else chance.uniform(0.8, 1.3)),
                "train" if marks else "",
                False,
            )
        for _ in range(5):
            yield chance.uniform(2, 8), "evaluation" if marks else "", not marks
        yield chance.uniform(30, 60), "checkpoint" if marks else "", not marks


def test_half_an_hour_of_a_restless_job_raises_no_alarm() -> None:
    for seed in range(3):
        for step in (0.2, 1.0, 4.0):
            for marks in (True, False):
                job = FakeJob(restless(seed, step, marks), StallWatch(Settings()))

                def pause(now: float, job: FakeJob = job) -> None:
                    if (
                        int(now) == 900
                    ):  # the whole machine does not move for ten minutes: its clocks go on
                        job.clock.advance(600.0)
                        job.event += 600.0
                        job.next += 600.0

                assert job.run(1800, pause) == [], (seed, step, marks, job.dog.learned)
                assert job.dog.learned.warm


def test_a_fast_job_that_stops_is_seen_within_seconds_and_once() -> None:
    job = FakeJob(then_stuck(0.2, 60), StallWatch(Settings()))
    assert job.run(60) == []
    [stall] = job.run(600)
    assert 5 < stall.age_s < 9
    assert stall.phase == ""


def test_a_slow_job_gets_the_time_that_its_steps_need() -> None:
    job = FakeJob(then_stuck(10.0, 300), StallWatch(Settings()))
    [stall] = job.run(1000)
    assert 50 < stall.age_s < 70  # five times a step of 10 s is a slow step


def test_before_the_first_rhythm_the_bound_is_long() -> None:
    [stall] = FakeJob(then_stuck(1.0, 3), StallWatch(Settings())).run(400)
    assert stall.bound_s == Settings().start_s


def test_steps_are_a_rhythm_where_no_operation_is_seen_but_the_first() -> None:
    """DistributedDataParallel: the ranks' last recorded operation is init_process_group for ever,
    their optimizers step.
    """
    dog = StallWatch(Settings())
    found = []
    for tenth in range(10, 600):
        steps = min(tenth, 300) // 3
        idle = max(0.0, (tenth - 300) / 10)
        dog.report(
            tenth / 10,
            [
                RankNow(r, idle_s=idle, iteration=steps, op="init_process_group", box=True)
                for r in range(4)
            ],
        )
        stall = dog.tick(tenth / 10)
        found += [stall] if stall is not None else []
    assert dog.learned.warm and len(found) == 1 and found[0].age_s < 9


def test_setting_up_is_no_rhythm() -> None:
    dog = StallWatch(Settings())
    for second in range(1, 30):
        dog.report(
            float(second), [RankNow(r, op="store_wait", inside=True, box=True) for r in range(4)]
        )
    assert not dog.learned.warm
    for second in range(30, 45):
        dog.report(
            float(second), [RankNow(r, op="all_reduce", inside=True, box=True) for r in range(4)]
        )
    assert dog.learned.warm


def test_a_fixed_bound_holds_from_the_start() -> None:
    [stall] = FakeJob(then_stuck(1.0, 3), StallWatch(Settings(stall_after_s=20))).run(400)
    assert 20 < stall.age_s <= 22
    [stall] = FakeJob(then_stuck(1.0, 3), StallWatch(Settings(stall_after_s=900))).run(1000)
    assert stall.bound_s == 900  # also beyond the process groups' own time-out: it was asked for


def test_work_outside_of_operations_has_a_bound_of_its_own() -> None:
    def plan() -> Iterator[tuple[float, str, bool]]:
        for _ in range(200):
            yield 0.2, "", False
        yield 1e9, "", True  # a loop without an end

    [stall] = FakeJob(plan(), StallWatch(Settings())).run(400)
    assert stall.phase == WORKING
    assert 119 < stall.age_s < 125


def test_when_a_rank_is_lost_the_work_of_the_others_is_no_excuse() -> None:
    def plan() -> Iterator[tuple[float, str, bool]]:
        for _ in range(300):
            yield 0.2, "", False
        yield 1e9, "", True  # rank 0 spins, in vain

    for finished, bound in ((False, 6.0), (True, 120.0)):
        job = FakeJob(plan(), StallWatch(Settings()))
        job.run(62)
        job.deaf = {3}
        job.dog.report(
            job.clock.monotonic(),
            [RankNow(7, box=True, over=True, finished=finished), RankNow(6, box=True)],
        )
        [stall] = job.run(200)
        assert stall.bound_s == bound


def test_ranks_without_a_box_are_judged_slowly() -> None:
    [stall] = FakeJob(then_stuck(0.2, 60), StallWatch(Settings()), box=False).run(900)
    assert stall.bound_s == Settings().floor_blind_s


def test_when_no_agent_reports_nothing_is_said() -> None:
    job = FakeJob(steady(), StallWatch(Settings()))
    job.run(60)
    job.deaf = {0, 1, 2, 3}
    assert job.run(600) == []


def test_one_node_that_is_silent_does_not_hide_a_stall() -> None:
    job = FakeJob(then_stuck(0.2, 60), StallWatch(Settings()))
    job.run(60)
    job.deaf = {2}
    assert len(job.run(60)) == 1


def test_after_a_stall_the_job_is_watched_again_and_the_stall_is_not_learned() -> None:
    def plan() -> Iterator[tuple[float, str, bool]]:
        for _ in range(2):
            for _ in range(300):
                yield 0.2, "", False
            yield 100.0, "", False
        yield from steady()

    stalls = FakeJob(plan(), StallWatch(Settings())).run(500)
    assert [round(s.bound_s) for s in stalls] == [6, 6]


def test_a_recovery_in_fits_and_starts_is_not_learned_either() -> None:
    def plan() -> Iterator[tuple[float, str, bool]]:
        for _ in range(300):
            yield 0.2, "", False
        yield 30.0, "", False
        for _ in range(3):
            yield 4.0, "", False
        for _ in range(300):
            yield 0.2, "", False
        yield 1e9, "", False

    stalls = FakeJob(plan(), StallWatch(Settings())).run(300)
    assert [round(s.bound_s) for s in stalls] == [6, 6]


def test_a_false_alarm_teaches_it() -> None:
    def plan() -> Iterator[tuple[float, str, bool]]:
        for _ in range(6):
            for _ in range(300):
                yield 0.2, "", False
            yield 20.0, "", False

    job = FakeJob(plan(), StallWatch(Settings()))
    found: list[Stall] = []
    while job.clock.monotonic() < 400:
        found += job.run(1)
        if job.dog.stalled:
            job.dog.false_alarm(job.clock.monotonic())
    assert len(found) == 1


def test_what_it_learned_outlives_a_restart() -> None:
    job = FakeJob(steady(), StallWatch(Settings()))
    job.run(60)
    kept = msgspec.json.decode(msgspec.json.encode(job.dog.learned), type=Learned)
    again = FakeJob(then_stuck(0.2, 3), StallWatch(Settings(), kept))
    [stall] = again.run(30)
    assert stall.bound_s < 10


def test_a_clock_of_a_node_that_is_set_does_not_matter() -> None:
    """Reports carry ages, not times; an age beyond all measure is not progress and no harm."""
    job = FakeJob(steady(), StallWatch(Settings()))
    job.run(60)
    job.dog.report(job.clock.monotonic(), [RankNow(0, idle_s=3600.0)])
    assert job.run(60) == []


def test_ranks_that_have_left_are_not_waited_for() -> None:
    job = FakeJob(steady(), StallWatch(Settings()))
    job.run(60)
    now = job.clock.monotonic()
    job.dog.report(now, [RankNow(r, idle_s=0.0, over=True, finished=True) for r in range(8)])
    assert [s for s in (job.dog.tick(now + i) for i in range(1, 300)) if s] == []


def test_a_capture_comes_before_the_process_groups_give_up() -> None:
    for timeout, latest in ((600.0, 480.0), (1800.0, 1440.0), (60.0, 48.0), (15.0, 7.5)):
        job = FakeJob(
            then_stuck(0.5, 3), StallWatch(Settings(start_s=1e6))
        )  # does not move before there is a rhythm
        job.dog.heard(0.0, "n1", 7200.0)
        job.dog.heard(0.0, "n2", timeout)
        [stall] = job.run(2000)
        assert stall.bound_s == latest and "timeout comes soon" in stall.why
    [stall] = FakeJob(then_stuck(0.5, 3), StallWatch(Settings(start_s=1e6))).run(2000)
    assert stall.bound_s == 480  # unknown: NCCL's default


def test_a_pause_longer_than_a_time_out_that_was_seen_to_be_normal_stays_normal() -> None:
    def plan() -> Iterator[tuple[float, str, bool]]:
        while True:
            for _ in range(100):
                yield 0.5, "train", False
            yield 40.0, "train", False  # rank 0 writes, the others wait in a group that has hours

    dog = StallWatch(Settings())
    dog.heard(0.0, "n1", 30.0)
    job = FakeJob(plan(), dog)
    found: list[Stall] = []
    while job.clock.monotonic() < 1800:
        found += job.run(1)
        if dog.stalled:  # the capture shows no hang
            dog.false_alarm(job.clock.monotonic())
    assert [round(stall.bound_s) for stall in found] == [
        6,
        20,
    ]  # looked at twice while it is learned, then never again
    assert 40 < dog.bound("phase:train")[0] < 100


def test_a_collector_that_was_cut_off_takes_no_report_of_the_past_for_a_pause_of_the_job() -> None:
    """Five minutes without a network: agents say later what happened meanwhile, 64 reports a
    second, and one has nothing to say.
    """
    job = FakeJob(steady(), StallWatch(Settings()))
    assert job.run(60) == []
    known = job.dog.bound("phase:")
    job.deaf = {0, 1, 2, 3}
    assert job.run(300) == []
    missed = [float(late) for late in range(300, 0, -1)]
    while missed:
        job.clock.advance(1.0)
        now = job.clock.monotonic()
        missed = [late + 1 for late in missed]
        for late in missed[:64]:
            job.dog.report(now, [RankNow(r, idle_s=0.1, box=True) for r in range(6)], late)
        missed = missed[64:]
        job.dog.heard(now, "n3")  # its ranks stand since before: it is up to date at once
        assert job.dog.tick(now) is None
    job.deaf = set()
    assert job.run(60) == []
    assert job.dog.bound("phase:") == known
    job.plan, job.next = then_stuck(1e9, 1), job.clock.monotonic()
    [stall] = job.run(60)
    assert stall.age_s < 9


def test_ranks_that_were_stuck_before_the_first_sample_are_a_stall_but_not_before_the_other_nodes_are_heard() -> (
    None
):
    dog = StallWatch(Settings())
    dog.report(1000.0, [RankNow(0, idle_s=400.0, inside=True, box=True)])
    assert dog.tick(1000.5) is None
    dog.report(1001.0, [RankNow(1, idle_s=0.1, box=True)])  # another node: the job goes on
    for now in range(1001, 1060):
        dog.report(now, [RankNow(1, idle_s=0.1, box=True)])
        assert dog.tick(now) is None
    dog = StallWatch(Settings())
    found = []
    for now in range(1000, 1010):
        dog.report(
            now, [RankNow(r, idle_s=400.0 + now - 1000, inside=True, box=True) for r in range(2)]
        )
        found += [stall] if (stall := dog.tick(now)) else []
    assert [round(s.age_s) for s in found] == [404]


def test_a_report_that_takes_longer_on_its_way_is_no_progress() -> None:
    dog = StallWatch(Settings(stall_after_s=20))

    def hear(now: float, transit_s: float, **more: object) -> None:
        idle_s = now - transit_s - 100.0  # nothing has moved since 100
        dog.report(now, [RankNow(r, idle_s=idle_s, box=True, **more) for r in range(2)])

    for second in range(121, 128):
        hear(float(second), 0.001)
        dog.tick(float(second))
    assert dog.stalled
    hear(128.0, 0.2, inside=True)  # the machine is busy now, and a word of the rank has changed
    assert dog.stalled
    moved = RankNow(0, idle_s=0.3, box=True)
    dog.report(129.0, [moved])
    assert not dog.stalled
