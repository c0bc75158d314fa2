"""All ranks wait for a lock file to go away, and no process has made it."""

from __future__ import annotations

from hangdoctor.model.capture import LockHolder, RankCapture
from tests.support.captures import LOAD, WAIT, causes, judged, stack, still

BATON = stack(
    ("FileBaton.wait", "/site-packages/torch/utils/file_baton.py", 50),
    ("_jit_compile", "/site-packages/torch/utils/cpp_extension.py", 2400),
    ("main", "/app/train.py", 17),
)
PATH = "/home/a/.cache/torch_extensions/py311_cpu/fused_adam/lock"


def waits(rank: int, holder: int = 0) -> RankCapture:
    found = still(rank, BATON)
    found.lock = LockHolder(holder, path=PATH)
    return found


def test_a_lock_file_that_a_killed_build_left_blames_no_rank() -> None:
    said = judged(*map(waits, range(4)))
    assert (said.status, causes(said)) == ("hang", [("not_entered", [])])
    assert said.summary == (
        "All ranks wait for the lock file fused_adam/lock in FileBaton.wait (file_baton.py:50), "
        "which no process of the job holds; a build that was killed may have left it."
    )
    assert f"rm {PATH}" in said.causes[0].advice


def test_it_is_not_said_where_a_rank_is_elsewhere_or_the_file_is_held_or_unknown() -> None:
    for other in (still(3, LOAD), still(3, WAIT), still(3, BATON), waits(3, holder=77)):
        said = judged(*map(waits, (0, 1, 2)), other)
        assert "may have left it" not in said.summary
    said = judged(*map(waits, (0, 1, 2)))  # rank 3 was not captured
    assert "may have left it" not in said.summary
