"""Ranks in several operations, by stacks alone: each is said to be in what it is in, and one is named
only where a loop's count or its own line of the program parts it from all others.
"""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import C10D, causes, judged, still

_FIT = "/site-packages/lightning/pytorch/loops/training_epoch_loop.py"


def in_loop(rank: int, op: str, line: int, count: int) -> RankCapture:
    """A call in a loop over micro-batches, which has come to `count`."""
    main = Frame("main", "/app/train.py", line, values={"i": count})
    return still(rank, [Frame(op, C10D, 9), main])


def test_each_rank_is_said_to_be_in_its_own_operation() -> None:
    """One has a micro-batch fewer: the three others are in another one, and in two operations."""
    said = judged(
        in_loop(0, "all_gather", 59, 3),
        in_loop(1, "reduce_scatter", 60, 2),
        in_loop(2, "all_reduce", 60, 3),
        in_loop(3, "all_reduce", 60, 3),
    )
    assert causes(said) == [("order", [1])]
    summary = said.causes[0].summary
    assert "ranks 2-3 in all_reduce (train.py:60), rank 0 in all_gather (train.py:59)" in summary
    assert "rank 1 alone is behind" in summary and "extra call" not in summary


def test_none_is_named_where_the_lines_alone_part_two_and_one_and_one() -> None:
    for lines in ((59, 60, 61, 61), (61, 60, 59, 59), (59, 61, 60, 60)):
        ops = ("all_gather", "reduce_scatter", "all_reduce", "all_reduce")
        ranks = [
            in_loop(rank, op, line, 3)
            for rank, (op, line) in enumerate(zip(ops, lines, strict=True))
        ]
        said = judged(*ranks)
        assert (said.status, said.causes) == ("unknown", []), said.summary
        assert f"rank 0 in all_gather (train.py:{lines[0]})" in said.summary


def in_fit(
    rank: int, op: str, *, line: int, batch: int = -1, own: tuple[Frame, ...] = ()
) -> RankCapture:
    """A call of all ranks below a framework's loop; `own`: the user's callback around it."""
    values = {"batch_idx": batch} if batch >= 0 else {}
    loop = Frame("advance", _FIT, line, values=values)
    fit = Frame("<module>", "/app/fit.py", 61)
    return still(rank, [Frame(op, C10D, 9, group="world"), *own, loop, fit])


def callback_of(rank: int, batch: int) -> RankCapture:
    return in_fit(rank, "barrier", line=375, batch=batch, own=(Frame("on_end", "/app/fit.py", 22),))


def test_one_in_a_callback_of_an_earlier_batch_is_named() -> None:
    """Not the one that is in a third operation, and comes first by its line."""
    said = judged(
        in_fit(0, "all_reduce", line=352, batch=20),
        in_fit(1, "broadcast", line=300),
        in_fit(2, "all_reduce", line=352, batch=20),
        callback_of(3, 19),
    )
    assert causes(said) == [("order", [3])]
    summary = said.causes[0].summary
    assert (
        "barrier (fit.py:22), ranks 0,2 in all_reduce (fit.py:61), rank 1 in broadcast" in summary
    )


def test_one_in_a_callback_past_a_reduction_that_others_wait_in_is_named() -> None:
    """No rank can have completed it before these: it left the call out."""
    for batch in (20, 21):
        said = judged(
            in_fit(0, "all_reduce", line=352, batch=20),
            in_fit(1, "broadcast", line=300),
            in_fit(2, "all_reduce", line=352, batch=20),
            callback_of(3, batch),
        )
        assert causes(said) == [("order", [3])], said.summary
        assert "ranks 0,2 in all_reduce" in said.causes[0].summary


def in_function(rank: int, function: str, line: int, step: int) -> RankCapture:
    """A functional collective of a group without known members, in a function that main calls."""
    call = Frame("wait_tensor", "/site-packages/torch/distributed/_functional_collectives.py", 9)
    own = Frame(function, "/app/tp.py", line)
    main = Frame("main", "/app/tp.py", 50 + line, values={"step": step})
    return still(rank, [call, own, main])


def test_two_and_two_in_two_functions_are_said_and_none_is_named() -> None:
    """Those that are further may never have come to the call: it is not said that they completed it."""
    said = judged(
        in_function(0, "report", 43, 12),
        in_function(1, "forward", 16, 13),
        in_function(2, "report", 43, 12),
        in_function(3, "forward", 16, 13),
    )
    assert (said.status, said.causes) == ("unknown", [])
    assert "ranks 0,2 wait in" in said.summary and "in report (tp.py:43)" in said.summary
    assert "ranks 1,3 in" in said.summary and "in forward (tp.py:16)" in said.summary


def test_two_that_are_behind_in_one_function_are_still_in_communication() -> None:
    said = judged(*[in_function(rank, "step", 16 + rank % 2, 12) for rank in range(4)])
    assert causes(said) == [("in_communication", [0, 2])]


def of_world(rank: int, op: str, line: int) -> RankCapture:
    main = Frame("main", "/app/train.py", line, values={"step": 11})
    return still(rank, [Frame(op, C10D, 9, group="world"), main])


def test_the_two_sides_of_a_broadcast_are_not_named_for_one_that_left_it_out() -> None:
    """The root calls it from a line of its own; rank 1 is past it, as rank 2 is that completed it."""
    said = judged(
        of_world(0, "broadcast", 13),
        of_world(1, "all_gather", 22),
        of_world(2, "all_gather", 22),
        of_world(3, "broadcast", 18),
    )
    assert (said.status, said.causes) == ("unknown", []), said.summary
    assert "ranks 1-2 wait in all_gather (train.py:22)" in said.summary
    # A reduction has one side only: who is in another one is apart.
    reduced = judged(
        of_world(0, "all_reduce", 13),
        of_world(1, "all_gather", 22),
        of_world(2, "all_gather", 22),
        of_world(3, "all_reduce", 18),
    )
    assert reduced.causes


def in_exchange(rank: int, line: int) -> RankCapture:
    """A receive of MPI from a neighbour that its line does not show, below the line of an exchange."""
    own = Frame("exchange", "/app/heat.py", line, "comm.Recv(row, source=west)")
    return still(rank, [own, Frame("main", "/app/heat.py", 51)])


def in_sum(rank: int) -> RankCapture:
    return still(rank, [Frame("main", "/app/heat.py", 54, "comm.Allreduce(a, b)")])


def test_those_who_are_past_an_exchange_with_neighbours_have_not_left_it_out() -> None:
    """The others may wait for one another, with tags that differ; one alone that is past it did."""
    waits = [in_exchange(0, 33), in_exchange(1, 33), in_exchange(4, 35)]
    said = judged(*waits, in_sum(2), in_sum(3))
    assert (said.status, said.causes) == ("unknown", []), said.summary
    assert causes(judged(*waits[:2], in_exchange(2, 35), in_sum(3))) == [("order", [3])]
