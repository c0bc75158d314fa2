"""A group whose setting up ended at the store's limit: the number at the end of the key is one within
that group, and which rank has it follows from who waited.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.job_logs.test_partners_in_logs import TORCH, met, of
from tests.support.read_logs import diagnosed, named


def joins(rank: int, key: str) -> str:
    """A rank's traceback in new_group, which waited for this key."""
    rows = [
        "Traceback (most recent call last):",
        '  File "/home/me/moe.py", line 36, in get',
        "    kept[owners] = dist.new_group(list(owners))",
        f'  File "{TORCH}", line 5863, in new_group',
        "    return _new_group_with_tag(",
        f"torch.distributed.DistStoreError: wait timeout after 65000ms, keys: {key}",
    ]
    return "".join(f"[rank{rank}]: {row}\n" for row in rows)


FIFTH = "/default_pg/0//4//cpu//0/{}"
WORLD = "/default_pg/0//cpu//0/{}"


def elsewhere(*ranks: int) -> list[str]:
    return [met(rank, 16, "all_to_all_single(out, x)") for rank in ranks]


def test_the_member_that_did_not_come_is_the_only_rank_that_can_have_the_number(
    tmp_path: Path,
) -> None:
    """Rank 2 waits in that very call: the group's number 2 is another rank's."""
    text = of(4, *elsewhere(0, 3), *(joins(rank, FIFTH.format(2)) for rank in (1, 2)))
    found = diagnosed(tmp_path, text)
    assert named(found) == [("not_entered", [3])], found.summary
    assert "Rank 3 never reached new_group in get (moe.py:36)" in found.summary


@pytest.mark.parametrize(
    ("came", "number", "apart"),
    [((0, 4), 1, (1, 2, 3)), ((1, 2, 3), 2, (0, 4)), ((3, 4), 0, (0, 1, 2))],
    ids=["any between", "none is left", "any below"],
)
def test_where_several_ranks_may_have_the_number_none_is_named(
    tmp_path: Path, came: tuple[int, ...], number: int, apart: tuple[int, ...]
) -> None:
    text = of(5, *elsewhere(*apart), *(joins(rank, FIFTH.format(number)) for rank in came))
    found = diagnosed(tmp_path, text)
    assert "not_entered" not in [kind for kind, _ in named(found)], found.summary
    assert "has not set up" not in found.summary


def test_a_key_of_the_whole_job_names_its_rank_unless_that_rank_waits_there_too(
    tmp_path: Path,
) -> None:
    absent = diagnosed(tmp_path, of(4, *(joins(rank, WORLD.format(3)) for rank in (0, 1, 2))))
    assert named(absent) == [("start_stall", [3])], absent.summary
    both = diagnosed(tmp_path, of(4, *(joins(rank, WORLD.format(3)) for rank in (0, 1, 3))))
    assert named(both) == [], both.summary


JAX = "jax.errors.JaxRuntimeError: INTERNAL: {}Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cpu:gloo/{} and duration: 29.99s"


@pytest.mark.parametrize(
    ("key", "ranks"),
    [("0,2048,4096/2", [2]), ("0,1,2048,2049/2", None), ("2048,4096/1", None)],
    ids=["one device each", "two devices each", "a part of the processes"],
)
def test_the_key_of_jaxs_gloo_names_the_process_that_has_not_set_it(
    tmp_path: Path, key: str, ranks: list[int] | None
) -> None:
    """Through many computations the wait's own words come behind many like ones."""
    again = 9 * "Error dispatching computation: "
    rows = [
        "Traceback (most recent call last):",
        '  File "/home/me/fit.py", line 97, in main',
        "    float(loss)",
        JAX.format(again, key),
    ]
    found = diagnosed(tmp_path, "\n".join(rows) + "\n")
    assert named(found) == ([("start_stall", ranks)] if ranks else []), found.summary
