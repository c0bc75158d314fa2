"""All ranks wait in collectives whose lines name their root; one names another than all others."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.stacks.call_peers import root
from tests.support.captures import causes, judged, stack, still

GATHER, BCAST = "table = comm.gather(x, root=best)", "x = comm.bcast(x, root=best)"


def at(rank: int, named: int | None, code: str = BCAST, line: int = 42) -> RankCapture:
    values = {} if named is None else {"root": named}
    own = Frame("share", "/app/swarm.py", line, code, values)
    return still(rank, [own, *stack(("main", "/app/swarm.py", 60))])


def test_the_rank_with_another_root_than_all_others_is_named() -> None:
    said = judged(at(0, 2), at(1, 1, GATHER, 40), at(2, 2, GATHER, 40), at(3, 2))
    assert causes(said) == [("mismatch", [1])], said.summary
    assert "gather in share (swarm.py:40) with root 1, ranks 0,2-3 wait in calls with root 2" in (
        said.summary
    )


@pytest.mark.parametrize(
    "roots",
    [(2, 1, 2, 1), (2, 1, 2, 0), (2, 1, 2, None), (2, 2, 2, 2)],
)
def test_no_rank_is_named_for_its_root_where_the_others_do_not_agree(
    roots: tuple[int | None, ...],
) -> None:
    said = judged(*(at(rank, root, GATHER, 40) for rank, root in enumerate(roots)))
    assert all(kind != "mismatch" for kind, _ in causes(said)), said.summary


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("table = comm.gather(x, root=best)", {"root": 3}),
        ("comm.Reduce(x, out, op=MPI.SUM, root=best - 1)", {"root": 2}),
        ("x = comm.bcast(x, root=0)", {"root": 0}),
        ("x = comm.bcast(x, 0)", {}),
        ("comm.bcast(x, root=owner(best))", {}),
        ("comm.bcast(x, root=-1)", {}),
        ("a = c.bcast(a, root=0), d.bcast(b, root=1)", {}),
        ("table = comm.gather(", {}),
    ],
)
def test_the_root_that_a_line_names(code: str, found: dict[str, int]) -> None:
    assert root(code, {"best": 3}) == found


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("comm.Bcast(x, root=best)", []),  # one of the others may have taken itself for the root
        ("comm.Bcast(x, root=self.best)", []),
        ("comm.Bcast(x, root=0)", [("order", [1])]),
        ("comm.Bcast(x, root=ROOT)", [("order", [1])]),
        ("comm.Alltoallv(x, y)", []),  # one of the others may have sent it less than it waits for
        ("comm.Barrier()", [("order", [1])]),
    ],
)
def test_who_is_left_alone_in_a_call_with_a_chosen_root_is_not_accused(
    code: str, named: list[tuple[str, list[int]]]
) -> None:
    """The root and its helpers leave it as soon as their data is on its way."""
    later = "comm.Allreduce(x, y)"
    said = judged(*(at(r, None, *((code, 42) if r == 1 else (later, 50))) for r in range(4)))
    assert causes(said) == named, said.summary


def chooses(rank: int, best: int, held: bool, turn: int = 3) -> RankCapture:
    """In `adopt`, which `main` calls with the root that it has chosen, or past it."""
    main = Frame("main", "/app/swarm.py", 38 if held else 40, "", {"root:best": best, "i": turn})
    if not held:
        main.code = "comm.Allreduce(x, y)"
        return still(rank, [main])
    return still(rank, [Frame("adopt", "/app/swarm.py", 27, "comm.Bcast(x, root=best)"), main])


def test_who_is_past_the_call_still_has_the_variable_that_named_its_root() -> None:
    said = judged(*(chooses(r, 2 if r == 2 else 0, held=r == 1) for r in range(4)))
    assert causes(said) == [("mismatch", [2])], said.summary
    assert "Rank 2 (n1, pid 11) has best=2, all others 0" in said.summary
    assert "the root of Bcast in adopt (swarm.py:27), in which rank 1 waits" in said.summary
    itself = judged(*(chooses(r, 3 if r == 1 else 0, held=r == 1) for r in range(4)))
    assert causes(itself) == [("mismatch", [1])], itself.summary


@pytest.mark.parametrize("roots", [(0, 0, 0, 0), (0, 2, 2, 0), (0, 1, 2, 3)])
def test_variables_that_agree_or_differ_on_several_name_nobody(roots: tuple[int, ...]) -> None:
    said = judged(*(chooses(r, root, held=r == 1) for r, root in enumerate(roots)))
    assert causes(said) == [], said.summary


def test_in_another_round_another_root_is_no_fault() -> None:
    said = judged(*(chooses(r, 2 if r == 2 else 0, r == 1, 4 if r == 2 else 3) for r in range(4)))
    assert causes(said) == [], said.summary
