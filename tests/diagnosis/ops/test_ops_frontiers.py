"""Where a rank is: on its host, on its device, beside other operations, and by its own rhythm."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.diagnosis.ops.frontier import device_frontier
from hangdoctor.diagnosis.ops.group_members import GroupTable
from hangdoctor.diagnosis.ops.history import History
from hangdoctor.diagnosis.ops.pending import Pending, Shift, shift_of
from hangdoctor.diagnosis.ops.rhythm import break_of, leaves_own_rhythm
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, Operation, RankOps
from tests.support.ops_programs import Job, only_cause
from tests.support.ops_records import done, entered, evidence, rank_ops

TP, DP = [0, 1], [0, 2]


def reached(operations: list[Operation], **fields: object) -> list[Operation]:
    """What the device of rank 0 of four must have come to."""
    of = evidence([rank_ops(0, 4, operations, TP, DP, **{"runs_ahead": True, **fields})])
    return Scene(of, set()).frontier(0).active


def test_what_a_later_operation_overtook_runs_beside_the_others() -> None:
    scatter = entered(DP, 1, "reduce_scatter", asynchronous=True, site="a (m.py:1)")
    behind = entered(TP, 2, asynchronous=True, site="b (m.py:2)")
    last = entered(TP, 3, asynchronous=True, site="b (m.py:2)")
    first = done(TP, 1, asynchronous=True, site="b (m.py:2)")
    assert reached([scatter, first, behind, last]) == [scatter, behind]
    assert reached([first, scatter, behind, last]) == [scatter], "nothing was completed after it"
    assert reached([scatter, first, behind, last], runs_ahead=False) == [scatter, behind, last]


def test_only_the_same_call_was_overtaken() -> None:
    """A call on another line of the group that was overtaken holds all that follow."""
    overtaken = entered(DP, 1, "reduce_scatter", asynchronous=True, site="a (m.py:1)")
    completed = done(TP, 1, asynchronous=True, site="b (m.py:2)")
    other = entered(DP, 2, "all_gather", asynchronous=True, site="c (m.py:3)")
    last = entered(TP, 2, asynchronous=True, site="b (m.py:2)")
    assert reached([overtaken, completed, other, last]) == [overtaken]
    same = entered(DP, 2, "reduce_scatter", asynchronous=True, site="a (m.py:1)")
    assert reached([overtaken, completed, same, last]) == [overtaken, last]


def test_one_of_the_same_group_completes_later_and_overtakes_nothing() -> None:
    first, last = entered(DP, 1, asynchronous=True), entered(TP, 2, asynchronous=True)
    assert reached([first, done(DP, 2, asynchronous=True), last]) == [first]


def test_the_recorders_own_mark_shows_what_is_not_waited_for() -> None:
    handle = entered(DP, 1, asynchronous=True)
    waited, behind = entered(TP, 1), entered([0, 1, 2, 3], 1)
    assert reached([handle, waited, behind]) == [handle, waited]
    marked = [entered(DP, 1, asynchronous=True), entered(TP, 1, asynchronous=True)]
    assert reached(marked) == marked[:1], "where all are marked, the mark shows nothing"


def test_messages_to_several_ranks_are_queues_of_their_own() -> None:
    sends = [Operation("g", 1, "send", peer=p) for p in (1, 2, 1)]
    ops = RankOps(0, operations=sends, runs_ahead=True)
    assert device_frontier(ops, sends, False, lambda op: True).active == sends[:2]
    assert device_frontier(ops, sends, False, lambda op: False).active == sends[:1]


def test_what_has_started_has_been_reached_whatever_lies_before() -> None:
    opened = [Operation("g", 1, "all_reduce"), Operation("g", 2, "all_reduce", "started")]
    ops = RankOps(0, operations=opened, runs_ahead=True)
    assert device_frontier(ops, opened, False, lambda op: False).active == opened
    assert device_frontier(ops, opened, True, lambda op: False).active == opened[1:]


LOST = {
    "the ring begins with what the device has not come to": ({"overwritten": True}, True),
    "nothing was overwritten": ({}, False),
    "only active ones were asked for": ({"overwritten": True, "only_active": True}, False),
}


@pytest.mark.parametrize("case", LOST)
def test_a_device_is_lost_where_its_first_pending_record_may_be_gone(case: str) -> None:
    fields, lost = LOST[case]
    opened = [Operation("g", 7, "all_reduce"), Operation("g", 8, "all_reduce")]
    ops = RankOps(0, operations=opened, runs_ahead=True, **fields)
    assert device_frontier(ops, opened, False, lambda op: False).lost == lost
    before = [Operation("g", 6, "all_reduce", "done"), *opened]
    ops.operations = before
    assert not device_frontier(ops, opened, False, lambda op: False).lost
    started = [Operation("g", 7, "all_reduce", "started")]
    ops.operations = started
    assert not device_frontier(ops, started, True, lambda op: False).lost


def test_a_device_that_has_nothing_to_do_is_nowhere() -> None:
    frontier = device_frontier(RankOps(0, runs_ahead=True), [], False, lambda op: False)
    assert (frontier.open, frontier.active, frontier.blocking, frontier.lost) == ([], [], [], False)


def test_a_culprit_with_operations_that_its_device_never_reached() -> None:
    """Devices report starts: rank 1's reports none, so a kernel keeps it, and not the communication."""
    ranks = [
        rank_ops(
            r,
            3,
            [done(range(3), 1), entered(range(3), 2, state="entered" if r == 1 else "started")],
            runs_ahead=True,
        )
        for r in range(3)
    ]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("device_wait", [1])
    assert "its GPU has not started it" in cause.summary


