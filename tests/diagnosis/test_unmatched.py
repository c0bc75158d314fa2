"""A send or receive whose peer is in a collective with all others."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import C10D, causes, judged, stack, still

LOGGER = "/site-packages/torch/distributed/c10d_logger.py"
REDUCE = [
    Frame("all_reduce", C10D, 9),
    Frame("_exception_logger.<locals>.wrapper", LOGGER, 83, group="world"),
    *stack(("forward", "/app/moe.py", 47), ("main", "/app/moe.py", 95)),
]


def handle(code: str, **values: int) -> list[Frame]:
    """A rank that waits for the handle of what its line calls: the wait itself leaves no frame."""
    own = Frame("migrate", "/app/moe.py", 69, code, values)
    return [own, *stack(("main", "/app/moe.py", 109))]


def test_both_sides_are_named_where_the_line_shows_the_peer() -> None:
    waits = handle("dist.isend(self.w[str(e)].data, dst=dst).wait()", src=2, dst=1)
    said = judged(*(still(rank, REDUCE) for rank in (0, 1, 3)), still(2, waits))
    assert causes(said) == [("p2p_unmatched", [1, 2])]
    assert "Rank 2 waits at migrate (moe.py:69) for rank 1 to receive; rank 1 is in all_reduce" in (
        said.summary
    )
    assert "with ranks 0,3" in said.summary and said.causes[0].confidence <= 0.6


def test_none_is_named_where_the_peer_is_not_known() -> None:
    waits = handle("dist.irecv(w, src=self.left).wait()", src=1)  # another variable
    said = judged(*(still(rank, REDUCE) for rank in (0, 1, 3)), still(2, waits))
    assert (said.status, causes(said)) == ("unknown", [])
    assert "Rank 2 waits for the other side of its send or receive" in said.summary


def test_its_own_rank_makes_the_peer_known() -> None:
    waits = handle("dist.irecv(w, src=rank - 2).wait()")
    said = judged(*(still(rank, REDUCE) for rank in (0, 1, 3)), still(2, waits))
    assert causes(said) == [("p2p_unmatched", [0, 2])]
    assert "Rank 2 waits at migrate (moe.py:69) for rank 0 to send" in said.summary


def test_both_halves_of_a_transfer_blame_none_of_the_two() -> None:
    sends = handle("dist.isend(w, dst=dst).wait()", dst=1)
    takes = handle("dist.irecv(w, src=src).wait()", src=2)
    said = judged(still(0, REDUCE), still(1, takes), still(2, sends), still(3, REDUCE))
    assert all(cause.kind != "p2p_unmatched" for cause in said.causes), said.summary


def of_ring(rank: int) -> RankCapture:
    own = Frame("pass_on", "/app/ring.py", 29, "work.wait()", handle="send or recv")
    return still(rank, [own, *stack(("main", "/app/ring.py", 60))])


def test_a_ring_whose_partners_are_not_known_is_no_fault_of_the_network() -> None:
    said = judged(*map(of_ring, range(4)))
    assert (said.status, causes(said)) == ("unknown", [])
    assert "ranks 0-3 wait in send or recv in pass_on (ring.py:29)" in said.summary
    assert "one may have other partners" in said.summary and "network" not in said.summary
