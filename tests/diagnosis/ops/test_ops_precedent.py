"""Which of two sides is right: by other replicas, other stages, the iteration before, the same line earlier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.model.capture import Frame
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import Call, Job, only_cause, variant
from tests.support.ops_records import done, entered, evidence, rank_ops

PAIR = [0, 1]
Fields = dict[str, Any]


def two(past: list[Fields], now: tuple[Fields, Fields], **fields: object) -> list[RankOps]:
    """Two ranks with the same past, in an operation that they call differently."""
    before = [done(PAIR, n, **f) for n, f in enumerate(past, 1)]
    last = len(past) + 1
    return [
        rank_ops(rank, 2, [*before, entered(PAIR, last, **now[rank])], **fields) for rank in (0, 1)
    ]


LINE = {"site": "reduce (train.py:30)"}
FLOAT = {**LINE, "shapes": "[4]", "dtype": "float32", "reduce_op": "SUM"}
DIFFERENT: dict[str, Fields] = {
    "op": {"op": "reduce", "root": 0},
    "dtype": {"dtype": "float16"},
    "shapes": {"shapes": "[5]"},
    "reduce op": {"reduce_op": "MAX"},
}


@pytest.mark.parametrize("field", DIFFERENT)
@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_the_one_is_wrong_that_never_called_it_so_on_this_line(
    field: str, odd: int
) -> None:
    changed = FLOAT | DIFFERENT[field]
    now = (changed, FLOAT) if odd == 0 else (FLOAT, changed)
    cause = only_cause(diagnose_ops(evidence(two([FLOAT, FLOAT], now))))
    assert (cause.kind, cause.ranks, cause.confidence) == ("mismatch", [odd], 0.9)
    assert cause.alternatives[0].ranks == [1 - odd]
    assert "earlier" in cause.alternatives[0].why_not


def test_a_root_that_was_never_used_on_this_line_is_wrong() -> None:
    here = {**LINE, "op": "broadcast", "dtype": "int64"}
    past = [{**here, "root": 0}] * 3
    now = ({**here, "root": 0}, {**here, "root": 1})
    cause = only_cause(diagnose_ops(evidence(two(past, now))))
    assert (cause.kind, cause.ranks) == ("mismatch", [1])
    assert "root 1" in cause.summary and "root 0" in cause.summary


NOTHING_DECIDES: dict[str, tuple[list[Fields], Fields]] = {
    "one earlier call is not enough": ([FLOAT], FLOAT | {"shapes": "[5]"}),
    "both values were used before": (
        [FLOAT, FLOAT | {"shapes": "[5]"}, FLOAT],
        FLOAT | {"shapes": "[5]"},
    ),
    "no line is recorded": (
        [{"shapes": "[4]"}, {"shapes": "[4]"}],
        {"shapes": "[5]", "site": ""},
    ),
    "the line is another one": (
        [{"shapes": "[4]", "site": "other (train.py:9)"}] * 3,
        FLOAT | {"shapes": "[5]"},
    ),
}


@pytest.mark.parametrize("case", NOTHING_DECIDES)
def test_else_both_are_named(case: str) -> None:
    past, odd = NOTHING_DECIDES[case]
    usual = {**odd, "shapes": "[4]"}
    cause = only_cause(diagnose_ops(evidence(two(past, (usual, odd)))))
    assert (cause.kind, cause.ranks, cause.confidence) == ("mismatch", [0, 1], 0.5)
    assert cause.alternatives == []
    assert "[4]" in cause.summary and "[5]" in cause.summary


def test_the_iteration_before_decides() -> None:
    """Each iteration reduces [4] and then [8], from one helper; in its third, rank 1 begins with [8]."""
    helper = {"dtype": "float32"}
    shapes = ["[4]", "[8]", "[4]", "[8]"]
    past = [{**helper, "shapes": s, "iteration": n // 2} for n, s in enumerate(shapes)]
    now = tuple({**helper, "shapes": s, "iteration": 2} for s in ("[4]", "[8]"))
    cause = only_cause(diagnose_ops(evidence(two(past, (now[0], now[1])))))
    assert (cause.kind, cause.ranks) == ("mismatch", [1])


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"overwritten": True}, [0, 1]), ({}, [1])],
    ids=["its records may begin within it", "it is there as a whole"],
)
def test_an_iteration_that_may_be_cut_decides_nothing(fields: Fields, named: list[int]) -> None:
    past = [{"shapes": "[4]", "iteration": 1}, {"shapes": "[8]", "iteration": 1}]
    now = ({"shapes": "[4]", "iteration": 2}, {"shapes": "[8]", "iteration": 2})
    cause = only_cause(diagnose_ops(evidence(two(past, now, **fields))))
    assert (cause.kind, cause.ranks) == ("mismatch", named)


def test_an_older_iteration_in_the_records_shows_that_the_last_is_whole() -> None:
    past = [{"shapes": s, "iteration": n // 2} for n, s in enumerate(["[4]", "[8]"] * 2)]
    now = ({"shapes": "[4]", "iteration": 2}, {"shapes": "[8]", "iteration": 2})
    cause = only_cause(diagnose_ops(evidence(two(past, now, overwritten=True))))
    assert cause.ranks == [1]


SEND, RECV = "send_grad (pipe.py:47)", "recv_grad (pipe.py:43)"


def transfers(sent: list[int], awaited: list[int]) -> list[RankOps]:
    """Rank 1 sends with these tags, and does not wait; rank 0 waits for the last with another tag."""
    fields: dict[str, Any] = {"shapes": "[4]", "dtype": "float32"}
    sends = [
        done(PAIR, n, "send", site=SEND, peer=0, detail=f"tag {tag}", **fields)
        for n, tag in enumerate(sent, 1)
    ]
    receives = [
        done(PAIR, n, "recv", site=RECV, peer=1, detail=f"tag {tag}", **fields)
        for n, tag in enumerate(awaited, 1)
    ]
    receives[-1].state = "entered"
    # Both go on to other calls first: what is between the two is not the same on both.
    behind = entered(
        PAIR, 1, "recv", site="recv_act (pipe.py:35)", peer=0, detail="tag 9", **fields
    )
    return [rank_ops(0, 2, receives), rank_ops(1, 2, [*sends, behind])]


def test_the_side_whose_line_changed_its_tag_is_named_though_its_send_is_done() -> None:
    ops = transfers([130, 130, 30], [130, 130, 130])
    cause = only_cause(diagnose_ops(evidence(ops, ops)))
    assert (cause.kind, cause.ranks) == ("mismatch", [1])
    assert "with tag 30, rank 0 its recv with tag 130" in cause.summary


@pytest.mark.parametrize("odd", [0, 1])
def test_the_side_that_leaves_the_round_of_tags_is_named(odd: int) -> None:
    usual, other = [100, 101, 102] * 3 + [100], [100, 101, 102] * 3 + [101]
    ops = transfers(*((other, usual) if odd == 1 else (usual, other)))
    cause = only_cause(diagnose_ops(evidence(ops, ops)))
    assert (cause.kind, cause.ranks) == ("mismatch", [odd])


@pytest.mark.parametrize(("others", "named"), [(130, 1), (30, 0)])
def test_where_the_other_ranks_have_another_tag_since_then_who_kept_it_is_the_one(
    others: int, named: int
) -> None:
    """Rank 0 waits with a tag that it never had before, and rank 1 has sent with the usual one."""
    two_ranks = transfers([30, 30, 30], [30, 30, 130])
    fields: dict[str, Any] = {"shapes": "[4]", "dtype": "float32", "site": SEND}
    more = []
    for rank, peer in ((2, 3), (3, 2)):
        tags = [30, 30, others]
        sends = [
            done([2, 3], n, "send", peer=peer, detail=f"tag {tag}", **fields)
            for n, tag in enumerate(tags, 1)
        ]
        more.append(rank_ops(rank, 4, sends))
    ops = [*two_ranks, *more]
    cause = only_cause(diagnose_ops(evidence(ops, ops)))
    assert (cause.kind, cause.ranks) == ("mismatch", [named])


BACKWARD: Fields = {"site": "backward (train.py:30)", "shapes": "[4]"}
LOG: Fields = {"op": "reduce", "root": 0, "site": "collect (train.py:9)", "shapes": "[2]"}


def test_the_side_in_a_call_that_no_rank_had_made_before_left_the_usual_round() -> None:
    cause = only_cause(diagnose_ops(evidence(two([BACKWARD] * 3, (LOG, BACKWARD)))))
    assert (cause.kind, cause.ranks, cause.confidence) == ("mismatch", [0], 0.6)
    assert "which no rank had called before, where the others entered all_reduce" in cause.summary
    assert "round after round" in cause.alternatives[0].why_not


def test_where_records_have_no_line_a_call_is_told_by_its_shapes() -> None:
    """A call of the same shape in the set-up, before the rounds, does not make it usual."""
    setup: Fields = {"op": "reduce", "root": 0, "shapes": "[2]"}
    past = [setup, *([{"shapes": "[4]"}] * 3)]
    cause = only_cause(diagnose_ops(evidence(two(past, (LOG, BACKWARD)))))
    assert (cause.kind, cause.ranks) == ("mismatch", [0])


@pytest.mark.parametrize(
    ("past", "now"),
    [
        ([BACKWARD] * 2, (LOG, BACKWARD)),
        ([LOG, *[BACKWARD] * 4], (LOG, BACKWARD)),
        ([BACKWARD] * 4, (LOG, {**LOG, "op": "broadcast", "site": "save (train.py:50)"})),
        (
            [
                *[{"shapes": "[4]"}] * 2,
                {"op": "reduce", "root": 0, "shapes": "[2]"},
                *[{"shapes": "[4]"}] * 2,
            ],
            (LOG, BACKWARD),
        ),
    ],
    ids=[
        "too few rounds",
        "it was made before",
        "both are new",
        "between rounds, without its line",
    ],
)
def test_no_side_is_singled_out_by_a_call_that_is_not_new(
    past: list[Fields], now: tuple[Fields, Fields]
) -> None:
    cause = only_cause(diagnose_ops(evidence(two(past, now))))
    assert cause.ranks == [0, 1] and cause.confidence == 0.5


@pytest.mark.parametrize(
    ("sent", "awaited"),
    [([1, 2, 4], [1, 2, 3]), ([130, 30], [130, 130]), ([5, 5, 6], [5, 5, 7])],
    ids=["tags count", "one earlier transfer", "both changed"],
)
def test_tags_that_change_on_both_sides_or_count_single_out_no_side(
    sent: list[int], awaited: list[int]
) -> None:
    ops = transfers(sent, awaited)
    cause = only_cause(diagnose_ops(evidence(ops, ops)))
    assert (cause.kind, cause.ranks) == ("mismatch", [0, 1])


def stages(past: tuple[str, str], now: dict[int, Fields]) -> Job:
    """Two stages of a pair each, whose lines reduced these shapes before; one sends to the other."""
    job = Job(4, Layout(dp=1, pp=2, tp=2))
    job.group("tp", [0, 1])
    job.group("tp", [2, 3])
    job.group("pp", [0, 2])
    job.group("pp", [1, 3])
    for program in job.everyone():
        if program.number < 2:
            program.send(program.number + 2, "pp")
        else:
            program.recv(program.number - 2, "pp")
        program.all_reduce("tp", shapes=past[program.number // 2])
        fields = {"shapes": past[program.number // 2], **now.get(program.number, {})}
        program.all_reduce("tp", **fields).finish()
    return job


STAGES = {
    "another type": (("[4]", "[8]"), {1: {"dtype": "float16"}}, [1]),
    "another shape, where the stages are alike": (("[4]", "[4]"), {1: {"shapes": "[5]"}}, [1]),
    "another shape, where they differ": (("[4]", "[8]"), {1: {"shapes": "[5]"}}, [0, 1]),
    "in the last stage": (("[4]", "[4]"), {2: {"shapes": "[5]"}}, [2]),
}


@pytest.mark.parametrize("case", STAGES)
def test_another_stage_decides(case: str) -> None:
    past, now, named = STAGES[case]
    cause = only_cause(diagnose_ops(stages(past, now).run()))
    assert (cause.kind, cause.ranks) == ("mismatch", named)


def test_roots_are_compared_as_positions_in_their_groups() -> None:
    """Pairs broadcast from their first rank, whichever that is; rank 3 names the second."""
    job = Job(6, Layout(dp=3, pp=1, tp=2))
    for first in (0, 2, 4):
        job.group("tp", [first, first + 1])
    for program in job.everyone():
        first = program.number // 2 * 2
        program.broadcast("tp", first + 1 if program.number == 3 else first).finish()
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("mismatch", [3])
    assert cause.confidence == 0.94


def in_one(*fields: Fields, op: str = "all_reduce") -> list[RankOps]:
    """As many ranks, all in one operation, each with its own fields."""
    everyone = range(len(fields))
    return [rank_ops(r, len(fields), [entered(everyone, 1, op, **f)]) for r, f in enumerate(fields)]


def test_the_difference_is_told_by_a_member_that_has_recorded_it() -> None:
    types = [{"dtype": t} for t in ("", "float32", "float32", "float16")]
    cause = only_cause(diagnose_ops(evidence(in_one(*types))))
    assert (cause.kind, cause.ranks) == ("mismatch", [3])
    assert "with dtype float16, the others with dtype float32" in cause.summary


def test_a_root_that_is_not_recorded_agrees_with_any() -> None:
    roots = [{"root": root} for root in (-1, 0, 0)]
    cause = only_cause(diagnose_ops(evidence(in_one(*roots, op="broadcast"))))
    assert (cause.kind, cause.ranks) == ("in_communication", [0, 1, 2])


@pytest.mark.parametrize(("detail", "said"), [("", "a key"), ("'rank3/ready'", "'rank3/ready'")])
def test_a_wait_for_a_key_names_it_where_it_is_recorded(detail: str, said: str) -> None:
    ranks = in_one({"detail": detail}, {"detail": detail}, op="store_wait")
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("start_stall", [0, 1])
    assert f"wait for {said} in the store" in cause.summary


@pytest.mark.parametrize(
    "seen", [[], [0, 1, 3], [2], [0, 1, 2, 3]], ids=["no stacks", "of the others", "its own", "all"]
)
def test_the_one_rank_that_does_not_wait_for_a_key_should_have_set_it(seen: list[int]) -> None:
    before = done(range(4), 1)
    waits = entered(range(4), 1, "store_wait", detail="'vocab/0','vocab/2'")
    ranks = [rank_ops(r, 4, [before] if r == 2 else [before, waits]) for r in range(4)]
    found = evidence(ranks)
    found.places = {rank: Frame("wait", "train.py", 23) for rank in seen}
    cause = only_cause(diagnose_ops(found))
    assert (cause.kind, cause.ranks) == ("not_entered", [2])


def test_the_one_rank_that_went_on_is_named_and_not_those_that_wait_for_the_key() -> None:
    before, later = done(range(4), 1), entered(range(4), 2)
    waits = entered(range(4), 1, "store_wait", detail="'best/4'")
    ranks = [rank_ops(r, 4, [before, later if r == 0 else waits]) for r in range(4)]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("order", [0])
    assert "all_reduce #2, but ranks 1-3 wait for 'best/4' in the store" in cause.summary
    # Of two that went on, and two that wait, nothing shows which should have set it.
    ranks = [rank_ops(r, 4, [before, later if r < 2 else waits]) for r in range(4)]
    assert [c.ranks for c in diagnose_ops(evidence(ranks)).findings] == [[2, 3]]


def test_a_root_that_is_no_member_is_a_difference_and_no_error() -> None:
    ranks = [
        rank_ops(r, 4, [entered(range(4), 1, "broadcast", root=9 if r == 2 else 0)])
        for r in range(4)
    ]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("mismatch", [2])


# ----------------------------------------------------------------- a call left out, or a wrong one?


def ahead(changed: dict[int, Callable[[list[Call]], None]]) -> Job:
    """Three replicas of two slices that sum, take the maximum, and gather, each in its pair."""
    job = Job(6, Layout(dp=3, pp=1, tp=2))
    for first in (0, 2, 4):
        job.group("tp", [first, first + 1])
    for program in job.everyone():
        program.all_reduce("tp", site="")
        program.call("all_reduce", "tp", reduce_op="MAX", site="")
        program.call("all_gather", "tp", site="")
        program.finish()
        changed.get(program.number, lambda calls: None)(program.calls)
    return job


def without_first(calls: list[Call]) -> None:
    del calls[0]


def minimum(calls: list[Call]) -> None:
    calls[0] = variant(calls[0], reduce_op="MIN")


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [(without_first, "order", "skipped all_reduce #1"), (minimum, "mismatch", "reduce op MIN")],
)
def test_what_others_call_next_was_not_wrong_but_too_early(
    change: Callable[[list[Call]], None], kind: str, said: str
) -> None:
    cause = only_cause(diagnose_ops(ahead({3: change}).run()))
    assert (cause.kind, cause.ranks) == (kind, [3])
    assert said in cause.summary


def test_a_message_of_another_size_is_a_disagreement_of_its_two_sides() -> None:
    job = Job(4, Layout(dp=2, pp=2, tp=1))
    for rank in (0, 1):
        job.rank(rank).send(rank + 2, shapes="[8]").finish()
        job.rank(rank + 2).recv(rank, shapes="[9]" if rank else "[8]").finish()
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("mismatch", [3])
    assert "[9]" in cause.summary and "[8]" in cause.summary


# ----------------------------------------------------------------- records of pending operations alone


def pending(
    rank: int, operations: list[Operation], places: list[tuple[int, int]], completed: dict[int, int]
) -> RankOps:
    """A dump of active operations only, of three pairs; `completed` by size of the group."""
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    ops = rank_ops(rank, 6, operations, pair, only_active=True, runs_ahead=True, places=places)
    world, own = ops.groups
    ops.completed = {world.uid: completed[6], own.uid: completed[2]}
    return ops


def skipped_long_ago() -> list[RankOps]:
    """Rank 2 left its ninth reduction with rank 3 out: that one waits in it, all others over the whole job."""
    ranks = []
    for rank in range(6):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        if rank == 3:
            operations, number, at = [entered(pair, 9)], 9, 9
        else:
            operations, number, at = [entered(range(6), 2)], 2, 10 if rank == 2 else 11
        counts = {6: 1, 2: 8 if rank in (2, 3) else 9}
        ranks.append(pending(rank, operations, [(at, number)], counts))
    return ranks


def test_a_call_that_was_left_out_before_all_that_is_recorded_shows_in_the_places() -> None:
    cause = only_cause(diagnose_ops(evidence(skipped_long_ago(), layout=Layout(dp=3, tp=2))))
    assert (cause.kind, cause.ranks, cause.confidence) == ("order", [2], 0.75)


def test_what_the_first_rank_records_for_itself_accuses_no_rank() -> None:
    """Rank 0 has made five records more, in a group of its own; rank 3 does not come to the reduction of all."""
    behind = {6: 1, 2: 9}
    ranks = []
    for rank in range(6):
        record = 16 if rank == 0 else 11
        if rank == 3:
            ranks.append(pending(rank, [], [], behind))
        else:
            ranks.append(pending(rank, [entered(range(6), 2)], [(record, 2)], behind))
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("not_entered", [3])


OF_PENDING = {
    "by those on the same line": ({"site": "a (m.py:1)"}, "[4]", [1]),
    "by all lines, where they agree": ({}, "[4]", [1]),
    "not by all lines, where they do not": ({}, "[4] and [6]", [0, 1]),
}


@pytest.mark.parametrize("case", OF_PENDING)
def test_of_two_pending_calls_the_one_is_wrong_that_no_other_pair_makes(case: str) -> None:
    """The pair of ranks 0 and 1 is in its fifth reduction, the others in their seventh."""
    line, others, named = OF_PENDING[case]
    ranks = []
    for rank in range(6):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        number = 5 if rank < 2 else 7
        shapes = "[5]" if rank == 1 else "[4]"
        if "and" in others and rank > 3:
            shapes = "[6]"
        own = entered(pair, number, shapes=shapes, dtype="float32", **line)
        ranks.append(pending(rank, [own], [(number, number)], {6: 1, 2: number - 1}))
    of = evidence(ranks, earlier=ranks)
    found = [c for c in diagnose_ops(of).findings if c.kind == "mismatch"]
    assert [c.ranks for c in found] == [named]


@pytest.mark.parametrize("odd", [1, 2])
def test_of_two_tags_the_one_is_right_that_other_links_have_at_that_number(odd: int) -> None:
    """Tags count steps; a third rank had the same from its neighbour."""
    world = [0, 1, 2]

    def transfer(op: str, number: int, peer: int, tag: int, **fields: object) -> Operation:
        return entered(world, number, op, peer=peer, detail=f"tag {tag}", **fields)

    def link(op: str, peer: int) -> list[Operation]:
        return [transfer(op, n, peer, n, state="done", left_s=n) for n in (1, 2, 3, 4)]

    tags = {1: 4, 2: 4} | {odd: 5}
    records = [
        rank_ops(0, 3, link("send", 1)),
        rank_ops(1, 3, [*link("recv", 0), *link("send", 2)[:3], transfer("send", 4, 2, tags[1])]),
        rank_ops(2, 3, [*link("recv", 1)[:3], transfer("recv", 4, 1, tags[2])]),
    ]
    cause = only_cause(diagnose_ops(evidence(records)))
    assert (cause.kind, cause.ranks) == ("mismatch", [odd]), cause
    # Where no other link has either, both are named.
    for op in records[0].operations + records[1].operations[:4]:
        op.detail = f"tag {100 + op.seq}"
    assert only_cause(diagnose_ops(evidence(records))).ranks == [1, 2]


GATHER: Fields = {"op": "all_gather", "site": "main (train.py:78)"}
REDUCE: Fields = {"op": "all_reduce", "site": "main (train.py:79)"}
BARRIER: Fields = {"op": "barrier", "site": "open_version (train.py:39)"}
ROUND = [GATHER, REDUCE, BARRIER]


def one_call_on(usual: list[Fields], last: Fields, others: Fields) -> str:
    """What is said of rank 1 of three, which alone is in `last` after the calls of all."""
    before = [done([0, 1, 2], n, **call) for n, call in enumerate(usual, 1)]
    number = len(usual) + 1
    calls = [others, last, others]
    ranks = [
        rank_ops(rank, 3, [*before, entered([0, 1, 2], number, **call)])
        for rank, call in enumerate(calls)
    ]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert cause.ranks == [1]
    return cause.summary


def test_the_same_call_twice_in_a_row_is_one_too_many_or_a_round_left_out() -> None:
    said = one_call_on(ROUND * 3, BARRIER, GATHER)
    assert said.startswith(
        "Rank 1 called barrier #10 (train.py:39) twice in a row, where rank 0 went on to "
        "all_gather #10 (train.py:78): one call too many, or a round left out."
    )
    # All others have made it twice before, or it is not what this one made last.
    assert "skipped all_gather #12" in one_call_on(
        [*ROUND, BARRIER, *ROUND * 2, REDUCE], BARRIER, GATHER
    )
    assert "skipped all_gather #11" in one_call_on([*ROUND * 3, BARRIER], BARRIER, GATHER)
