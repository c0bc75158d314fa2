"""Slow ranks: the detector against simulated waiting times, the share of waiting from a real box,
and the verdict.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

from hangdoctor.collector.core import Core, Settings
from hangdoctor.collector.instructions import Conclude, Instruction, Send
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.transport.capture_codec import pack_capture
from hangdoctor.transport.messages import Capture, Captured, Hello, RankNow, Report, encode
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch
from hangdoctor.watch.straggler_watch import SlowSettings, Straggler, StragglerWatch


class FakeTraining:
    """Ranks that meet in one collective each step: who takes less time than the slowest waits for
    the rest.
    """

    def __init__(self, seed: int, ranks: int, step: float, jitter: float) -> None:
        self.chance = random.Random(seed)
        self.ranks, self.step, self.jitter = ranks, step, jitter
        self.extra: dict[int, float] = {}  # rank -> seconds more than the others
        self.now = 0.0
        self.waited = [0.0] * ranks
        self.end = 0.0

    def second(self) -> list[RankNow]:
        """What is reported after one more second."""
        self.now += 1.0
        while self.end < self.now:
            takes = [
                self.step * self.chance.uniform(1 - self.jitter, 1 + self.jitter)
                + self.extra.get(r, 0.0)
                for r in range(self.ranks)
            ]
            self.waited = [w + max(takes) - t for w, t in zip(self.waited, takes, strict=True)]
            self.end += max(takes)
        told = [
            RankNow(r, waits=round(100 * min(1.0, self.waited[r])), box=True)
            for r in range(self.ranks)
        ]
        self.waited = [max(0.0, w - 1.0) for w in self.waited]
        return told


def watch(training: FakeTraining, found: StragglerWatch, seconds: int) -> list[Straggler]:
    told = []
    for _ in range(seconds):
        found.report(training.second())
        one = found.tick(training.now, training.ranks)
        told += [one] if one is not None else []
    return told


def test_random_jitter_names_no_rank_in_hours() -> None:
    for seed in range(3):
        for ranks, step, jitter in ((2, 0.2, 0.9), (2, 4.0, 0.9), (8, 1.0, 0.9), (3, 12.0, 0.9)):
            training = FakeTraining(seed, ranks, step, jitter)
            assert watch(training, StragglerWatch(), 3600) == [], (seed, ranks, step)


def test_the_rank_that_comes_last_is_named_once_in_a_cool_down() -> None:
    training, found = FakeTraining(1, 8, 0.5, 0.3), StragglerWatch()
    assert watch(training, found, 600) == []
    training.extra = {5: 0.4}
    [slow] = watch(training, found, 1500)
    assert (
        slow.rank == 5
        and slow.shares[5] < 15
        and min(w for r, w in slow.shares.items() if r != 5) > 30
    )
    assert slow.window_s == 150
    [again] = watch(training, found, 1800)
    assert again.rank == 5


def test_a_checkpoint_of_one_rank_a_pause_and_an_equal_load_are_no_straggler() -> None:
    training, found = FakeTraining(2, 4, 0.5, 0.2), StragglerWatch()
    told: list[Straggler] = []
    for _ in range(20):
        told += watch(training, found, 120)
        training.extra = {0: 40.0}  # one long step: rank 0 writes
        told += watch(training, found, 1)
        training.extra = {}
    training.now += 3600.0  # the machine slept
    training.end = training.now
    told += watch(training, found, 600)
    training.step = 5.0
    assert told + watch(training, found, 600) == []


def test_nothing_is_said_while_too_little_is_known() -> None:
    training, found = FakeTraining(1, 4, 0.5, 0.3), StragglerWatch()
    training.extra = {3: 0.5}
    for _ in range(900):
        found.report(training.second()[2:])  # of half of the ranks nothing is heard
        assert found.tick(training.now, 4) is None
    blind = StragglerWatch()
    for _ in range(900):
        blind.report([RankNow(r) for r in range(4)])
        assert blind.tick(training.now, 4) is None
        training.now += 1
    assert watch(training, StragglerWatch(SlowSettings(window_s=0)), 900) == []


def put_record(box: BoxWriter, serial: int, entered: float, left: float, flags: int = 0) -> None:
    begin, slots, width = box.regions["ring"]
    record = (
        serial,
        serial,
        round(entered * 1e9),
        0,
        0,
        0,
        0,
        -1,
        1,
        flags,
        0,
        round(left * 1e9),
        0,
        serial,
    )
    fmt.RECORD.pack_into(box.map, begin + serial % slots * width, *record)
    fmt.THREAD.pack_into(box.map, box.regions["threads"][0], 7, serial, 0, 0, b"MainThread")


def test_the_share_of_waiting_is_read_from_the_newest_records_of_a_box(tmp_path: Path) -> None:
    box = BoxWriter(tmp_path, "share-test", 1 << 20)
    seen = BoxWatch(box.path)

    def share(since: float, now: float) -> float:
        seen.read()
        return round(seen.waiting_share(round(since * 1e9), round(now * 1e9)), 2)

    assert share(100, 101) == -1  # no operation yet
    put_record(box, 1, 100.0, 100.2)
    put_record(box, 2, 100.5, 100.6)
    put_record(box, 3, 100.6, 100.9, fmt.ASYNC)  # what runs beside the computation is not a waiting
    assert share(100, 101) == 0.3
    put_record(box, 4, 100.9, 0.0)  # still inside
    assert share(101, 102) == 1.0
    for serial in range(5, 300):  # more than are looked at: of the time that they cover, half
        put_record(box, serial, 101 + serial / 300, 101 + (serial + 0.5) / 300)
    assert share(101, 102) == 0.5
    slots = box.regions["ring"][1]
    for serial in (slots - 1, slots, slots + 1):  # over the end of the ring
        put_record(box, serial, 200 + (serial - slots) * 0.5, 200.1 + (serial - slots) * 0.5)
    assert share(200, 201) == 0.2
    struct.pack_into(fmt.H_FLAGS[1], box.map, fmt.H_FLAGS[0], fmt.RUNS_AHEAD)
    assert share(200, 201) == -1  # entering does not block there
    seen.close()


def test_a_straggler_is_captured_and_becomes_a_verdict_that_its_bundle_repeats() -> None:
    core = Core(Settings(), StallWatch(Bounds()), slow=SlowSettings(window_s=15))
    core.received(b"p", encode(Hello("a", "n1", "slurm:7.0", 4)), 0.0, 0.0)
    training = FakeTraining(3, 4, 0.3, 0.3)
    training.extra = {2: 0.5}
    asked: list[Instruction] = []
    seq = 0
    while not asked and training.now < 60:
        seq += 1
        core.received(b"p", encode(Report(seq, 1, 0.0, training.second())), training.now, 0.0)
        asked = [
            i
            for i in core.tick(training.now, 0.0)
            if isinstance(i, Send) and isinstance(i.message, Capture)
        ]
    assert isinstance(asked[0], Send) and isinstance(asked[0].message, Capture)
    body = pack_capture(
        NodeCapture(
            "n1", "slurm:7.0", [RankCapture(pid=9 + r, rank=r, world_size=4) for r in range(4)]
        )
    )
    [done] = [
        i
        for i in core.received(b"p", encode(Captured(asked[0].message.id, body)), training.now, 0.0)
        if isinstance(i, Conclude)
    ]
    assert str(done.reason).startswith("slow: rank 2") and done.capture.slowest == 2
    diagnosis = diagnose(done.capture)
    assert (diagnosis.status, diagnosis.causes[0].kind, diagnosis.causes[0].ranks) == (
        "slow",
        "slow",
        [2],
    )
    assert core.concluded(done.id, diagnosis.status, training.now) == []
    still: JobCapture = done.capture
    still.nodes[0].ranks[1].gone = True  # a hang that the capture shows is what counts
    assert diagnose(still).status == "hang"
