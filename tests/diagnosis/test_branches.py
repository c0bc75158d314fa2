"""Ranks that wait in several operations of a framework, by stacks alone: the branch of the program
that a few took, and what is a wait though no operation shows.
"""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import (
    C10D,
    WAIT,
    captured,
    causes,
    judged,
    sample,
    stack,
    still,
    thread,
)

FSDP = "/site-packages/torch/distributed/fsdp/_collectives.py"
STEP = ("main", "/app/train.py", 5)


def below(op: str, line: int, function: str, frame: tuple[str, str, int] = STEP) -> list[Frame]:
    """An operation that a framework calls in this function, below a line of the user's."""
    framework = (function, "/site-packages/torch/nn/modules/module.py", 40)
    return stack((op, C10D, 9), ("foreach", FSDP, line), framework, frame)


def test_one_is_in_another_call_than_three_that_are_in_two_operations_of_one() -> None:
    """Its shard waits in one of them, the other replica behind that in another."""
    backward = [
        still(0, below("reduce_scatter_tensor", 619, "backward")),
        still(2, below("all_reduce", 658, "backward")),
        still(3, below("all_reduce", 658, "backward")),
    ]
    said = judged(*backward, still(1, below("all_gather_into_tensor", 364, "forward")))
    assert causes(said) == [("order", [1])]
    assert said.causes[0].confidence == 0.45
    assert "most likely rank 1 took another path" in said.causes[0].summary


def test_no_side_of_three_is_named_without_a_small_one() -> None:
    parts = [
        still(0, below("all_reduce", 1, "forward")),
        still(1, below("all_gather", 2, "backward")),
        still(2, below("broadcast", 3, "forward")),
        still(3, below("reduce_scatter", 4, "backward")),
    ]
    said = judged(*parts)
    assert (said.status, said.causes) == ("unknown", []), said.summary


def test_an_object_call_with_another_root_is_a_mismatch() -> None:
    def scattering(source: int) -> list[Frame]:
        outer = Frame("scatter_object_list", C10D, 41, values={"src": source})
        inner = [Frame("broadcast", C10D, 9), Frame("wrapper", _LOGGER, 83, group="sub")]
        around = Frame("wrapper", _LOGGER, 83, group="world")
        return [*inner, outer, around, Frame("share", "/app/train.py", 7)]

    said = judged(*[still(rank, scattering(1 if rank == 2 else 0)) for rank in range(4)])
    assert causes(said) == [("mismatch", [2])]
    assert "rank 2: 1" in said.causes[0].summary


_LOGGER = "/site-packages/torch/distributed/c10d_logger.py"


def jax_rank(rank: int, code: str = "w, loss = step(w, x)", call: str = "futex") -> RankCapture:
    """One that is blocked at this line of the user's, in no Python below it."""
    line = [Frame("main", "/app/train.py", 37, code, values={"it": 7})]
    samples = [sample(at, thread(line, syscall=call)) for at in (0.0, 1.0)]
    return captured(rank, samples)


def gathering(rank: int) -> RankCapture:
    gather = Frame("process_allgather", "/site-packages/jax/experimental/multihost_utils.py", 9)
    return still(rank, [gather, Frame("main", "/app/train.py", 41, values={"it": 6})])


def test_compiled_calls_of_jax_are_waits() -> None:
    said = judged(gathering(0), *map(jax_rank, (1, 2, 3)))
    assert causes(said) == [("order", [0])]
    assert "ranks 1-3 in compiled function in main (train.py:37)" in said.causes[0].summary
    # The rank that did not come to it is outside
    asleep = captured(3, [sample(at, thread([Frame("load", "/app/d.py", 3)])) for at in (0.0, 1.0)])
    said = judged(gathering(0), jax_rank(1), jax_rank(2), asleep)
    assert causes(said) == [("not_entered", [3])]


def test_jax_in_the_memory_of_all_ranks_shows_its_compiled_calls() -> None:
    """No stack has a frame of it: two wait in one call, one in the call before, one for a lock."""
    calls = ("shared = over_local(shared)", *["shared = over_nodes(shared)"] * 2)
    ranks = [jax_rank(rank, code) for rank, code in enumerate(calls)]
    ranks[0].samples[0].threads[0].frames[0].line = ranks[0].samples[1].threads[0].frames[
        0
    ].line = 36
    lock = [Frame("Journal.rotate", "/app/train.py", 30, "self.guard.acquire()"), *WAITED_IN]
    ranks.append(captured(3, [sample(at, thread(lock, syscall="futex")) for at in (0.0, 1.0)]))
    assert judged(*ranks).causes == [], "the lines alone could wait for anything"
    for rank in ranks:
        rank.has_jax = True
    said = judged(*ranks)
    assert causes(said) == [("not_entered", [3])], said.summary
    ranks[3].has_jax = False
    assert judged(*ranks).causes == [], "not a job of JAX alone"


