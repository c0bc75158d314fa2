"""Ranks that wait for one another, and whose calls parted from those of their role."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hangdoctor.diagnosis import wording
from hangdoctor.diagnosis.findings import WaitsFor
from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.diagnosis.ops.blame import blame
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.model.layout import Layout
from tests.support.ops_programs import Call, Job, only_cause, training, variant


def ring_of_pairs() -> Job:
    """Each of three ranks reduces with the next one first."""
    job = Job(3)
    for name, ranks in (("a", [0, 1]), ("b", [1, 2]), ("c", [0, 2])):
        job.group(name, ranks)
    for rank, name in enumerate("abc"):
        job.rank(rank).all_reduce(name)
    return job


def transfer_and_collective() -> Job:
    """Rank 0 waits for a message of rank 1, which waits for it in a reduction."""
    job = Job(3)
    job.group("pair", [0, 1])
    job.rank(0).recv(1)
    job.rank(1).all_reduce("pair")
    return job


def two_rings_of_transfers() -> Job:
    """0 waits for 1, that for 2, that for 0 and 3, and 3 for 2."""
    job = Job(4)
    job.rank(0).recv(1)
    job.rank(1).recv(2)
    job.rank(2).recv(0, asynchronous=True).recv(3, asynchronous=True).wait()
    job.rank(3).recv(2)
    return job


RINGS = {
    "of collectives": (
        ring_of_pairs,
        "order",
        [(0, 1), (1, 2), (2, 0)],
        " in a ring; the records do not show which made a wrong call",
    ),
    "of a transfer and a collective": (
        transfer_and_collective,
        "p2p_unmatched",
        [(0, 1), (1, 0)],
        ": rank 0 in recv #1 from rank 1 (train.py:19), rank 1 in all_reduce #1 of group 'pair' (0-1) "
        "(train.py:24) without the send for it",
    ),
    "of transfers, the shortest one": (
        two_rings_of_transfers,
        "p2p_unmatched",
        [(2, 3), (3, 2)],
        ": rank 2 in recv #1 from rank 3 (train.py:19), rank 3 in recv #1 from rank 2 (train.py:19), "
        "and neither sends",
    ),
}


@pytest.mark.parametrize("ring", RINGS)
def test_a_ring_that_no_history_explains_is_named_as_a_whole(ring: str) -> None:
    make, kind, waits, how = RINGS[ring]
    verdict = diagnose_ops(make().run())
    cause = only_cause(verdict)
    ranks = [rank for rank, _ in waits]
    assert (cause.kind, cause.ranks, cause.confidence) == (kind, ranks, 0.5)
    assert f"wait for one another{how}" in cause.summary
    facts = [
        (c.ranks[0], c.fact.whom) for c in verdict.findings[0].clues if isinstance(c.fact, WaitsFor)
    ]
    assert sorted(facts) == waits
    assert cause.where.op == make().rank(ranks[0]).calls[0].op


def test_ranks_that_are_all_in_one_such_ring_are_all_named() -> None:
    """Each of four is in the first reduction of another group of three, with the next two."""
    job = Job(4)
    for rank, name in enumerate("abcd"):
        job.group(name, sorted((rank + on) % 4 for on in range(3)))
    for rank, name in enumerate("abcd"):
        job.rank(rank).all_reduce(name)
    verdict = diagnose_ops(job.run())
    cause = only_cause(verdict)
    assert (cause.kind, cause.ranks) == ("order", [0, 1, 2, 3])
    assert "in one order" in cause.advice, "the records are whole: more of them show no more"
    assert {clue.ranks[0] for clue in verdict.findings[0].clues} == {0, 1, 2, 3}


def pipeline(stages: int, counts: list[int]) -> Job:
    """Each stage receives, sends on, and then does so backwards, so many micro-batches."""
    job = Job(stages)
    for stage in range(stages):
        rank = job.rank(stage)
        for _ in range(counts[stage]):
            if stage:
                rank.recv(stage - 1)
            if stage + 1 < stages:
                rank.send(stage + 1, asynchronous=True)
        rank.wait()
        for _ in range(counts[stage]):
            if stage + 1 < stages:
                rank.recv(stage + 1)
            if stage:
                rank.send(stage - 1, asynchronous=True)
        rank.wait()
    return job


def test_a_stage_that_receives_fewer_than_all_others_is_the_one() -> None:
    cause = only_cause(diagnose_ops(pipeline(4, [4, 4, 4, 2]).run()))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [3])
    assert "never posted the recv that matches send #" in cause.summary


@pytest.mark.parametrize("ring", [10_000, 30], ids=["whole records", "the last ones"])
@pytest.mark.parametrize(("way", "whose", "peer"), [("send", 3, 2), ("recv", 2, 3)])
def test_a_stage_whose_last_transfer_is_missing_is_the_one(
    ring: int, way: str, whose: int, peer: int
) -> None:
    """It goes on to the reduction that ends the step; the numbers of the transfers show it."""
    job = pipeline(4, [60, 60, 60, 60])
    calls = job.rank(whose).calls
    last = max(i for i, call in enumerate(calls) if (call.op, call.peer) == (way, peer))
    del calls[last]
    for program in job.everyone():
        program.all_reduce("world")
    cause = only_cause(diagnose_ops(job.run(ring)))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [whose])
    other = "recv" if way == "send" else "send"
    assert f"never posted the {way} that matches {other} #60" in cause.summary


def test_of_two_stages_nothing_shows_which_counts_wrong() -> None:
    """No other link is there to compare with."""
    cause = only_cause(diagnose_ops(pipeline(2, [4, 2]).run()))
    assert cause.ranks == [0, 1]


# ----------------------------------------------------------------- votes


def replicas(number: int, odd: dict[int, list[str]], usual: list[str]) -> Scene:
    """Replicas of one rank each that make these calls, some of them others."""
    job = Job(number, Layout(dp=number))
    job.broken = {("world", n) for n in range(1, 9)}
    for program in job.everyone():
        for op in odd.get(program.number, usual):
            program.call(op, asynchronous=True)
    return Scene(job.run(), set())


USUAL = ["all_reduce", "barrier", "all_gather", "reduce"]
WITHOUT = ["all_reduce", "all_gather", "reduce"]
VOTES = {
    "one of three": (3, {2: WITHOUT}, [2]),
    "two of five alike": (5, {0: WITHOUT, 1: WITHOUT}, [0, 1]),
    "three of seven alike": (7, {0: WITHOUT, 1: WITHOUT, 5: WITHOUT}, [0, 1, 5]),
    "one of two, and nothing decides": (2, {1: WITHOUT}, []),
    "two of four, and nothing decides": (4, {0: WITHOUT, 1: WITHOUT}, []),
}


@pytest.mark.parametrize("vote", VOTES)
def test_most_ranks_of_a_role_are_right(vote: str) -> None:
    number, odd, blamed = VOTES[vote]
    scene = replicas(number, odd, USUAL)
    found = blame(scene, range(number))
    assert sorted(found) == blamed
    assert all((d.how, d.theirs.op) == ("skipped", "barrier") for d in found.values())


def test_a_suspect_whose_peers_are_divided_is_not_blamed() -> None:
    """Of the other two replicas one agrees with it: that one is not asked, and it is right."""
    scene = replicas(3, {1: WITHOUT}, USUAL)
    assert [sorted(blame(scene, [rank])) for rank in range(3)] == [[], [1], []]


def rounds(*each: str) -> list[tuple[str, int]]:
    return [(op, n) for n, ops in enumerate(each) for op in ops.split()]


@pytest.mark.parametrize("odd", [0, 1])
def test_two_replicas_that_differ_are_judged_by_their_own_rounds(odd: int) -> None:
    usual = "all_reduce barrier all_gather"
    job = Job(2, Layout(dp=2))
    for program in job.everyone():
        last = "all_reduce all_gather" if program.number == odd else usual
        for op, iteration in rounds(usual, usual, last):
            program.call(op, iteration=iteration, asynchronous=True)
    job.broken = {("world", n) for n in range(1, 10)}
    found = blame(Scene(job.run(), set()), [0, 1])
    assert sorted(found) == [odd]


@pytest.mark.parametrize("odd", range(4))
def test_two_replicas_that_differ_are_judged_by_the_other_stage(odd: int) -> None:
    """In the first round, where no earlier one shows what is usual."""
    job = Job(4, Layout(dp=2, pp=2))
    for program in job.everyone():
        ops = WITHOUT if program.number == odd else USUAL
        for op in ops:
            program.call(op, asynchronous=True)
    job.broken = {("world", n) for n in range(1, 9)}
    assert sorted(blame(Scene(job.run(), set()), range(4))) == [odd]


def test_a_divergence_is_placed_where_the_lines_part_first() -> None:
    """Rank 2 takes another branch, whose first call is the same operation on another line."""
    job = Job(4, Layout(dp=4))
    for program in job.everyone():
        odd = program.number == 2
        program.all_reduce(site="step (train.py:10)", asynchronous=True)
        program.all_reduce(site=f"step (train.py:{21 if odd else 20})", asynchronous=True)
        program.call("barrier" if odd else "all_gather", asynchronous=True)
    job.broken = {("world", n) for n in range(1, 4)}
    (found,) = blame(Scene(job.run(), set()), range(4)).values()
    assert (found.rank, found.position) == (2, 1)
    assert (found.mine.site, found.theirs.site) == ("step (train.py:21)", "step (train.py:20)")


# ----------------------------------------------------------------- what the rank did instead


def fourth_of_four(change: Callable[[list[Call]], None]) -> Job:
    """Four replicas of two slices; the second round of rank 3 is changed."""
    job = training(Layout(dp=4, pp=1, tp=2), steps=3, layers=1)
    change(job.rank(3).calls)
    return job


def at(calls: list[Call], op: str, group: str, nth: int) -> int:
    return [i for i, c in enumerate(calls) if (c.op, c.group) == (op, group)][nth]


def skip(calls: list[Call]) -> None:
    del calls[at(calls, "all_reduce", "tp", 5)]


def repeat(calls: list[Call]) -> None:
    i = at(calls, "all_reduce", "tp", 5)
    calls.insert(i, variant(calls[i], site="oops (m.py:3)"))


def replace(calls: list[Call]) -> None:
    i = at(calls, "all_reduce", "tp", 5)
    calls[i] = variant(calls[i], op="all_gather")


def elsewhere(calls: list[Call]) -> None:
    i = at(calls, "all_reduce", "tp", 5)
    calls[i] = variant(calls[i], group="dp")


@pytest.mark.parametrize(
    ("change", "how"),
    [(skip, "skipped"), (repeat, "extra"), (replace, "other"), (elsewhere, "group")],
)
def test_what_a_rank_did_instead_is_said(change: Callable[[list[Call]], None], how: str) -> None:
    scene = Scene(fourth_of_four(change).run(), set())
    found = blame(scene, range(8))
    assert {rank: d.how for rank, d in found.items()} == {3: how}
    (d,) = found.values()
    assert d.reference in (1, 5, 7) and not d.before_records, "of the same slice"
    assert d.mine == scene.ops[3].operations[d.position]
    assert d.theirs.op == "all_reduce" or how == "skipped"


KINDS = {
    "a skipped collective": (skip, "order"),
    "a collective too many": (repeat, "order"),
    "another operation": (replace, "mismatch"),
    "another group": (elsewhere, "mismatch"),
}


@pytest.mark.parametrize("fault", KINDS)
def test_the_kind_of_cause_follows_from_what_it_did(fault: str) -> None:
    change, kind = KINDS[fault]
    cause = only_cause(diagnose_ops(fourth_of_four(change).run()))
    assert (cause.kind, cause.ranks) == (kind, [3])


def test_a_rank_that_destroys_its_groups_instead_is_a_stall_at_the_end() -> None:
    job = training(Layout(dp=4, pp=1, tp=2), steps=3, layers=1)
    calls = job.rank(3).calls
    first = at(calls, "all_reduce", "tp", 5)
    del calls[first : at(calls, "destroy_process_group", "world", 0)]
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("end_stall", [3])


@pytest.mark.parametrize("way", ["send", "recv"])
def test_a_transfer_that_is_left_out_is_unmatched(way: str) -> None:
    job = training(Layout(dp=3, pp=3, tp=1), steps=3)
    calls = job.rank(4).calls
    del calls[at(calls, way, "world", 5)]
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [4])
    peer = "to rank 7" if way == "send" else "from rank 1"
    assert f"skipped {way} #" in cause.summary and peer in cause.summary


@pytest.mark.parametrize("more", [False, True])
def test_a_stage_that_left_out_a_transfer_or_made_one_more_is_named_by_its_own_rounds(
    more: bool,
) -> None:
    """It, or its neighbour, is in the reduction that ends the step."""
    job = Job(3)
    for step in range(4):
        for micro in range(3):
            odd = (step, micro) == (3, 2)
            job.rank(0).send(1)
            job.rank(1).recv(0)
            if more or not odd:
                job.rank(1).send(2)
            job.rank(2).recv(1)
            if more and odd:
                job.rank(2).recv(1)
        for rank in range(3):
            job.rank(rank).all_reduce("world")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == (("p2p_unmatched", [2]) if more else ("order", [1]))


@pytest.mark.parametrize(
    ("captures", "named"), [(2, [("p2p_unmatched", [1])]), (1, [])], ids=["twice", "once"]
)
def test_who_has_part_in_all_transfers_that_do_not_finish_is_named(
    captures: int, named: list[tuple[str, list[int]]]
) -> None:
    job = Job(3)
    job.rank(0).send(1)
    job.rank(1).recv(0).send(2)
    job.rank(2).recv(1)
    evidence = job.run()
    for ops in evidence.ops.values():  # both sides have entered both, and nothing arrives
        for op in ops.operations:
            op.state, op.left_s = "entered", 0.0
    evidence.earlier = dict(evidence.ops) if captures == 2 else {}
    found = diagnose_ops(evidence).findings
    assert [(c.kind, c.ranks) for c in found] == named
    assert all(c.story.partners == (0, 2) for c in found)


@pytest.mark.parametrize(
    ("usual", "tags", "named"),
    [
        ("tag 0", ("tag 1", "tag 2"), ("mismatch", [0, 1])),  # both are new
        ("tag 1", ("tag 1", "tag 2"), ("mismatch", [1])),  # it had always received tag 1
        ("tag 1", ("tag 1", "tag 1"), ("in_communication", [0, 1])),
        ("", ("", "tag 1"), ("in_communication", [0, 1])),  # one side's record has none
    ],
)
def test_a_transfer_with_two_tags(
    usual: str, tags: tuple[str, str], named: tuple[str, list[int]]
) -> None:
    job = Job(3)
    for _ in range(4):
        job.rank(0).send(1)
        job.rank(1).recv(0)
    evidence = job.run()
    for rank, tag in enumerate(tags):
        *before, last = [o for o in evidence.ops[rank].operations if o.op in ("send", "recv")]
        for op in before:
            op.detail = usual
        last.detail, last.state, last.left_s = tag, "entered", 0.0
    evidence.earlier = dict(evidence.ops)
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == named
    assert ("tags that differ" in cause.summary) == ("" in tags)


def test_transfers_with_tags_may_be_called_in_another_order() -> None:
    job = Job(2)
    job.rank(0).send(1).send(1)
    job.rank(1).recv(0)
    evidence = job.run()
    first, second = (o for o in evidence.ops[0].operations if o.op == "send")
    [receive] = [o for o in evidence.ops[1].operations if o.op == "recv"]
    first.detail, second.detail, receive.detail = "tag 1", "tag 2", "tag 2"
    for op in (first, second, receive):
        op.state, op.left_s = "entered", 0.0
    assert "mismatch" not in {c.kind for c in diagnose_ops(evidence).findings}


def test_of_two_that_have_no_like_the_one_that_left_its_own_rhythm_is_named() -> None:
    """Pairs 0, 3 and 1, 2: their groups are of one size, but not of one distance."""
    job = Job(4)
    job.group("pair", [0, 3])
    job.group("pair", [1, 2])
    for round_ in range(9):
        for rank in range(4):
            skips = (rank, round_) == (2, 8)
            for _ in range(1 if skips else 2):
                job.rank(rank).all_reduce("pair")
            job.rank(rank).all_reduce("world")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("order", [2])


def test_receives_from_any_rank_have_no_other_side() -> None:
    """All wait for a message that nobody sends: no link is at fault, and no rank alone."""
    job = Job(3)
    for rank in range(3):
        job.rank(rank).recv(-1)
    verdict = diagnose_ops(job.run())
    assert (verdict.status, verdict.findings) == ("unknown", [])


def crossing(first: dict[int, str]) -> Job:
    """Two by two ranks that reduce in their row and in their column, at last in the order that
    `first` says.
    """
    job = Job(4)
    for name, ranks in (("r0", [0, 1]), ("r1", [2, 3]), ("c0", [0, 2]), ("c1", [1, 3])):
        job.group(name, ranks)
    for rank in range(4):
        row, column = f"r{rank // 2}", f"c{rank % 2}"
        for _ in range(4):
            job.rank(rank).all_reduce(row).all_reduce(column)
        own = [row, column] if first[rank] == "row" else [column, row]
        job.rank(rank).all_reduce(own[0]).all_reduce(own[1])
    return job


def test_of_a_ring_of_crossing_groups_no_side_is_to_blame() -> None:
    """Seen from either side, the other one made the two calls in another order."""
    found = diagnose_ops(crossing({0: "row", 1: "column", 2: "column", 3: "row"}).run())
    [finding] = found.findings
    assert finding.ranks == [0, 1, 2, 3] and finding.kind == "order"
    said = wording.summary(finding)
    assert "wait for one another: ranks 0,3 in all_reduce" in said and "ranks 1-2 in all_" in said
