"""The examples of hangdoctor's callbacks with the real packages (`make test-frameworks`)."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.support.framework_marks import ROOT, Marks, marks_of

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def marked(which: str, folder: Path) -> Marks:
    if importlib.util.find_spec(which) is None:
        pytest.skip(f"{which} is not installed (make test-frameworks installs it)")
    example = ROOT / "examples" / "callbacks" / f"{which}_training.py"
    return marks_of(folder, example, more_path=os.environ.get("PYTHONPATH", ""))


def test_lightning(tmp_path: Path) -> None:
    marks = marked("lightning", tmp_path)
    assert marks.iterations == [1, 2, 3, 4] and marks.micro_batches == [1, 2] * 4
    one = ["forward", "backward", "data", "forward", "backward", "optimizer", "data"]
    assert marks.phases_of(1) == marks.phases_of(3) == one
    assert marks.phases_of(2) == [*one, "evaluate", "data", "checkpoint"]


def test_transformers(tmp_path: Path) -> None:
    marks = marked("transformers", tmp_path)
    assert marks.iterations == [1, 2, 3, 4] and marks.micro_batches == [1, 2] * 4
    assert marks.phases_of(1) == ["train", "optimizer", "data"]
    assert marks.phases_of(2) == ["train", "optimizer", "evaluate", "data"]
    assert marks.phases_of(4) == ["train", "optimizer", "evaluate", "checkpoint", "data", ""]


def test_accelerate(tmp_path: Path) -> None:
    marks = marked("accelerate", tmp_path)
    assert marks.iterations == [1, 2, 3, 4] and marks.micro_batches == [1, 2] * 4
    assert marks.phases_of(1) == ["backward", "", "backward", ""]
    assert marks.phases_of(4)[-4:] == ["evaluate", "", "checkpoint", ""]
