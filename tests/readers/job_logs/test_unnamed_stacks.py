"""faulthandler's stacks at its limit, of processes that do not say their rank."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

BACKWARD = [
    ("_engine_run_backward", "/v/site-packages/torch/autograd/graph.py", 979),
    ("worker", "/app/train.py", 80),
    ("<module>", "<string>", 1),
]
LOCKED = [
    ("line", "/app/journal.py", 21),
    ("add", "/app/journal.py", 46),
    ("worker", "/app/train.py", 82),
    ("<module>", "<string>", 1),
]
BESIDE = [
    ("beat", "/app/train.py", 51),
    ("_bootstrap", "/usr/lib/python3.11/threading.py", 995),
]
ENDED = (
    "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with exit code 1\n"
)
FAILED = 'Traceback (most recent call last):\n  File "/app/t.py", line 5, in main\nValueError: no shard\n'
Frames = list[tuple[str, str, int]]


def thread(address: int, frames: Frames) -> str:
    rows = "".join(f'  File "{file}", line {line} in {name}\n' for name, file, line in frames)
    return f"Thread 0x{address:016x} (most recent call first):\n{rows}"


def dump(process: int, frames: Frames) -> str:
    return (
        f"Timeout (0:01:15)!\n{thread(2 * process + 1, BESIDE)}\n{thread(2 * process + 2, frames)}"
    )


def of_processes(*every: Frames) -> str:
    return "".join(dump(number, frames) for number, frames in enumerate(every))


def test_the_one_process_that_is_elsewhere_is_said_without_its_rank(tmp_path: Path) -> None:
    text = "step 410 loss 0.07\n" + of_processes(LOCKED, BACKWARD, BACKWARD, BACKWARD) + ENDED
    found = diagnosed(tmp_path, text)
    assert named(found) == [("not_entered", [])], found.summary
    assert "One of 4 processes" in found.summary and "line (journal.py:21)" in found.summary
    assert "the other 3 wait in gradient all_reduce" in found.summary
    assert "ended first" not in found.summary, "all end at their limit, in any order"


def test_dumps_of_one_process_are_no_others_and_equal_halves_name_none(tmp_path: Path) -> None:
    again = dump(0, LOCKED) + "".join(dump(0, BACKWARD) for _ in range(3))
    for text in (
        again,
        of_processes(LOCKED, LOCKED, BACKWARD, BACKWARD),
        of_processes(BACKWARD, BACKWARD, BACKWARD),
        of_processes(LOCKED, BACKWARD, BACKWARD, BACKWARD) + "step 420 loss 0.07\n",
        of_processes(LOCKED, BACKWARD, BACKWARD) + FAILED,
    ):
        found = diagnosed(tmp_path, "step 410 loss 0.07\n" + text)
        assert "processes (" not in found.summary, found.summary
