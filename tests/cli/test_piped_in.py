"""`diagnose -`: what a pipe brings is read as a file of it would be."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

STACK = 'Process 422: python lake.py\nThread 422 (active): "MainThread"\n    sched_yield (libc.so.6)\n    zeEventHostSynchronize (libdeep.so)\n    fill (lake.py:31)\n'
ERROR = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"


def piped(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hangdoctor", "diagnose", "-"],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_a_stack_is_read_from_a_pipe(tmp_path: Path) -> None:
    done = piped(STACK, tmp_path)
    assert "process 422 waits for its device" in done.stdout, done.stderr


@pytest.mark.parametrize("lines", [10, 320_000], ids=["a paste", "more than is kept"])
def test_a_log_is_read_from_a_pipe_whatever_its_length(tmp_path: Path, lines: int) -> None:
    text = "".join(f"step {n} loss 2.31 of the lake\n" for n in range(lines)) + ERROR
    done = piped(text, tmp_path)
    assert "Rank 3 failed first" in done.stdout, done.stderr
    assert f"standard input:{lines + 1}" in done.stdout


def test_nothing_is_said_as_nothing_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    done = piped("", tmp_path)
    assert done.returncode == 1 and "standard input is empty" in done.stderr
    assert str(tmp_path) not in done.stderr
    piped(STACK, tmp_path)
    assert not list(tmp_path.glob("hangdoctor-*"))
