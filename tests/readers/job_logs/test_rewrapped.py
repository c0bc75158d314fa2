"""Blocks on a crash that a mail has filled anew: each line is that of the process whose prefix stands before it."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers.job_logs.rewrapped import Rewrapped
from tests.support.read_logs import diagnosed

FILLED = """\
[n7:812] *** Process received signal *** [n7:812]
Signal: Segmentation fault (11) [n7:812] Signal code:
Address not mapped (1) [n7:812] Failing at address: (nil)
[n7:813] *** Process received signal *** [n7:813]
Signal: Segmentation fault (11) [n7:813] Signal code:
Address not mapped (1) [n7:813] Failing at address: (nil)
mpirun noticed that process rank 1 with PID 813 on node n7
exited  on signal 11 (Segmentation fault).
"""


def test_both_crashes_are_read(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, FILLED)
    assert "Rank 1 (n7) and 1 more on n7 failed alike" in said.summary


def test_other_lines_stay_as_they_are() -> None:
    lines = Rewrapped()
    for text in ("[n7:812] hello [n7:812]", "Signal: strong", "plain [a]"):
        assert lines.lines(text) == [text]
