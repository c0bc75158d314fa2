"""A log alone: one rank in another collective, one that a launcher's list shows as killed, few that
printed the end of the program.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

TORCH = "/v/lib/python3.11/site-packages/torch"
MAIN = ("/app/train.py", 46, "<module>")
BARRIER = [
    MAIN,
    ("/app/train.py", 38, "train"),
    (f"{TORCH}/distributed/distributed_c10d.py", 5356, "barrier"),
]
EVALUATE = [
    ("/app/train.py", MAIN[1] + 1, MAIN[2]),
    ("/app/train.py", 16, "evaluate"),
    (f"{TORCH}/nn/parallel/distributed.py", 2363, "_distributed_broadcast_coalesced"),
]
REDUCE = [MAIN, (f"{TORCH}/distributed/distributed_c10d.py", 3252, "all_reduce")]
LIMIT = "[/x/unbound_buffer.cc:78] Timed out waiting 35000ms for recv operation to complete"
LOST = "[/x/pair.cc:553] Connection closed by peer [127.0.0.1]:2955"
Frames = list[tuple[str, int, str]]


def error(rank: int, frames: Frames, message: str) -> str:
    lines = ["Traceback (most recent call last):"]
    lines += [f'  File "{file}", line {line}, in {name}' for file, line, name in frames]
    return "".join(f"[rank{rank}]: {text}\n" for text in [*lines, f"RuntimeError: {message}"])


def test_one_rank_whose_wait_ended_in_another_collective(tmp_path: Path) -> None:
    others = "".join(error(rank, BARRIER, LIMIT) for rank in (3, 2, 1))
    verdict = diagnosed(tmp_path, error(0, EVALUATE, LOST) + others)
    assert named(verdict) == [("order", [0])]
    assert "evaluate (train.py:16)" in verdict.summary and "barrier" in verdict.summary
    two = others + error(0, EVALUATE, LOST)
    assert named(diagnosed(tmp_path, two + error(4, EVALUATE, LOST))) == []
    crash = others.replace(LIMIT, LOST) + error(0, EVALUATE, LOST)
    assert named(diagnosed(tmp_path, crash)) == []


def test_one_limit_ends_the_waits_of_those_at_its_line(tmp_path: Path) -> None:
    """gloo closes the connections of who waits, and of the waiter's own other waits."""
    closed = "Application timeout caused pair closure"
    lost = "".join(error(rank, BARRIER, LOST) for rank in (1, 3))
    both = lost + error(0, BARRIER, LIMIT) + error(2, EVALUATE, closed)
    assert named(diagnosed(tmp_path, both)) == [("order", [2])]
    assert named(diagnosed(tmp_path, lost + error(2, EVALUATE, closed))) == []


def test_the_one_file_without_a_wait(tmp_path: Path) -> None:
    """torchrun --log-dir: the size of the job is in no line, but each rank has a file."""
    waited = {f"attempt_0/{r}/stderr.log": error(r, REDUCE, LIMIT) for r in (0, 2, 3)}
    silent = {"attempt_0/1/stderr.log": "WARNING 429, next try in 20 s (2/50)\n"}
    verdict = diagnosed(tmp_path, waited | silent)
    assert named(verdict) == [("not_entered", [1])], verdict.summary
    more = {"attempt_0/4/stderr.log": "WARNING 429, next try in 20 s (1/50)\n"}
    assert named(diagnosed(tmp_path / "two", waited | silent | more)) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("exit codes [1, 1, 1, -9]", [("dead", [3])]),
        ("workers' exit codes: {0: 1, 1: 1, 2: 1, 3: 137}", [("dead", [3])]),
        ("return codes [1, -9, -9, -9]", []),
        ("exit codes [1, 1, -9, 1]", []),
        ("exit codes [1, 1, 1, -15]", []),
    ],
)
def test_a_death_in_a_launchers_list_that_all_others_noticed(
    tmp_path: Path, line: str, expected: list[tuple[str, list[int]]]
) -> None:
    lost = "".join(error(rank, REDUCE, LOST) for rank in (0, 2, 1))
    assert named(diagnosed(tmp_path, lost + line + "\n")) == expected


def waited(*keys: str, process: str) -> str:
    """A process of multiprocessing that waited for these keys, in vain."""
    lines = [
        f"Process {process}:",
        "Traceback (most recent call last):",
        '  File "/app/swap.py", line 27, in worker',
        f"torch.distributed.DistStoreError: wait timeout after 45000ms, keys: {', '.join(keys)}",
    ]
    return "".join(f"{line}\n" for line in lines)


KEYS = ("/turn4/w0", "/turn4/w1", "/turn4/w2", "/turn4/w3")
THREE = "".join(
    waited(*(key for key in KEYS if key != own), process=f"w{n}") for n, own in enumerate(KEYS[:3])
)


def test_a_death_in_a_list_for_which_all_others_waited_in_the_store(tmp_path: Path) -> None:
    died = diagnosed(tmp_path / "died", f"{THREE}exit codes [1, 1, 1, -9]\n")
    assert named(died) == [("dead", [3])]
    assert named(diagnosed(tmp_path / "more", f"{THREE}exit codes [1, 1, 1, -9, 1]\n")) == []
    assert named(diagnosed(tmp_path / "two", f"{THREE}exit codes [1, 1, -9, -9]\n")) == []


def test_of_lists_of_keys_the_one_that_all_waited_for(tmp_path: Path) -> None:
    """torch prints the whole list, also the keys that were set."""
    verdict = diagnosed(tmp_path, THREE)
    assert named(verdict) == [] and "waits for /turn4/w3 in the store" in verdict.summary


def test_an_error_of_its_own_comes_before_a_death_in_a_list(tmp_path: Path) -> None:
    text = error(0, [MAIN], LOST).replace("RuntimeError: " + LOST, "KeyError: 'brid'")
    assert named(diagnosed(tmp_path, text + "exit codes [1, -9]\n")) == [("error", [0])]


def test_ranks_that_printed_their_end_while_the_others_lost_them(tmp_path: Path) -> None:
    table = "/app/train.py FAILED\nFailures:\n[1]:\n  host : n1\n  rank : 0 (local_rank: 0)\n"
    table += "  exitcode : -15 (pid: 10)  (SIGTERM)\nRoot Cause (first observed failure):\n[0]:\n"
    table += "  host : n1\n  rank : 1 (local_rank: 1)\n  exitcode : 1 (pid: 11)\n"
    done = "".join(f"[05:46:48] rank {rank}: training finished\n" for rank in (2, 3))
    lost = "".join(error(rank, REDUCE, LOST) for rank in (1, 0))
    assert named(diagnosed(tmp_path, done + lost + table)) == [("dead", [2, 3])]
    unnamed = done.replace("rank 2: ", "").replace("rank 3: ", "")
    assert named(diagnosed(tmp_path, unnamed + lost + table)) == []
