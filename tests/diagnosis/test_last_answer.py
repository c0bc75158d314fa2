"""A farm of tasks: the one worker still in its loop owes the answer that the first rank waits for."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import causes, judged, stack, still

FARM = ("main", "/app/farm.py", 90)
ANY = "start, error = comm.recv(source=MPI.ANY_SOURCE, tag=RESULT)"
TASK = "task = comm.recv(source=0, tag=MPI.ANY_TAG)"


def hands_out(code: str = ANY) -> RankCapture:
    return still(0, [Frame("coordinate", "/app/farm.py", 45, code), *stack(FARM)])


def works(rank: int, code: str = TASK) -> RankCapture:
    return still(rank, [Frame("worker_loop", "/app/farm.py", 68, code), *stack(FARM)])


def through(rank: int, name: str = "summarise") -> RankCapture:
    return still(
        rank, [Frame(name, "/app/farm.py", 82, "n = comm.gather(done, root=0)"), *stack(FARM)]
    )


@pytest.mark.parametrize("code", [ANY, "result = comm.recv()"])
def test_the_worker_that_is_still_in_its_loop_is_named(code: str) -> None:
    said = judged(hands_out(code), through(1), works(2), through(3))
    assert causes(said) == [("p2p_unmatched", [2])]
    assert "Rank 2 (n1, pid 11) waits at farm.py:68 for rank 0" in said.summary
    assert (
        "for what any rank sends; ranks 1,3 are through: most likely it sent nothing, or the tags differ"
        in said.summary
    )
    assert said.causes[0].confidence <= 0.6
    assert "swallowed exception" in said.causes[0].advice


@pytest.mark.parametrize(
    "ranks",
    [
        (hands_out(), works(1), works(2), through(3)),
        (hands_out("r = comm.recv(source=w)"), through(1), works(2), through(3)),
        (hands_out(), through(1), works(2, "task = comm.recv(source=1)"), through(3)),
        (hands_out(), through(1), works(2), through(3, "worker_loop")),
        (hands_out(), through(1), works(2, "comm.send(result, dest=0)"), through(3)),
    ],
    ids=["two workers", "a source of its own", "of another", "one not through", "it sends"],
)
def test_else_the_last_answer_names_nobody(ranks: tuple[RankCapture, ...]) -> None:
    assert "sent nothing" not in judged(*ranks).summary


def test_of_several_servers_the_one_that_a_rank_waits_for_is_named() -> None:
    """Two servers take requests of anyone; rank 3 waits for an answer of one, under a tag."""
    serves = "request = comm.recv(tag=REQUEST)"
    asks = works(3, "rows = comm.recv(source=1, tag=REPLY)")
    other = still(1, [Frame("serve", "/app/server.py", 29, serves), *stack(FARM)])
    said = judged(hands_out(serves), other, through(2), asks, through(4))
    assert causes(said) == [("p2p_unmatched", [3])]
    assert "waits at farm.py:68 for rank 1, which waits at server.py:29" in said.summary
