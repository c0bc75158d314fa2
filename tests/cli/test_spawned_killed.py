"""The last line of `hangdoctor run` for a job of torch.multiprocessing whose rank was killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.stage import hangdoctor

pytestmark = [pytest.mark.timeout(400), pytest.mark.torch]

JOB = Path(__file__).parents[1] / "support" / "jobs" / "spawned_killed.py"


def test_the_killed_rank_is_named(tmp_path: Path) -> None:
    boxes = tmp_path / "boxes"
    environ = os.environ | {"HANGDOCTOR_DIR": str(boxes), "OMP_NUM_THREADS": "1"}
    words = ("run", "--", sys.executable, str(JOB), str(free_port()))
    done = hangdoctor(*words, cwd=tmp_path, code=1, env=environ, timeout=300)
    [line] = [one for one in done.stderr.splitlines() if one.startswith("hangdoctor: ")]
    assert line.startswith("hangdoctor: Rank 2 ") and "SIGKILL" in line, done.stderr

    for ends in boxes.glob("*.ends"):
        ends.unlink()
    said = hangdoctor("diagnose", str(boxes), cwd=tmp_path).stdout
    assert "Could not tell: no exit is recorded. Nothing hung: ranks 0-3 were at work" in said, said
    assert "sample" not in said and "whether they move" not in said, said
