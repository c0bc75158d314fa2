"""All ranks wait in sends and receives whose tag is a number of the program's; one has another number."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from tests.support.captures import causes, judged, stack, still

DOWN = "self.comm.Recv(x, source=self.left, tag=step)"
UP = "self.comm.Recv(g, source=self.right, tag=step)"


def at(
    rank: int, step: int, *, line: int = 20, code: str = DOWN, name: str = "step"
) -> RankCapture:
    own = Frame("Stage.take", "/app/ring.py", line, code, {name: step})
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
    said = judged(at(0, 9), at(1, 8), at(2, 7), at(3, 9))
    assert (said.status, causes(said)) == ("unknown", [])


def test_two_others_are_too_few() -> None:
    assert causes(judged(at(0, 9), at(1, 4), at(2, 9))) == []


def test_a_number_that_is_no_tag_says_nothing() -> None:
    code = "self.comm.Recv(x, source=self.left, tag=STEP)"
    ranks = [at(rank, 4 if rank == 2 else 9, code=code, name="i") for rank in range(4)]
    assert causes(judged(*ranks)) == []


def test_a_box_is_advised_for_mpi4py_whose_calls_it_counts() -> None:
    barrier = still(0, [Frame("main", "/app/ring.py", 61, "world.Barrier()")])
    others = [still(rank, barrier.samples[-1].threads[0].frames) for rank in (1,)]
    said = judged(barrier, *others, at(2, 9), at(3, 9))
    assert said.status == "unknown" and "made other calls" in said.summary
    assert "Black boxes (hangdoctor run) count the calls" in said.summary


RING = "/app/ring.py"
C10D = "/site-packages/torch/distributed/distributed_c10d.py"


def hop(rank: int, tag: int, *, sends: bool = False, name: str = "Ring.shift") -> RankCapture:
    """Of three ranks in a ring: in a receive from the one before, or at the handle of its send."""
    numbers = {"tag": tag, "n": 3}
    if sends:
        own = Frame(name, RING, 28, "send.wait()", numbers, handle="isend")
        return still(rank, [own, *stack(("main", RING, 60))])
    call = "dist.recv(got, src=self.left, tag=tag)"
    inner = Frame("recv", C10D, 2799, "", {"src": (rank - 1) % 3, "tag": tag})
    own = Frame(name, RING, 27, call, numbers)
    return still(rank, [inner, own, *stack(("main", RING, 60))])


def reduces(rank: int) -> RankCapture:
    return still(rank, stack(("all_reduce", C10D, 9), ("main", RING, 71)))


def test_a_rank_with_another_tag_than_both_its_neighbours_is_named() -> None:
    """The others are past the ring, and wait for it in a collective."""
    said = judged(hop(0, 126), hop(1, 125), hop(2, 125, sends=True), reduces(3))
    assert causes(said) == [("mismatch", [0])], said.summary
    assert "Ring.shift (ring.py:27) with tag 126, ranks 1-2 wait with 125" in said.summary


def test_neighbours_that_do_not_agree_or_are_elsewhere_name_no_rank() -> None:
    apart = judged(hop(0, 126), hop(1, 125), hop(2, 124, sends=True), reduces(3))
    other = judged(hop(0, 126), hop(1, 125, name="Ring.back"), hop(2, 125, sends=True), reduces(3))
    alike = judged(hop(0, 125), hop(1, 125), hop(2, 125, sends=True), reduces(3))
    for said in (apart, other, alike):
        assert all(kind != "mismatch" for kind, _ in causes(said)), said.summary


def sends_or_gets(rank: int, peer: int, tag: int, function: str) -> RankCapture:
    where = {"dst" if function == "send" else "src": peer, "tag": tag}
    own = stack((f"Stage.{function}", RING, 31 + rank), ("main", RING, 60))
    return still(rank, [Frame(function, C10D, 2753, "", where), *own])


def test_both_sides_of_a_transfer_with_two_tags_are_named_with_them() -> None:
    others = sends_or_gets(0, 1, 17, "send"), sends_or_gets(1, 2, 16, "send")
    said = judged(*others, sends_or_gets(2, 3, 16, "send"), sends_or_gets(3, 2, 15, "recv"))
    assert causes(said) == [("mismatch", [2, 3])], said.summary
    assert "with different tags: rank 2 with 16, rank 3 with 15; which is wrong" in said.summary
    same = judged(*others, sends_or_gets(2, 3, 15, "send"), sends_or_gets(3, 2, 15, "recv"))
    assert "different tags" not in same.summary


def test_of_the_two_the_one_far_from_all_other_tags_is_named() -> None:
    """The stages before it are at the micro-batches after rank 2's; rank 3 counts another step."""

    def job(last: int) -> Diagnosis:
        before = sends_or_gets(0, 1, 46, "send"), sends_or_gets(1, 2, 45, "send")
        return judged(*before, sends_or_gets(2, 3, 44, "send"), sends_or_gets(3, 2, last, "recv"))

    found = job(40)
    assert causes(found) == [("mismatch", [3])], found.summary
    assert "Stage.recv (ring.py:34) with tag 40, rank 2 waits with 44" in found.summary
    assert causes(job(42)) == [("mismatch", [2, 3])], "no further apart than the others are"


def test_around_a_server_the_tags_of_those_behind_show_who_is_wrong() -> None:
    """Ranks 2 to 4 wait for their turn with the number of this round; rank 1, whose turn it is, or the
    server has another one.
    """

    def job(server: int, first: int, behind: tuple[int, ...] = (6, 6, 6)) -> Diagnosis:
        rest = [sends_or_gets(n + 2, 0, tag, "send") for n, tag in enumerate(behind)]
        return judged(
            sends_or_gets(0, 1, server, "recv"), sends_or_gets(1, 0, first, "send"), *rest
        )

    ahead = job(6, 7)
    assert causes(ahead) == [("mismatch", [1])], ahead.summary
    assert "with tag 7, ranks 0,2-4 wait with 6" in ahead.summary
    assert causes(job(5, 6)) == [("mismatch", [0])]
    for undecided in (job(6, 7, (6, 5, 6)), job(5, 7), job(6, 7, (7, 6))):
        assert causes(undecided) == [("mismatch", [0, 1])], undecided.summary


def actor(rank: int, tag: int, to: int = 0, line: int = 99) -> RankCapture:
    own = stack(("Actor.step", "/app/rl.py", line), ("main", "/app/rl.py", 120))
    return still(rank, [Frame("send", C10D, 2753, "", {"dst": to, "tag": tag}), *own])


def beside(other: RankCapture) -> Diagnosis:
    """Rank 0 receives 37 from rank 3, which sends 38; rank 1 is past its turn, and waits for the answer."""
    past = sends_or_gets(1, 0, 100037, "recv")
    return judged(sends_or_gets(0, 3, 37, "recv"), past, other, actor(3, 38))


def test_who_sends_another_tag_than_its_like_and_its_receiver_expects_is_named() -> None:
    found = beside(actor(2, 37))
    assert causes(found) == [("mismatch", [3])], found.summary
    assert "Actor.step (rl.py:99) with tag 38, ranks 0,2 wait with 37" in found.summary


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(actor(2, 36), id="perhaps at another round"),
        pytest.param(actor(2, 38), id="as many on each side"),
        pytest.param(actor(2, 37, to=1), id="to somebody else"),
        pytest.param(actor(2, 37, line=80), id="at another line"),
    ],
)
def test_without_such_evidence_both_stay_open(other: RankCapture) -> None:
    found = beside(other)
    assert causes(found) != [("mismatch", [3])], found.summary
