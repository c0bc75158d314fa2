"""All ranks wait in sends and receives whose tag is a number of the program's; one has another number."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import causes, judged, stack, still

DOWN = "self.comm.Recv(x, source=self.left, tag=step)"
UP = "self.comm.Recv(g, source=self.right, tag=step)"


def at(rank: int, step: int, *, line: int = 20, code: str = DOWN) -> RankCapture:
    own = Frame("Stage.take", "/app/ring.py", line, code, {"step": step})
    return still(rank, [own, *stack(("main", "/app/ring.py", 60))])


def test_the_rank_with_another_tag_than_all_others_is_named() -> None:
    said = judged(at(0, 9, line=30, code=UP), at(1, 9, line=30, code=UP), at(2, 4), at(3, 9))
    assert causes(said) == [("mismatch", [2])]
    assert (
        "waits at Stage.take (ring.py:20) with tag step=4, ranks 0-1,3 wait with 9" in said.summary
    )
    assert (
        said.causes[0].confidence <= 0.6
        and "See where rank 2 takes step from" in said.causes[0].advice
    )


def test_none_is_named_where_the_others_do_not_agree() -> None:
    said = judged(at(0, 9), at(1, 8), at(2, 4), at(3, 9))
    assert (said.status, causes(said)) == ("unknown", [])


def test_two_others_are_too_few() -> None:
    assert causes(judged(at(0, 9), at(1, 4), at(2, 9))) == []


def test_a_number_that_is_no_tag_says_nothing() -> None:
    code = "self.comm.Recv(x, source=self.left, tag=STEP)"
    assert causes(judged(*(at(rank, 4 if rank == 2 else 9, code=code) for rank in range(4)))) == []


def test_no_box_is_advised_for_mpi_whose_calls_none_counts() -> None:
    barrier = still(0, [Frame("main", "/app/ring.py", 61, "world.Barrier()")])
    others = [still(rank, barrier.samples[-1].threads[0].frames) for rank in (1,)]
    said = judged(barrier, *others, at(2, 9), at(3, 9))
    assert said.status == "unknown" and "made other calls" in said.summary
    assert "Black boxes" not in said.summary
