"""Ranks that wait for one another in sends and receives: each with its own partner, and at its own line."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import C10D, causes, judged, stack, still


def transfer(rank: int, op: str, peer: int, *way: tuple[str, int]) -> RankCapture:
    """A rank in a send or receive with `peer`; `way`: the functions and lines of pipe.py, innermost first."""
    argument = "dst" if op == "send" else "src"
    call = Frame(op, C10D, 27, "", {argument: peer})
    own = stack(*((name, "/app/pipe.py", line) for name, line in way), ("main", "/app/pipe.py", 92))
    return still(rank, [call, *own])


def receiving(rank: int, peer: int) -> RankCapture:
    return transfer(rank, "recv", peer, ("Pipe.recv", 36), ("Pipe.forward", 53))


def test_each_rank_of_one_line_waits_for_its_own_partner() -> None:
    sends = transfer(0, "send", 3, ("Pipe.send", 32), ("Pipe.hand_target", 43))
    said = judged(sends, *(receiving(rank, rank - 1) for rank in (1, 2, 3)))
    assert causes(said) == [("p2p_unmatched", [0, 1, 2, 3])]
    assert (
        "ranks 1-3 in recv each from the rank before in Pipe.forward (pipe.py:53)" in said.summary
    )
    assert "rank 0 in send to rank 3 in Pipe.hand_target (pipe.py:43)" in said.summary
    assert "Compare pipe.py:53 with pipe.py:43" in said.advice
    evidence = [one.says for one in said.open[0].evidence]
    assert "in recv from rank 2 in Pipe.recv (app/pipe.py:36)" in evidence


def test_partners_that_are_no_neighbours_are_named() -> None:
    partners = {1: 2, 2: 3, 3: 0}
    sends = transfer(0, "send", 1, ("hand_on", 43))
    said = judged(sends, *(receiving(rank, peer) for rank, peer in partners.items()))
    assert "ranks 1-3 in recv each from one of ranks 0,2-3 in Pipe.forward" in said.summary


def test_calls_made_for_one_line_are_named_by_their_own() -> None:
    sends = transfer(0, "send", 3, ("send_on", 12), ("exchange", 20))
    takes = [transfer(r, "recv", r - 1, ("recv_on", 14), ("exchange", 20)) for r in (1, 2, 3)]
    said = judged(sends, *takes)
    assert "in send_on (pipe.py:12)" in said.summary and "in recv_on (pipe.py:14)" in said.summary


def test_two_that_send_to_each_other_are_a_pair_whatever_their_lines() -> None:
    """Stages 1 and 2 of a hand-written 1F1B: each send comes before its own receive."""
    forward = ("Pipe.send_activation", 18), ("Pipe.run_step", 63)
    back = ("Pipe.send_gradient", 26), ("Pipe.run_step", 66)
    ranks = [transfer(0, "send", 1, *forward), transfer(1, "send", 2, *forward)]
    said = judged(*ranks, transfer(2, "send", 1, *back), transfer(3, "recv", 2, ("Pipe.recv", 9)))
    assert (said.causes, [one.ranks for one in said.open]) == ([], [[1, 2]]), said.summary
    assert "Ranks 1-2 (n1) wait for one another: rank 1 in send to rank 2" in said.summary
