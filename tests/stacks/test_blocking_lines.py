"""What a line that does not move is blocked in, and lines that only look alike."""

from __future__ import annotations

import pytest

from hangdoctor.stacks.blocking_lines import blocking_call


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
