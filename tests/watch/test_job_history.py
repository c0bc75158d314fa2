"""The recorded progress of a job: steps, stalls and gaps over restarts, suspensions and clocks that are set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hangdoctor.clock import FakeClock
from hangdoctor.collector import history_file
from hangdoctor.collector.core import Core, Settings
from hangdoctor.collector.progress_log import ProgressLog
from hangdoctor.errors import CollectorError
from hangdoctor.transport.messages import Hello, RankNow, Report, encode
from hangdoctor.watch.job_history import SPANS, History, Kept, KeptRing, Moment
from hangdoctor.watch.stall_watch import Settings as WatchSettings
from hangdoctor.watch.stall_watch import StallWatch
from hangdoctor.watch.step_counter import StepCounter
from hangdoctor.web.time_axis import HistoryAnswer, time_axis

WALL = 1_700_000_005.0  # in the middle of a bucket
AXIS = tuple(SPANS)


class Job:
    """A history with its clock, fed with a job that makes a step every so many seconds."""

    def __init__(self, kept: Kept | None = None, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock(WALL)
        self.history = History(kept)
        self.event = self.clock.monotonic()

    def sample(self, steps: int = 0, **more: bool) -> None:
        if steps:
            self.event = self.clock.monotonic()
        told = {"alive": True, "heard": True, "counted": True} | more
        now = Moment(steps=steps, event=self.event, **told)
        self.history.sample(now, self.clock.monotonic(), self.clock.wall())

    def run(self, seconds: int, step_s: int = 1, **more: bool) -> None:
        for second in range(1, seconds + 1):
            self.clock.advance(1.0)
            self.sample(int(step_s > 0 and second % step_s == 0), **more)

    def axis(self, span: str = "1h") -> HistoryAnswer:
        return time_axis(self.history.keep(), span, self.clock.wall(), [])

    def rates(self, last: int, span: str = "1h") -> list[float | None]:
        return self.axis(span).steps[-last:]


def test_a_steady_job_has_a_steady_rate_in_every_span() -> None:
    job = Job()
    job.sample()
    job.run(3600)
    for span in AXIS:
        rates = [rate for rate in job.axis(span).steps if rate is not None]
        assert rates and all(0.95 <= rate <= 1.05 for rate in rates), span
    assert set(job.axis().watched[-359:-1]) == {1.0} == set(job.axis().moved[-359:-1])


def test_a_step_longer_than_a_bucket_is_no_row_of_zeros() -> None:
    job = Job()
    job.sample()
    job.run(600, step_s=60)
    job.run(30, step_s=0)
    known = [rate for rate in job.rates(55) if rate is not None]
    assert len(known) == 55 and all(0.015 <= rate <= 0.018 for rate in known)


def test_a_hang_falls_to_nothing_and_what_follows_does_not_fill_it() -> None:
    job = Job()
    job.sample()
    job.run(100)
    job.run(300, step_s=0)
    [*_, late, last] = job.rates(12)
    assert late is not None and last is not None and 0 < last <= 0.01
    job.run(100)
    rates = job.rates(38)
    assert all(rate is not None and rate < 0.05 for rate in rates[2:25])
    assert rates[-2] == pytest.approx(1.0, abs=0.1)


def test_a_time_without_the_collector_is_a_gap_and_not_zero() -> None:
    job = Job()
    job.sample()
    job.run(100)
    later = Job(msgspec.json.decode(msgspec.json.encode(job.history.keep()), type=Kept), job.clock)
    later.clock.advance(200.0)
    later.sample(steps=500)  # of another time: no spike
    later.run(100)
    axis = later.axis()
    assert axis.watched[-25:-12] == [0.0] * 13 and axis.steps[-25:-12] == [None] * 13
    assert max(rate for rate in axis.steps if rate is not None) < 1.3
    assert axis.watched[-38:-31] == [1.0] * 7


def test_a_suspended_collector_leaves_a_gap() -> None:
    job = Job()
    job.sample()
    job.run(50)
    job.clock.advance(400.0)
    job.run(50)
    axis = job.axis()
    assert axis.watched[-40:-8] == [0.0] * 32 and 0.0 < axis.watched[-2] <= 1.0


@pytest.mark.parametrize("by_s", [-7200.0, -30.0, 30.0, 7200.0])
def test_a_clock_that_is_set_breaks_nothing(by_s: float) -> None:
    job = Job()
    job.sample()
    job.run(600)
    job.clock.step_wall(by_s)
    job.run(120)
    for span in AXIS:
        axis = job.axis(span)
        assert len(axis.steps) == len(axis.watched) == SPANS[span][1]
        assert all(0.0 <= share <= 1.0 for share in axis.watched + axis.moved)
        assert axis.begin <= job.clock.wall() < axis.begin + axis.step_s * SPANS[span][1]
        assert all(rate is None or rate <= 2.5 for rate in axis.steps), span
    assert job.rates(4)[1:3] == [pytest.approx(1.0, abs=0.1)] * 2


@pytest.mark.parametrize(("minutes", "within_s"), [(2, 10), (90, 60), (600, 300)])
def test_the_axis_says_when_recording_began(minutes: int, within_s: int) -> None:
    """As exactly as the finest ring that reaches back so far."""
    job = Job()
    job.sample()
    for _ in range(minutes):
        job.clock.advance(59.0)
        job.sample()  # too late for a sample: not watched in between
        job.run(1)
    first = WALL + 59.0
    for span in AXIS:
        assert first - within_s <= job.axis(span).since <= first + 1.0
    empty = time_axis(History().keep(), "1h", WALL, [])
    assert empty.since == empty.at == WALL


def test_a_stall_begins_with_the_last_progress_and_outlives_a_restart() -> None:
    job = Job()
    job.sample()
    job.run(100)
    began = job.clock.wall()
    job.run(30, step_s=0)
    job.run(60, step_s=0, stalled=True)
    [stall] = job.axis().stalls
    assert stall.begin == began and stall.goes_on
    again = Job(job.history.keep(), job.clock)
    again.event = job.event
    again.clock.advance(40.0)
    again.sample(stalled=True)
    again.run(20, step_s=0, stalled=True)
    [stall] = again.axis().stalls
    assert stall.begin == began and stall.end == again.clock.wall()
    again.run(50)
    [stall] = again.axis().stalls
    assert not stall.goes_on and again.clock.wall() - stall.end == 50.0


def test_a_stall_that_was_taken_back_was_none_and_a_dead_job_does_not_stall() -> None:
    job = Job()
    job.sample()
    job.run(100)
    job.run(20, step_s=0, stalled=True)
    job.run(2, step_s=0)  # the capture showed no hang, and nothing has moved since
    assert job.axis().stalls == []
    job.run(10)
    job.run(20, step_s=0, stalled=True)
    job.run(20, step_s=0, stalled=True, alive=False)
    [stall] = job.axis().stalls
    assert not stall.goes_on and job.clock.wall() - stall.end == 20.0
    assert job.axis().alive[-1] == 0.0 and job.axis().watched[-2] > 0.9


def test_what_is_not_heard_is_not_said() -> None:
    job = Job()
    job.sample()
    job.run(100)
    job.run(100, step_s=0, heard=False)
    assert job.axis().watched[-9:] == [0.0] * 9 and job.rates(9) == [None] * 9


def test_before_an_agent_is_heard_no_one_knows_whether_ranks_run() -> None:
    job = Job()
    job.sample(alive=False, heard=False)
    job.run(60, step_s=0, alive=False, heard=False)
    assert job.axis().watched[-7:] == [0.0] * 7, "no agent has connected yet"
    job.run(60)
    job.run(60, step_s=0, alive=False, heard=False)
    axis = job.axis()
    assert axis.watched[-5:-1] == [1.0] * 4 and axis.alive[-5:-1] == [0.0] * 4, "it has ended"


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    job = Job()
    job.sample()
    for _ in range(40):
        job.run(20, step_s=0, stalled=True)
        job.run(20)
        job.clock.advance(4.5 * 3600)
        job.sample()
    kept = job.history.keep()
    assert all(len(ring.rows) <= SPANS[name][1] + 1 for name, ring in kept.rings.items())
    assert all(begin > job.clock.wall() - 8 * 86_400 for begin, _ in kept.stalls)
    full = (18_000, 18_000, 18_000, 18_000, 99_999_999)
    kept.rings = {name: KeptRing(170_000_000, [full] * (n + 1)) for name, (_, n) in SPANS.items()}
    kept.stalls = [(WALL + i, WALL + i + 0.5) for i in range(200)]
    history_file.save(tmp_path / "job", kept)
    assert history_file.load(tmp_path / "job") == kept
    assert (tmp_path / "job" / history_file.FILE).stat().st_mode & 0o777 == 0o600


NOT_OURS: list[bytes] = [
    b"",
    b"notes of a person",
    b'{"schema": "another/1"}',
    b'{"schema": "hangdoctor.history/1", "rings": {"1h": {"first": 1, "rows": [[1]]}}}',
]


@pytest.mark.parametrize("data", NOT_OURS)
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / history_file.FILE
    path.write_bytes(data)
    assert history_file.load(tmp_path) is None
    with pytest.raises(CollectorError, match="not hangdoctor's"):
        history_file.save(tmp_path, Kept())
    assert path.read_bytes() == data


def test_numbers_that_cannot_be_are_not_taken_over() -> None:
    rows = [(10**9, -5, 10**9, 3, -1)] * 5000
    rings = {"1h": KeptRing(10**15, rows), "nonsense": KeptRing(0, rows), "7d": KeptRing(0, rows)}
    job = Job(Kept(rings=rings, stalls=[(1e300, -1.0), (1e18, 1e19)]))
    job.sample()
    job.run(30)
    axis = job.axis()
    assert axis.stalls == [] and axis.watched[:-4] == [0.0] * 356
    assert max(axis.watched) <= 1.0


# ----------------------------------------------------------------- counting steps


def counted(tell: Callable[[StepCounter], None]) -> int:
    counter = StepCounter()
    tell(counter)
    return counter.taken()


def test_steps_are_those_of_the_job_and_not_of_each_rank() -> None:
    def all_ranks(counter: StepCounter) -> None:
        for iteration in range(-1, 11):
            for rank in range(8):
                counter.take(rank, iteration)

    assert counted(all_ranks) == 10


def test_the_first_word_of_a_rank_is_no_step() -> None:
    counter = StepCounter()
    counter.take(0, 4711)
    counter.take(1, 4713)
    assert counter.known and counter.taken() == 0
    counter.take(0, 4712)
    assert counter.taken() == 0, "rank 1 was there before"
    counter.take(1, 4714)
    assert counter.taken() == 1 and counter.taken() == 0


def test_a_new_run_begins_again_and_ranks_of_the_one_before_make_no_leap() -> None:
    counter = StepCounter()
    for rank in (0, 1):
        counter.take(rank, 100)
    counter.take(0, 0)  # begun anew
    counter.take(1, 101)  # not yet
    counter.take(1, 0)
    assert counter.taken() <= 1
    for iteration in (1, 2, 3):
        for rank in (0, 1):
            counter.take(rank, iteration)
    assert counter.taken() == 3


# ----------------------------------------------------------------- beside the collector's core


def test_the_recorder_sees_what_the_core_takes(tmp_path: Path) -> None:
    clock = FakeClock(WALL)
    clock.advance(1000.0)
    core = Core(Settings(), StallWatch(WatchSettings()))
    recorder = ProgressLog(core, tmp_path / "job")
    now, wall = clock.monotonic, clock.wall
    core.received(b"p", encode(Hello("a", "n1", "job", 2)), now(), wall())
    for second in range(1, 121):
        told = [RankNow(r, iteration=second, op="all_reduce", box=True) for r in range(2)]
        core.received(b"p", encode(Report(second, 1, 0.0, told)), now(), wall())
        recorder.sample(now(), wall())
        clock.advance(1.0)
    recorder.save(recorder.kept())
    axis = time_axis(ProgressLog(core, tmp_path / "job").kept(), "1h", wall(), [])
    assert axis.steps[-6:-2] == [pytest.approx(1.0, abs=0.1)] * 4
    assert axis.moved[-6:-2] == [1.0] * 4 and axis.stalls == []


def test_a_disk_that_takes_nothing_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = ProgressLog(Core(Settings(), StallWatch(WatchSettings())), tmp_path)
    (tmp_path / history_file.FILE).write_text("of a person")
    for _ in range(3):
        recorder.save(recorder.kept())
    [line] = caplog.messages
    assert "the progress of the job is not saved" in line and "--folder" in line
    (tmp_path / history_file.FILE).unlink()
    recorder.save(recorder.kept())
    assert history_file.load(tmp_path) is not None
