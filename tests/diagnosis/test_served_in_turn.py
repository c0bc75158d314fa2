"""A rank that receives from all others in turn: who did not send, where those before it did."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import causes, judged, stack, still

TURN = "reports = {w: comm.recv(source=w, tag=g) for w in range(1, size)}"
BCAST = "plan = comm.bcast(plan, root=0)"


def collects(source: int, code: str = TURN, counts: str = "") -> RankCapture:
    """Rank 0 receives, now from this rank."""
    own = Frame("collect", "/app/league.py", 45, code, {"src": source}, counts=counts)
    return still(0, [own, *stack(("main", "/app/league.py", 58))])


def past(rank: int, line: int = 61) -> RankCapture:
    return still(rank, [Frame("main", "/app/league.py", line, BCAST)])


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        (TURN, ""),
        ("score = comm.recv(source=w)", "w"),
        ("a = [comm.recv(None, w) for w in range(1, self.size)]", ""),
    ],
)
def test_the_one_that_did_not_send_is_named(code: str, counts: str) -> None:
    said = judged(collects(2, code, counts), past(1), past(2), past(3))
    assert causes(said) == [("p2p_unmatched", [2])]
    assert (
        "Rank 0 waits at collect (league.py:45) for rank 2 to send, after it had received from rank 1"
        in (said.summary)
    )
    assert "rank 2 has not sent, or with another tag" in said.summary


@pytest.mark.parametrize(
    ("source", "code", "line"),
    [
        (1, TURN, 61),
        (2, TURN.replace("range(1, size)", "range(size - 1, 0, -1)"), 61),
        (2, TURN.replace("source=w", "source=best"), 61),
        (2, TURN, 33),
    ],
    ids=["it is the first", "downwards", "from one of its own choice", "the first is elsewhere"],
)
def test_else_it_may_be_the_one_that_receives(source: int, code: str, line: int) -> None:
    said = judged(collects(source, code), past(1, line), past(2), past(3))
    assert causes(said) != [("p2p_unmatched", [2])] and "after it had received" not in said.summary