# ----------------------------------------------------------------- doubt about a lone culprit


def missing_one(operations: list[Operation], **fields: object) -> float:
    """How sure it is that rank 1, with these records, is missing in a reduction of its pair."""
    ranks = [
        rank_ops(0, 2, [entered([0, 1], 9)], runs_ahead=False),
        rank_ops(1, 2, operations, **fields),
    ]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("not_entered", [1])
    return cause.confidence


def test_overwritten_records_of_the_group_leave_a_doubt() -> None:
    other = done([1], 5)
    assert missing_one([done([0, 1], 8)]) == 0.95
    assert missing_one([done([0, 1], 8)], overwritten=True) == 0.95
    assert missing_one([other], overwritten=True) == 0.85
    assert missing_one([other]) == 0.95


def test_the_last_thing_that_a_culprit_did_is_evidence() -> None:
    ranks = [
        rank_ops(0, 3, [entered(range(3), 3)]),
        rank_ops(1, 3, [done(range(3), 1), done(range(3), 2, "barrier")]),
        rank_ops(2, 3, [entered(range(3), 3)]),
    ]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    said = {tuple(e.ranks): e.says for e in cause.evidence}
    assert "barrier #2" in said[(1,)]
    ranks[1].operations = []
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert "no" in {tuple(e.ranks): e.says for e in cause.evidence}[(1,)]


# ----------------------------------------------------------------- groups and roles


def test_groups_of_one_axis_have_one_role_and_others_another() -> None:
    groups = [
        Group("a", [0, 1]),
        Group("b", [2, 3]),
        Group("c", [0, 2]),
        Group("d", [0, 1]),
        Group("e", [0, 1, 3]),
    ]
    table = GroupTable([RankOps(0, groups=groups)], 4, Layout(dp=2, pp=1, tp=2))
    assert table.role("a") == table.role("b")
    assert len({table.role(uid) for uid in "acde"}) == 4
    assert [table.axis(uid) for uid in "abce"] == ["tp", "tp", "dp", ""]
    assert [table.of_rank(r) for r in range(4)] == [
        list("acde"),
        list("ade"),
        list("bc"),
        list("be"),
    ]
    assert table.of_rank(9) == []


def test_members_that_no_rank_lists_are_those_of_the_axis_around_the_ranks_that_know_it() -> None:
    def members(name: str, known: list[int], layout: Layout | None) -> list[int]:
        some = [RankOps(r, groups=[Group("g", [], name)]) for r in known]
        table = GroupTable(some, 8, layout)
        assert table.inferred == {"g"}
        return list(table.members("g", known[0]))

    layout = Layout(dp=2, pp=2, tp=2)
    assert members("tp", [3], layout) == [2, 3]
    assert members("data_parallel_group", [5, 7], layout) == [5, 7]
    assert members("dp", [4, 5], layout) == [4, 5], "these are no group of that axis"
    assert members("tp", [3], None) == [3]
    assert members("experts", [1, 2], layout) == [1, 2]
    assert members("default_pg", [1, 2], layout) == list(range(8))


