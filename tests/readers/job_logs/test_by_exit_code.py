"""An exception whose rank no line tells, and torchelastic's table of who ended how."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import caught

RAISED = """\
Traceback (most recent call last):
  File "/job/train.py", line 74, in main
    config = json.load(open(path))
FileNotFoundError: [Errno 2] No such file or directory: '/data/config.json'
"""
OTHER = RAISED.replace("line 74", "line 90").replace("FileNotFoundError: [Errno 2]", "KeyError:")
KILLED, FAILED = -15, 1


def table(*codes: int) -> str:
    """The table of ranks 4, 5, ..., local ranks 0, 1, ..., the first that failed as its root cause."""
    entries = [
        f"[{n}]:\n  time      : 2026-11-22_15:34:49\n  host      : n2\n"
        f"  rank      : {n + 4} (local_rank: {n})\n  exitcode  : {code} (pid: {6324 + n})\n"
        "  error_file: <N/A>\n"
        for n, code in enumerate(codes)
    ]
    first = next(n for n, code in enumerate(codes) if code != KILLED)
    others = "".join(e for n, e in enumerate(entries) if n != first)
    line = "-" * 60
    return (
        f"{'=' * 60}\ntrain.py FAILED\n{line}\nFailures:\n{others}{line}\n"
        f"Root Cause (first observed failure):\n{entries[first]}{'=' * 60}\n"
    )


def test_the_only_one_that_ended_by_itself_raised_it(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, RAISED + table(KILLED, KILLED, FAILED, KILLED))
    assert named(verdict) == [("error", [6])]
    assert verdict.summary.startswith("Rank 6 (n2) failed first: FileNotFoundError in main")


def test_a_folder_that_torchrun_writes_has_local_ranks(tmp_path: Path) -> None:
    files = {
        "job.out": table(KILLED, KILLED, FAILED, KILLED),
        "logs/none_q4i3x2eb/attempt_0/2/stderr.log": RAISED,
        "logs/none_q4i3x2eb/attempt_0/0/stderr.log": "step 1\n",
    }
    assert named(diagnosed(tmp_path, files)) == [("error", [6])]


@pytest.mark.parametrize(
    ("texts", "codes", "ranks"),
    [
        (RAISED, (FAILED, KILLED, FAILED, KILLED), [4, 6]),
        (RAISED + OTHER, (KILLED, KILLED, FAILED, KILLED), []),
        (RAISED * 2, (KILLED, KILLED, FAILED, KILLED), [6]),
        (RAISED, (FAILED,), [4]),
    ],
    ids=["two-failed", "two-exceptions", "raised-twice", "none-was-killed"],
)
def test_who_can_have_raised_it(
    tmp_path: Path, texts: str, codes: tuple[int, ...], ranks: list[int]
) -> None:
    verdict = diagnosed(tmp_path, texts + table(*codes))
    assert [found for _, found in named(verdict)] == [ranks]
    assert verdict.summary.startswith("Rank 4 or 6 on n2 (the log does") == (len(ranks) == 2)


LOST = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/job/train.py", line 61, in train
[rank{0}]:     dist.all_reduce(batch)
[rank{0}]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1628
"""


def test_the_only_one_that_aborted_is_the_one_that_the_others_lost(tmp_path: Path) -> None:
    """`sys.exit(3)` under gloo's threads: "terminate called without an active exception"."""
    aborted = "terminate called without an active exception\n"
    log = LOST.format(4) + LOST.format(7) + aborted + table(KILLED, -6, KILLED, KILLED)
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("dead", [5])] and "SIGABRT" in verdict.summary
    waited = caught(5) + LOST.format(4) + table(KILLED, -6, KILLED, KILLED)
    assert ("dead", [5]) not in named(diagnosed(tmp_path / "waited", waited))


def test_another_local_ranks_exception_is_not_its_own(tmp_path: Path) -> None:
    files = {
        "job.out": table(KILLED, KILLED, FAILED, KILLED),
        "logs/none_q4i3x2eb/attempt_0/1/stderr.log": RAISED,
    }
    assert [ranks for _, ranks in named(diagnosed(tmp_path, files))] != [[6]]
