"""Numbers that processes carry in their arguments or variables, and those that are none of theirs."""

from __future__ import annotations

import pytest

from hangdoctor.readers.own_numbers import numbers


def lines(*each: str) -> list[list[str]]:
    return [["python", "train.py", *one.split()] for one in each]


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        (lines("2 4021", "0 4021", "1 4021"), [2, 0, 1]),
        (lines("--rank 5", "--rank 4"), [5, 4]),
        (lines("--process_id=1", "--process_id=0"), [1, 0]),
        (lines("--process-id 1 --device 0", "--process-id 0 --device 1"), [1, 0]),
        (lines("task.index=1", "task.index=0"), [1, 0]),
        (lines("1 0", "0 1"), None),
        (lines("--rank 1 0", "--rank 0 1"), [1, 0]),
        (lines("--seed 1", "--seed 0"), None),
        (lines("--local-rank 1", "--local-rank 0"), None),
        (lines("--port 29501", "--port 29500"), None),
        (lines("5", "4"), None),
        (lines("--rank 1", "--rank 1"), None),
        (lines("--rank one", "--rank two"), None),
        (lines("--rank 1", "--rank 0 --resume"), None),
        (lines("config.yaml", "config.yaml"), None),
    ],
)
def test_arguments(arguments: list[list[str]], ranks: list[int] | None) -> None:
    assert numbers(arguments, [{} for _ in arguments]) == ranks


def test_a_variable_that_says_rank() -> None:
    same = lines("a", "a")
    assert numbers(same, [{"JAX_PROCESS_ID": "1"}, {"JAX_PROCESS_ID": "0"}]) == [1, 0]
    assert numbers(same, [{"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "0"}]) is None
    assert numbers(same, [{"MY_RANK": "1"}, {}]) is None
    two = [{"MY_RANK": "1", "TASK_ID": "0"}, {"MY_RANK": "0", "TASK_ID": "1"}]
    assert numbers(same, two) is None  # they contradict each other
