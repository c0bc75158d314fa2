"""All ranks wait in one loop of the program's own, for something that does not come."""

from __future__ import annotations

import zlib

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from tests.support.captures import captured, sample, stack, thread

MAIN = ("main", "/app/stream.py", 69)


def asks(
    rank: int, counts: tuple[int, ...] = (3, 3, 3), line: int = 41, **more: str
) -> RankCapture:
    """A rank in the loop at each sample; `counts`: what its variable has there."""
    found = []
    for n, count in enumerate(counts):
        loop = Frame("Stream.barrier", "/app/stream.py", line, "", {"n": count, "idx": rank})
        loop.texts = {"key": zlib.crc32(more.get("key", "4dad2").encode()), "own": rank}
        call = more.get("call", "clock_nanosleep")
        one = thread([loop, *stack(MAIN)], switches=20 * n, syscall=call)
        found.append(sample(2.0 * n, one))
    return captured(rank, found)


def judged(*ranks: RankCapture) -> Diagnosis:
    return diagnose(JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], [], 4, taken=1.0))


def said_of(*ranks: RankCapture) -> tuple[str, str, str]:
    said = judged(*ranks)
    assert said.causes == []
    return said.status, said.summary, said.advice


def test_the_place_and_the_variable_that_differs_are_said() -> None:
    ranks = [asks(0), asks(1, line=42), asks(2, (1, 1, 1)), asks(3)]
    status, summary, advice = said_of(*ranks)
    assert status == "unknown"
    assert (
        "ranks 0-3 sleep and wake in one loop, Stream.barrier (stream.py:41), in all 3" in summary
    )
    assert "there n is 1 on rank 2 and 3 on ranks 0-1,3" in summary
    assert "working" not in summary and "stalls" not in summary
    assert "py-spy dump --locals --pid 11" in advice and "--pid 9" in advice


def test_the_rank_that_asks_for_something_else_is_named() -> None:
    found = judged(asks(0), asks(1), asks(2, (1, 1, 1), key="f5e2f"), asks(3))
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [2])], found.summary
    assert (
        "waits in Stream.barrier (stream.py:41) for something else than ranks 0-1,3"
        in found.summary
    )
    assert ": its key differs from theirs" in found.summary


def test_no_rank_is_named_where_several_or_rank_0_ask_for_something_else() -> None:
    """Rank 0 may have another part in it; two against two show no odd one."""
    halves = [asks(0), asks(1), asks(2, key="f5e2f"), asks(3, key="f5e2f")]
    for ranks in ([asks(0, key="f5e2f"), asks(1), asks(2), asks(3)], halves):
        assert said_of(*ranks)[0] == "unknown"


def test_a_variable_that_changes_or_splits_the_ranks_in_halves_shows_nothing() -> None:
    changes = [asks(0), asks(1), asks(2, (1, 2, 2)), asks(3)]
    halves = [asks(0), asks(1, (1, 1, 1)), asks(2, (1, 1, 1)), asks(3)]
    for ranks in (changes, halves, [asks(rank) for rank in range(4)]):
        assert " is 1 on " not in said_of(*ranks)[1] and "sleep and wake" in said_of(*ranks)[1]


def test_one_in_another_function_or_wait_is_another_story() -> None:
    elsewhere = asks(3)
    for one in elsewhere.samples:
        one.threads[0].frames = stack(("load", "/app/data.py", 7), MAIN)
    for odd in (elsewhere, asks(3, call="futex")):
        assert "sleep and wake" not in said_of(asks(0), asks(1), asks(2), odd)[1]
