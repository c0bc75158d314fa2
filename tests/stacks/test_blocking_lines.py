"""What a line that does not move is blocked in, and lines that only look alike."""

from __future__ import annotations

import pytest

from hangdoctor.model.frame import Frame
from hangdoctor.stacks.blocking_lines import blocking_call, waited_in


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("fcntl.flock(f, fcntl.LOCK_EX)", "flock"),
        ("lockf(handle, LOCK_SH)", "flock"),
        ("fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)", ""),
        ("fcntl.flock(f, fcntl.LOCK_UN)", ""),
        ("time.sleep(poll)", "clock_nanosleep"),
        ("sleep(0.5)", "clock_nanosleep"),
        ("await asyncio.sleep(1)", ""),
        ("self.backoff.sleep(1)", ""),
        ("scores.append(int(self.proc.stdout.readline()) / 10000)", "read"),
        ("text = child.stderr.read()", "read"),
        ("line = reader.readline()", ""),
        ("child.stdout.readline() or time.sleep(1)", ""),
        ("return self.model(batch)", ""),
        ("", ""),
    ],
)
def test_a_line(code: str, call: str) -> None:
    assert blocking_call(code) == call


LIB = "/usr/lib/python3.11"
OWN = Frame("take", "/app/ppo.py", 102)


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ([("wait", "threading.py"), ("get", "queue.py")], "queue.get"),
        ([("wait", "threading.py"), ("Queue.put", "queue.py")], "queue.put"),
        ([("wait", "threading.py"), ("acquire", "threading.py")], "futex"),
        ([("wait", "threading.py")], "futex"),
        ([("_try_wait", "subprocess.py"), ("wait", "subprocess.py")], "waitid"),
        ([("join", "queue.py")], "futex"),
        ([("raw_decode", "json/decoder.py"), ("get", "queue.py")], ""),
        ([], ""),
    ],
)
def test_by_the_frames_of_pythons_own_library(frames: list[tuple[str, str]], call: str) -> None:
    stack = [Frame(name, f"{LIB}/{file}", 9) for name, file in frames]
    assert waited_in([*stack, OWN]) == call
