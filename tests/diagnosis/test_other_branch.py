"""Two calls in the other order on one rank, of which one is of a smaller communicator."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import causes, judged, still

FILE = "/app/replicas.py"
OF_ALL, OF_SOME = "world.Allreduce(values, out)", "replica.Allreduce(g, out)"


def at(rank: int, code: str, line: int, name: str = "reduce_world") -> RankCapture:
    """In one function's call, which `update` makes at this line."""
    own = Frame(name, FILE, 23 if code == OF_ALL else 17, code)
    return still(rank, [own, Frame("update", FILE, line), Frame("main", FILE, 46)])


def job(*lines: int, alone: str = OF_SOME) -> list[RankCapture]:
    """Rank 3 in its replica's sum, the others in that of all, each called at its line."""
    rest = [at(rank if rank < 3 else rank + 1, OF_ALL, line) for rank, line in enumerate(lines)]
    return [*rest, at(3, alone, 30, "reduce_replica")]


def test_the_one_that_came_by_another_line_is_named_and_not_who_waits_for_it() -> None:
    said = judged(*job(31, 33, 31, 31))
    assert causes(said) == [("order", [1])], said.summary
    assert "reached by different lines of the program" in said.summary
    assert "Rank 1 is at update (replicas.py:33)" in said.causes[0].advice


@pytest.mark.parametrize(
    "ranks",
    [job(31, 31, 31, 31), job(31, 33, 35, 31), job(31, 33, 31), job(31, 33, 31, 31, alone=OF_ALL)],
)
def test_otherwise_lines_do_not_name_it(ranks: list[RankCapture]) -> None:
    """All at one line, at three, of three ranks, or in calls on one communicator."""
    assert ("order", [1]) not in causes(judged(*ranks))
