"""A hang in which nothing shows which of several ranks is wrong: none is a cause, and the sentence says so."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.report.terminal_report import plain
from tests.support.captures import judged, stack, still

C10D = "/v/torch/distributed/distributed_c10d.py"


def at(rank: int, call: str, peer: int) -> RankCapture:
    """A stage that is in a send or receive with its neighbour."""
    line = {"send": 10, "recv": 6}[call]
    name = "dst" if call == "send" else "src"
    own = Frame(f"{call}_on", "/app/pipe.py", line, f"dist.{call}(x, {name})", {name: peer})
    inner = Frame(call, C10D, 2799, values={name: peer, f"group_{name}": peer})
    return still(rank, [inner, own, *stack(("main", "/app/pipe.py", 40))])


def test_both_are_told_and_none_is_named() -> None:
    said = judged(at(0, "send", 1), at(1, "send", 0), at(2, "recv", 0), at(3, "recv", 1))
    assert (said.status, said.causes) == ("hang", [])
    assert [(one.kind, one.ranks) for one in said.open] == [("p2p_unmatched", [0, 1])]
    assert said.summary.startswith("Could not tell which of ranks 0-1 is wrong. Ranks 0-1")
    assert "wait for one another" in said.summary and said.advice
    text = plain(said)
    assert "in send to rank 1 in send_on" in text and "DO   " in text


def test_of_two_pairs_the_second_is_told_too() -> None:
    said = judged(at(0, "recv", 1), at(1, "recv", 0), at(2, "send", 3), at(3, "send", 2))
    assert not said.causes and len(said.open) == 2
    assert "which of ranks 0-3 is wrong" in said.summary
    assert "ALSO Ranks 2-3" in plain(said)