# ----------------------------------------------------------------- a rank's own rhythm


def history(calls: str, iterations: list[int] | None = None, overwritten: bool = False) -> History:
    """One letter a call, each on a line of its own."""
    numbers = iterations or [-1] * len(calls)
    operations = [
        Operation("w", n, call, "done", iteration=i, site=f"{call} (m.py:1)")
        for n, (call, i) in enumerate(zip(calls, numbers, strict=True))
    ]
    ops = RankOps(
        0, 4, groups=[Group("w", [0, 1, 2, 3])], operations=operations, overwritten=overwritten
    )
    return History(Scene(OpsEvidence({0: ops}, world_size=4), set()), 0)


BREAKS = {
    "three rounds and a half other one": ("abcabcabcba", (9, 6)),
    "two rounds are no rhythm yet": ("abcabcba", None),
    "no break": ("abcabcabcab", None),
    "one kind of call": ("aaaaaaab", None),
    "most of the records are something else": ("abababcdefghijkl", None),
    "a call that comes now and then is on time": (3 * ("ab" * 200 + "x"), None),
    "it comes later than ever": (2 * ("ab" * 200 + "x") + "ab" * 220 + "x", None),
    "it comes too early": ("ab" * 40 + "x" + "ab" * 40 + "x" + "ab" * 30 + "x", None),
    "it came never before": ("ab" * 40 + "x", (80, 78)),
    "it was left out": (3 * ("ab" * 200 + "x") + "ab" * 201, (1603, 1202)),
    "it may never come again": (3 * ("ab" * 200 + "x") + "ab" * 300, None),
    "it came at other distances": (2 * ("ab" * 200 + "x") + "ab" * 90 + "x" + "ab" * 201, None),
}


@pytest.mark.parametrize("case", BREAKS)
def test_a_rhythm_breaks_where_the_next_call_was_another_before(case: str) -> None:
    calls, at = BREAKS[case]
    assert break_of(history(calls)) == at


RHYTHMS = {
    "a round without its second call": ("abcdabcdabcdac", None, False, True),
    "the round goes on": ("abcdabcdabcdab", None, False, False),
    "another loop after a warm-up": ("abcabcdefdefdefdef", None, False, False),
    "iterations alike, the last not complete": ("abcabcab", [0, 0, 0, 1, 1, 1, 2, 2], False, False),
    "an iteration in the middle is shorter": ("abcacabc", [0, 0, 0, 1, 1, 2, 2, 2], False, True),
    "the last begins with another call": ("abcabcb", [0, 0, 0, 1, 1, 1, 2], False, True),
    "the first is cut": ("cabcab", [0, 1, 1, 1, 2, 2], True, False),
    "the first is another one": ("cabcab", [0, 1, 1, 1, 2, 2], False, True),
    "calls before the first iteration are counted with none": (
        "xabcabcab",
        [-1, 0, 0, 0, 1, 1, 1, 2, 2],
        False,
        False,
    ),
}


@pytest.mark.parametrize("case", RHYTHMS)
def test_a_rank_leaves_its_rhythm(case: str) -> None:
    calls, iterations, overwritten, leaves = RHYTHMS[case]
    assert leaves_own_rhythm(history(calls, iterations, overwritten)) == leaves


# ----------------------------------------------------------------- pending operations by their places


W, T = ("world",), ("tp",)


def column(*pending: tuple[int, int, tuple[str], bool], **completed: int) -> Pending:
    """(place, number, role, whether it is a transfer) of each."""
    return Pending(
        places=[p[0] for p in pending],
        numbers=[p[1] for p in pending],
        roles=[p[2] for p in pending],
        calls=[("all_reduce", "")] * len(pending),
        p2p=[p[3] for p in pending],
        completed={(role,): last for role, last in completed.items()},
    )


