"""Which conditions let one rank of a job through."""

from __future__ import annotations

import pytest

from hangdoctor.stacks.one_rank import ANY, let_through, shut_out


@pytest.mark.parametrize(
    ("condition", "rank"),
    [
        ("rank == 3 and step == 17", 3),
        ("0 == global_rank", 0),
        ("not rank", 0),
        ("not (dist.get_rank() != 2)", 2),
        ("not (not is_main_process())", ANY),
        ("step % 10 == 0 and accelerator.is_main_process", ANY),
        ("trainer.is_global_zero", ANY),
    ],
)
def test_one_rank_is_let_through(condition: str, rank: int) -> None:
    assert let_through(condition) == rank


@pytest.mark.parametrize(
    "condition",
    [
        "rank != 0",
        "rank == 0 or step == 3",
        "rank in reporters",
        "rank < 2",
        "local_rank == 0",
        "tp_rank == 0",
        "self.rank == 0",
        "dist.get_rank(group) == 0",
        "rank == first",
        "rank % 2 == 0",
        "0 <= rank == 1",
        "is_local_main_process",
        "not is_main_process",
        "rank == 0 and (",
        "",
    ],
)
def test_several_may_be_let_through(condition: str) -> None:
    assert let_through(condition) is None


@pytest.mark.parametrize(
    ("condition", "rank"),
    [
        ("rank", 0),
        ("rank > 0", 0),
        ("rank != 0", 0),
        ("dist.get_rank() != 3", 3),
        ("not (rank == 2)", 2),
        ("not rank", None),
        ("rank > 1", None),
        ("rank == 0", None),
        ("rank and ready", None),
        ("self.rank", None),
        ("rank !=", None),
    ],
)
def test_one_rank_is_shut_out(condition: str, rank: int | None) -> None:
    assert shut_out(condition) == rank