def test_who_is_at_the_coordinators_barrier_waits_in_jax_too() -> None:
    """Its batches are over first: its client is compiled, so that no frame of JAX shows on any rank."""
    code = 'client.wait_at_barrier("epoch-0", 600_000)'
    ahead = still(
        2, [Frame("finish", "/app/train.py", 42, code), Frame("main", "/app/train.py", 57)]
    )
    ranks = [*(jax_rank(rank, "w, loss = update(w, x, y)") for rank in (0, 1, 3)), ahead]
    for rank in ranks:
        rank.has_jax = True
    said = judged(*ranks)
    assert causes(said) == [("order", [2])], said.summary
    assert "ranks 0-1,3 in compiled function" in said.summary
    ahead.has_jax = False
    assert causes(judged(*ranks)) != [("order", [2])], "not a job of JAX alone"


def test_a_rank_that_has_gone_on_to_the_end_of_jax_is_named() -> None:
    """Its shutdown waits at a barrier for all: it had made fewer steps."""
    shutdown = Frame("State.shutdown", "/site-packages/jax/_src/distributed.py", 199)
    ended = still(1, [shutdown, Frame("finish", "/app/train.py", 55), *WAITED_IN])
    said = judged(jax_rank(0), ended, jax_rank(2), jax_rank(3))
    assert causes(said) == [("end_stall", [1])], said.summary
    assert "has gone on to jax.distributed.shutdown in finish (train.py:55)" in said.summary


WAITED_IN = [Frame("main", "/app/train.py", 40)]


def test_a_line_that_asks_an_array_of_jax_waits_though_it_leaves_no_frame() -> None:
    """Its wait wakes up now and then, as `float(loss)` does."""
    shutdown = Frame("State.shutdown", "/site-packages/jax/_src/distributed.py", 199)
    ended = still(2, [shutdown, Frame("main", "/app/train.py", 48)])

    def asks(rank: int, code: str) -> RankCapture:
        own = [Frame("main", "/app/train.py", 43, code)]
        woken = [thread(own, syscall="futex", switches=n) for n in (7, 19)]
        return captured(rank, [sample(at, one) for at, one in enumerate(woken)])

    for code in ("loss.block_until_ready()", "jax.block_until_ready(loss)"):
        said = judged(asks(0, code), asks(1, code), ended, asks(3, code))
        assert causes(said) == [("end_stall", [2])], said.summary
    said = judged(
        *(asks(rank, "loss.report()") for rank in (0, 1)), ended, asks(3, "loss.report()")
    )
    assert causes(said) == [("end_stall", [0, 1, 3])]


def result_of_jax(rank: int, line: int, cpu_s: float = 0.0, received: int = -1) -> RankCapture:
    """One that waits for a result of JAX, as in `float(loss)`: the wait wakes up now and then."""
    array = "/site-packages/jax/_src/array.py"
    wait = [
        Frame("ArrayImpl._value", array, 623),
        Frame("ArrayImpl.__float__", array, 300),
        Frame("main", "/app/train.py", line),
    ]
    threads = [
        thread(wait, syscall="futex", switches=7),
        thread(wait, syscall="futex", switches=19, cpu_s=cpu_s),
    ]
    samples = [sample(at, one, received=7 + at * received) for at, one in enumerate(threads)]
    return captured(rank, samples, gpu="none" if received >= 0 else "")


def test_of_two_waits_in_jax_the_smaller_side_is_apart() -> None:
    said = judged(*[result_of_jax(rank, 37) for rank in (0, 1, 3)], gathering(2))
    assert causes(said) == [("order", [2])], said.summary
    assert "most likely rank 2 took another path" in said.causes[0].summary
    # At an earlier line, too
    said = judged(*map(gathering, (0, 1, 3)), result_of_jax(2, 37))
    assert causes(said) == [("order", [2])], said.summary
    few = judged(*map(gathering, (0, 1)), *[result_of_jax(rank, 37) for rank in (2, 3, 4)])
    assert causes(few) == [("order", [0, 1])], few.summary


def test_of_two_equal_sides_in_jax_none_is_accused() -> None:
    said = judged(*map(gathering, (0, 1)), *[result_of_jax(rank, 37) for rank in (2, 3)])
    assert (said.status, said.causes) == ("unknown", []), said.summary


def test_all_in_one_wait_of_jax_that_wakes_up_may_get_on() -> None:
    said = judged(*[result_of_jax(rank, 37) for rank in range(4)])
    assert (said.status, said.causes) == ("unknown", []), said.summary


@pytest.mark.parametrize(
    ("received", "found"), [(0, [("order", [0])]), (900, [("order", [0])]), (4000, []), (-1, [])]
)
def test_waits_of_jax_at_two_lines_in_which_nothing_came_in(
    received: int, found: list[tuple[str, list[int]]]
) -> None:
    """Without a GPU that could be at work."""
    lines = (41, 37, 37, 37)
    said = judged(*[result_of_jax(rank, line, 0.0, received) for rank, line in enumerate(lines)])
    assert causes(said) == found, said.summary
    assert "hangdoctor run" not in said.causes[0].advice if found else said.status == "unknown"


