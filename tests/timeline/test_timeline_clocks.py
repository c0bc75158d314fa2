"""Clocks aligned by random programs whose true offsets are known."""

from __future__ import annotations

import random

import pytest

from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from hangdoctor.timeline.build import build
from hangdoctor.timeline.clocks import clock_lines
from hangdoctor.timeline.instances import match, orders
from hangdoctor.timeline.model import Correction, RankTrace, Trace

HOUR = 3600 * 10**9
START = 1_700_000_000 * 10**9


class Program:
    """Ranks on nodes whose clocks are wrong by a known amount; every operation takes as long as
    chance wants.
    """

    def __init__(self, seed: int, nodes: int, per_node: int = 2, ppm: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.nodes, self.world = nodes, nodes * per_node
        self.ahead = [0] + [self.rng.randrange(-3 * HOUR, 3 * HOUR) for _ in range(nodes - 1)]
        self.ppm = [0.0] + [self.rng.uniform(-ppm, ppm) for _ in range(nodes - 1)]
        self.per_node = per_node
        self.now = [START] * self.world  # true time
        self.ops = [RankOps(r, self.world) for r in range(self.world)]
        self.counts: dict[tuple[object, ...], int] = {}

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def reading(self, rank: int, true: int) -> float:
        n = self.node(rank)
        return (true + self.ahead[n] + int((true - START) * self.ppm[n] / 1e6)) / 1e9

    def record(
        self, rank: int, group: str, seq: int, op: str, span: tuple[int, int], **more: object
    ) -> None:
        self.ops[rank].operations.append(
            Operation(
                group,
                seq,
                op,
                "done",
                entered_s=self.reading(rank, span[0]),
                left_s=self.reading(rank, span[1]),
                thread=1,
                **more,
            )  # type: ignore[arg-type]
        )

    def collective(self, ranks: list[int], op: str = "all_reduce", root: int = -1) -> None:
        uid = group_uid(ranks)
        seq = self.counts[(uid,)] = self.counts.get((uid,), 0) + 1
        entered = {r: self.now[r] + self.rng.randrange(10_000, 3_000_000) for r in ranks}
        for r in ranks:
            if uid not in {g.uid for g in self.ops[r].groups}:
                self.ops[r].groups.append(Group(uid, ranks))
            latency = self.rng.randrange(20_000, 400_000)
            waits_for = []
            if op == "broadcast":
                waits_for = [entered[root]]
            elif op == "all_reduce" or r == root:
                waits_for = list(entered.values())
            self.now[r] = max([entered[r], *waits_for]) + latency
            self.record(r, uid, seq, op, (entered[r], self.now[r]), root=root)

    def message(self, source: int, to: int) -> None:
        uid = group_uid(range(self.world))
        seq = self.counts[(source, to)] = self.counts.get((source, to), 0) + 1
        sent = self.now[source] + self.rng.randrange(10_000, 1_000_000)
        wanted = self.now[to] + self.rng.randrange(10_000, 1_000_000)
        self.now[source] = sent + self.rng.randrange(10_000, 100_000)
        self.now[to] = max(sent, wanted) + self.rng.randrange(20_000, 300_000)
        self.record(source, uid, seq, "send", (sent, self.now[source]), peer=to)
        self.record(to, uid, seq, "recv", (wanted, self.now[to]), peer=source)

    def trace(self) -> Trace:
        ranks = [
            RankTrace(r, self.ops[r], f"n{self.node(r)}", 100 + r, f"n{self.node(r)}")
            for r in range(self.world)
        ]
        return Trace(ranks, {g.uid: g for o in self.ops for g in o.groups})

    def play(self, length: int) -> None:
        for _ in range(length):
            kind = self.rng.random()
            size = self.rng.randrange(2, self.world + 1)
            ranks = sorted(self.rng.sample(range(self.world), size))
            if kind < 0.6:
                self.collective(ranks)
            elif kind < 0.8:
                self.message(*self.rng.sample(range(self.world), 2))
            else:
                self.collective(
                    ranks, self.rng.choice(["broadcast", "reduce"]), self.rng.choice(ranks)
                )


def truth_holds(program: Program, clocks: list[Correction], slack_ns: int = 1000) -> None:
    """The true offset lies within the bound of each; a float keeps times of today to a quarter of a
    microsecond.
    """
    for n, correction in enumerate(clocks):
        assert correction.bound_ns is not None, correction.why
        assert abs(correction.offset_ns + program.ahead[n]) <= correction.bound_ns + slack_ns


@pytest.mark.parametrize("seed", range(25))
def test_the_true_offset_lies_within_the_bound_with_clocks_hours_apart(seed: int) -> None:
    program = Program(seed, nodes=2 + seed % 5)
    program.play(250)
    line = build(program.trace())
    truth_holds(program, line.clocks)
    assert all(c.bound_ns < 1_000_000 for c in line.clocks[1:])  # type: ignore[operator]
    assert [c.ranks for c in line.clocks] == [[2 * n, 2 * n + 1] for n in range(program.nodes)]


@pytest.mark.parametrize("seed", range(10))
def test_on_the_common_axis_no_rank_leaves_before_the_last_has_entered(seed: int) -> None:
    """Every inequality holds at once, not only those with the reference."""
    program = Program(seed, nodes=5)
    program.play(200)
    line = build(program.trace())
    checked = 0
    for instance in match(line.trace.ranks):
        first, second = orders(instance, line.trace.ranks)
        for i, j in first:
            for k, m in second:
                assert line.lanes[i].begin[j] <= line.lanes[k].end[m] + 1000
                checked += line.lanes[i].trace.clock != line.lanes[k].trace.clock
    assert checked > 500


def test_nodes_that_meet_only_through_a_third_are_aligned() -> None:
    program = Program(7, nodes=3)
    for _ in range(60):
        program.collective([0, 2])
        program.collective([3, 4])
    truth_holds(program, build(program.trace()).clocks)


def test_more_clocks_than_are_compared_in_pairs() -> None:
    program = Program(8, nodes=24, per_node=1)
    for _ in range(200):
        program.collective(list(range(24)))
    truth_holds(program, build(program.trace()).clocks)


def test_many_clocks_are_shown_in_few_lines() -> None:
    program = Program(9, nodes=40, per_node=1)
    for _ in range(30):
        program.collective(list(range(38)))
        program.collective([38, 39])
    lines = clock_lines(build(program.trace()).clocks)
    assert (
        len(lines) == 4
        and lines[0].endswith("the reference")
        and lines[-1].startswith("37 more clocks are aligned, all within ")
    )
    assert all("not aligned" in line for line in lines[1:3])


def test_a_node_that_nothing_links_says_so_and_keeps_its_own_readings() -> None:
    program = Program(3, nodes=3)
    for _ in range(20):
        program.collective([0, 1, 2])
        program.collective([4, 5])
    near, far, alone = build(program.trace()).clocks
    assert near.reference == far.reference == "n0" and far.bound_ns is not None
    assert (alone.reference, alone.bound_ns) == (
        "n2",
        None,
    ) and "no finished operation links it with n0" in alone.why


def test_a_node_that_only_listens_is_bounded_on_one_side_only() -> None:
    program = Program(4, nodes=2)
    for _ in range(20):
        program.message(0, 2)
    assert "one side only" in build(program.trace()).clocks[1].why


@pytest.mark.parametrize("seed", range(5))
def test_clocks_that_drift_apart_are_followed(seed: int) -> None:
    """100 ppm over some minutes is tens of milliseconds: no one offset fits."""
    program = Program(seed, nodes=2, ppm=0)
    program.ppm[1] = 100.0 * (-1) ** seed
    for _ in range(600):
        program.collective([0, 1, 2, 3])
        program.now = [t + 200_000_000 for t in program.now]
    line = build(program.trace())
    far = line.clocks[1]
    assert far.knots and far.drift_ppm == pytest.approx(-program.ppm[1], rel=0.15)
    for op in program.ops[2].operations[50:-50:50]:
        reading = round(op.entered_s * 1e9)
        true = (reading - program.ahead[1] - START) / (1 + program.ppm[1] / 1e6) + START
        assert abs(far.at(reading) - true) < 2_000_000


def test_operations_that_prove_nothing_are_not_asked() -> None:
    """Handles, backends that run ahead, failures, tensors without elements, members that disagree."""
    program = Program(5, nodes=2, per_node=1)
    program.collective([0, 1])
    trace = program.trace()
    [instance] = match(trace.ranks)
    one = trace.ranks[0].ops.operations[0]
    assert orders(instance, trace.ranks) == (instance.members, instance.members)
    for name, value in (("asynchronous", True), ("shapes", "[4, 8],[0, 3]"), ("op", "all_gather")):
        before = getattr(one, name)
        setattr(one, name, value)
        assert orders(instance, trace.ranks) == ([], []), name
        setattr(one, name, before)
    one.shapes = "[10],[20, 30]"
    assert orders(instance, trace.ranks)[0]
    trace.ranks[1].ops.runs_ahead = True
    assert orders(instance, trace.ranks) == ([], [])
    one.failed = True
    assert match(trace.ranks) == []