SHIFTS = {
    "one record less before the same call": (
        column((10, 2, W, False), world=1, tp=8),
        column((11, 2, W, False), world=1, tp=9),
        Shift(0, 0, -1),
    ),
    "two more": (
        column((13, 2, W, False), world=1, tp=11),
        column((11, 2, W, False), world=1, tp=9),
        Shift(0, 0, 2),
    ),
    "the same place": (
        column((11, 2, W, False), world=1, tp=8),
        column((11, 2, W, False), world=1, tp=9),
        None,
    ),
    "all counts agree: records of other groups": (
        column((16, 2, W, False), world=1, tp=9),
        column((11, 2, W, False), world=1, tp=9),
        None,
    ),
    "one of two counts agrees": (
        column((12, 2, W, False), world=1, tp=9, dp=3),
        column((11, 2, W, False), world=1, tp=9, dp=2),
        Shift(0, 0, 1),
    ),
    "counted up to what is pending before it": (
        column((9, 9, T, False), (11, 2, W, False), world=1, tp=8),
        column((8, 8, T, False), (10, 2, W, False), world=1, tp=7),
        Shift(1, 1, 1),
    ),
    "the pending one before it makes up for it": (
        column((9, 9, T, False), (12, 2, W, False), world=1, tp=8),
        column((10, 2, W, False), world=1, tp=9),
        None,
    ),
    "what is pending after it does not count": (
        column((10, 2, W, False), (11, 9, T, False), world=1, tp=8),
        column((12, 2, W, False), world=1, tp=8),
        None,
    ),
    "a message more before it": (
        column((8, 5, W, True), (10, 2, W, False), world=1),
        column((7, 4, W, True), (9, 2, W, False), world=1),
        Shift(1, 1, 1),
    ),
    "messages alike before it": (
        column((8, 5, W, True), (12, 2, W, False), world=1),
        column((8, 5, W, True), (9, 2, W, False), world=1),
        None,
    ),
    "messages alike, one of them before and one after it": (
        column((8, 5, W, True), (12, 2, W, False), world=1),
        column((9, 2, W, False), (10, 6, W, True), world=1),
        None,
    ),
    "messages have numbers of their own": (
        column((8, 2, W, True), world=1),
        column((9, 2, W, False), world=1),
        None,
    ),
    "no call in common": (
        column((8, 7, T, False), (10, 2, W, False), world=1, tp=6),
        column((9, 3, W, False), world=2, tp=9),
        None,
    ),
    "the second call is the common one": (
        column((8, 7, T, False), (10, 2, W, False), world=1, tp=6),
        column((11, 2, W, False), world=1, tp=9),
        Shift(1, 0, -1),
    ),
}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("all_reduce", "a.py:1"), ("all_reduce", "b.py:2")),
        (("all_reduce", ""), ("all_gather", "")),
    ],
)
def test_another_call_under_the_same_number_is_no_shift(
    mine: tuple[str, str], theirs: tuple[str, str]
) -> None:
    one, other = column((10, 2, W, False), world=1, tp=8), column((11, 2, W, False), world=1, tp=9)
    one.calls, other.calls = [mine], [theirs]
    assert shift_of(one, other) is None
    other.calls = [mine]
    assert shift_of(one, other) == Shift(0, 0, -1)


@pytest.mark.parametrize("case", SHIFTS)
def test_one_call_at_two_places_is_a_call_more_or_less_before_it(case: str) -> None:
    mine, theirs, shift = SHIFTS[case]
    assert shift_of(mine, theirs) == shift
    assert shift_of(mine, None) is None and shift_of(None, theirs) is None


def test_a_job_that_waits_in_set_up_has_not_passed_it() -> None:
    """Rank 2 communicates: it has been through set-up, although its record of that is gone."""
    job = Job(4)
    for program in job.everyone():
        program.init().all_reduce().all_reduce()
    of = job.run()
    late = of.ops[0]
    late.operations = [late.operations[0]]
    late.operations[0].state = "entered"
    of.ops[1].operations = of.ops[1].operations[1:]
    of.ops[3].operations = []
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks) == ("start_stall", [3])