def test_a_rank_that_computes_in_jax_waits_for_no_rank() -> None:
    said = judged(*map(gathering, (0, 1, 3)), result_of_jax(2, 37, cpu_s=0.05))
    assert ("order", [2]) not in causes(said)
    assert {rank for cause in said.causes for rank in cause.ranks} <= {2}


def test_a_lock_of_the_users_is_no_compiled_call() -> None:
    for code, call in (("with lock:", "futex"), ("step(w)", "read(4 -> /data/a)")):
        locked = [jax_rank(rank, code, call) for rank in (1, 2, 3)]
        said = judged(gathering(0), *locked)
        assert "compiled function" not in said.summary


def test_few_behind_most_at_an_unknown_wait_made_an_extra_call() -> None:
    """Not: stuck in a call that the others have completed."""
    beyond = stack(("step", "/app/native.py", 3), ("main", "/app/train.py", 9))
    early = stack(("barrier", C10D, 9), ("main", "/app/train.py", 5))
    said = judged(still(0, early), *[still(rank, beyond) for rank in (1, 2, 3)])
    assert causes(said) == [("order", [0])]
    assert "most likely rank 0 made an extra call" in said.causes[0].summary


def test_a_print_of_a_result_that_is_blocked_is_no_wait_for_the_device() -> None:
    line = [Frame("log", "/app/train.py", 28, "print(loss.item())")]
    blocked = thread(line, syscall="write(1 -> pipe:[77])")
    said = judged(
        *[still(rank, WAIT) for rank in range(3)],
        captured(3, [sample(at, blocked) for at in (0.0, 1.0)]),
    )
    assert causes(said) == [("not_entered", [3])]
    assert "blocked in write on a pipe" in said.causes[0].summary


def test_a_for_loop_that_counts_is_slow_and_a_while_is_busy() -> None:
    cases = [("i", (5, 900), "slow"), ("", (5, 900), "busy"), ("i", (900, 5, 400), "slow")]
    for loop, numbers, kind in cases:
        at = [Frame("tokenize", "/app/d.py", 7, counts=loop, values={"i": n}) for n in numbers]
        samples = [
            sample(float(n), thread([frame], state="R", cpu_s=float(n)))
            for n, frame in enumerate(at)
        ]
        waiting = [still(rank, WAIT) for rank in range(3)]
        assert causes(judged(*waiting, captured(3, samples))) == [(kind, [3])]


def test_one_rank_alone_behind_in_a_handle_is_not_accused() -> None:
    """It may wait for a message of a rank that is past it."""
    exchange = [
        Frame("exchange", "/app/train.py", 9, "q.wait()"),
        Frame("main", "/app/train.py", 4),
    ]
    later = [Frame("all_reduce", C10D, 3, group="world"), Frame("main", "/app/train.py", 8)]
    said = judged(still(3, exchange), *[still(rank, later) for rank in range(3)])
    assert (said.status, said.causes) == ("unknown", []), said.summary


def receives(rank: int) -> RankCapture:
    """From any rank: no peer is in its stack."""
    return still(rank, [Frame("recv", C10D, 9), Frame("wait", "/app/steal.py", 24)])


def test_ranks_that_all_receive_wait_for_what_nobody_sends() -> None:
    said = judged(*map(receives, range(4)))
    assert (said.status, said.causes) == ("unknown", [])
    assert "ranks 0-3 wait in recv in wait (steal.py:24), none of them sends" in said.summary


def test_an_actor_that_has_returned_is_idle() -> None:
    loop = stack(("Worker.main_loop", "/v/site-packages/ray/_private/worker.py", 1069))
    said = judged(*[still(rank, WAIT) for rank in range(3)], still(3, loop))
    assert causes(said) == [("not_entered", [3])]
    assert "it is idle between two calls of Ray in Worker.main_loop" in said.summary
    assert "ray.get" in said.causes[0].advice


def test_a_comprehension_is_a_part_of_its_function() -> None:
    """A loop without end is found inside of it and beside it: no progress, and no name of its own."""
    fill = [Frame("Loader.fill", "/app/data.py", 44), Frame("main", "/app/train.py", 83)]
    inside = [Frame("Loader.fill.<locals>.<genexpr>", "/app/data.py", 44), *fill]
    threads = [
        thread(at, state="R", switches=9 * n, cpu_s=n) for n, at in enumerate((fill, inside))
    ]
    spins = captured(3, [sample(float(n), one, state="R") for n, one in enumerate(threads)])
    said = judged(*[still(rank, WAIT) for rank in range(3)], spins)
    assert causes(said) == [("busy", [3])], said.summary
    assert "it is computing in Loader.fill (data.py:44)" in said.summary
