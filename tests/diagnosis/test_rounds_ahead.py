"""Sends and receives by stacks: who has gone on to a later round, or past all of them, and who polls."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from tests.support.captures import C10D, captured, causes, judged, sample, stack, still, thread

FILE = "/app/halo.py"


def polling(rank: int, peer: int, step: int, later: int = 0, counts: str = "step") -> RankCapture:
    """A rank that asks again and again for a message of `peer`, and runs in between."""

    def at(number: int) -> list[Frame]:
        asks = Frame("receive", FILE, 16, "comm.Irecv(buf, source)", {"src": peer})
        asks.handle = "irecv"
        around = Frame("main", FILE, 50, "advance(u, step)", {"step": number})
        around.counts = counts
        return [asks, around]

    seen = [(0.0, at(step), 10), (1.0, at(step + later), 60)]
    return captured(rank, [sample(t, thread(f, switches=n)) for t, f, n in seen])


def test_who_is_a_round_ahead_of_those_who_wait_for_it_is_named() -> None:
    found = judged(polling(0, 1, 11), polling(1, 2, 9), polling(2, 1, 10), polling(3, 2, 9))
    assert causes(found) == [("order", [2])], found.summary
    assert "it is a round ahead, and the others wait for what it has not sent" in found.summary


@pytest.mark.parametrize(("later", "counts"), [(1, "step"), (0, "")])
def test_loops_that_count_on_or_are_not_counted_are_no_waits(later: int, counts: str) -> None:
    """The next message of a job that goes on is asked for at the same line."""
    peers = {0: 1, 1: 2, 2: 1, 3: 2}
    ranks = [polling(r, peer, 9 + r % 2, later, counts) for r, peer in peers.items()]
    found = judged(*ranks)
    assert found.causes == [] and found.status != "hang", found.summary


def receives(peer: int, function: str, line: int) -> list[Frame]:
    call = Frame("recv", C10D, 27, "", {"src": peer})
    return [call, *stack((function, FILE, 48), ("step", FILE, line), ("main", FILE, 88))]


def pipeline(*waits: int, line: int = 66) -> Diagnosis:
    """Ranks in a receive from the rank after, and all further ones in the reduction behind it."""
    call = Frame("all_reduce", C10D, 52, group="world")
    reduces = [call, *stack(("step", FILE, 69), ("main", FILE, 88))]
    return judged(
        *(still(r, receives(r + 1, "backward", line) if r in waits else reduces) for r in range(4))
    )


def test_who_went_past_what_a_chain_of_ranks_waits_for_is_named() -> None:
    found = pipeline(0, 1)
    assert causes(found) == [("order", [2])], found.summary
    assert found.causes[0].confidence == 0.6


def test_a_chain_of_one_names_both_and_a_later_line_shows_nothing() -> None:
    assert causes(pipeline(1)) == [("p2p_unmatched", [1, 2])]
    assert causes(pipeline(0, 1, line=70)) != [("order", [2])]


def test_the_end_of_a_chain_may_itself_wait_for_its_next_one() -> None:
    """The first stage has gone on to its backwards, and all others wait for one forward more."""
    first = still(0, receives(1, "backward", 70))
    found = judged(first, *(still(r, receives(r - 1, "forward", 69)) for r in (1, 2, 3)))
    assert causes(found) == [("p2p_unmatched", [0])], found.summary
    found = judged(first, *(still(r, receives(r - 1, "forward", 71)) for r in (1, 2, 3)))
    assert causes(found) == [("p2p_unmatched", [0, 1])], (
        "who is behind need not have left a call out"
    )


def test_who_is_in_a_collective_while_two_wait_for_messages_of_it_is_named() -> None:
    """Its stage ends after fewer micro-batches: the ranks on both sides of it wait for more."""
    call = Frame("all_reduce", C10D, 52, group="world")
    reduces = [call, *stack(("step", FILE, 80), ("main", FILE, 97))]
    found = judged(
        still(0, receives(1, "backward", 73)),
        still(1, receives(2, "backward", 73)),
        still(2, reduces),
        still(3, receives(2, "forward", 70)),
    )
    assert causes(found) == [("order", [2])], found.summary


NESTED = "loss = stage.backwards(stage.forwards(plan, rows))"


def in_loop(
    op: str, peer: int, function: str, counts: str, code: str, step: int = 6
) -> list[Frame]:
    """A send or receive in a function of `main`, which counts the steps, in a loop of its own or not."""
    call = Frame(op, C10D, 27, "", {"dst" if op == "send" else "src": peer})
    around = Frame(f"Stage.{function}", FILE, 36 if function == "forwards" else 49)
    around.counts = counts
    main = Frame("main", FILE, 66, code, {"step": step})
    main.counts = "step"
    return [call, around, main]


def stages(counts: str = "m", code: str = NESTED, step: int = 6) -> Diagnosis:
    """The third of four stages has gone on to its backwards, those beside it are in their forwards."""
    return judged(
        still(0, in_loop("recv", 1, "backwards", counts, code)),
        still(1, in_loop("send", 2, "forwards", counts, code)),
        still(2, in_loop("recv", 3, "backwards", counts, code, step)),
        still(3, in_loop("recv", 2, "forwards", counts, code)),
    )


def test_who_has_left_the_loop_in_which_both_neighbours_wait_for_it_is_named() -> None:
    found = stages()
    assert causes(found) == [("p2p_unmatched", [2])], found.summary
    assert "it has left the loop in which the others wait for it" in found.summary


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ("", NESTED),  # one forward and one backward in turn: who is in which depends on the stage
        ("while", NESTED),
        ("m", "serve(9) if rank == 2 else work(rank)"),  # parts of the program, as of a server
        ("m", "loss = stage.backwards("),
    ],
)
def test_what_shows_no_order_names_both(counts: str, code: str) -> None:
    assert causes(stages(counts, code)) == [("p2p_unmatched", [2, 3])]


def test_whom_both_neighbours_wait_for_in_the_loop_of_one_other_function_is_named() -> None:
    """Whichever of the two comes first: it goes another number of rounds than they."""
    found = stages(code="stage.forwards(stage.backwards())")
    assert causes(found) == [("p2p_unmatched", [2])], found.summary
    assert "most likely rank 2 made more or fewer rounds" in found.summary


def apart(counts: str, only: str) -> Diagnosis:
    """The same where the step calls the two functions on lines of their own, which may be for some
    ranks.
    """

    def at(frames: list[Frame]) -> list[Frame]:
        [*inner, main] = frames
        first = inner[1].name == "Stage.forwards"
        main.line, main.code, main.only = (66 if first else 67), "", only
        return frames

    return judged(
        still(0, at(in_loop("recv", 1, "backwards", counts, ""))),
        still(1, at(in_loop("send", 2, "forwards", counts, ""))),
        still(2, at(in_loop("recv", 3, "backwards", counts, ""))),
        still(3, at(in_loop("recv", 2, "forwards", counts, ""))),
    )


def test_so_is_one_that_has_gone_on_to_the_next_line() -> None:
    assert causes(apart("m", "")) == [("p2p_unmatched", [2])]


@pytest.mark.parametrize(("counts", "only"), [("", ""), ("while", ""), ("m", "rank == 2")])
def test_of_one_loop_around_both_or_of_parts_for_some_ranks_both_are(
    counts: str, only: str
) -> None:
    assert causes(apart(counts, only)) == [("p2p_unmatched", [2, 3])]
