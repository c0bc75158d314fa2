"""Marks of other frameworks' trainings, from the hooks that real runs called.

The real packages run in tests/frameworks/test_callbacks.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.framework_marks import ROOT, marks_of

HOOKS = ROOT / "tests" / "data" / "framework_hooks"
REPLAY = ROOT / "tests" / "support" / "jobs" / "replayed_hooks.py"
EXPECTED = {
    "lightning": {
        "iterations": [1, 2, 3, 4],
        "micro_batches": [1, 2] * 4,
        # Of the first iteration, and of the second, which is evaluated and saved.
        "first": ["forward", "backward", "data", "forward", "backward", "optimizer", "data"],
        "last": ["evaluate", "data", "checkpoint"],
    },
    "transformers": {
        "iterations": [1, 2, 3, 4],
        "micro_batches": [1, 2] * 4,
        "first": ["train", "optimizer", "data"],
        "last": ["evaluate", "checkpoint", "data"],
    },
}


@pytest.mark.parametrize("which", EXPECTED)
def test_steps_and_phases_are_marked_as_the_hooks_come(which: str, tmp_path: Path) -> None:
    marks = marks_of(tmp_path, REPLAY, which, str(HOOKS / f"{which}.json"))
    expected = EXPECTED[which]
    assert marks.iterations == expected["iterations"]
    assert marks.micro_batches == expected["micro_batches"]
    assert marks.phases_of(1) == expected["first"]
    assert [p for p in marks.phases_of(4) if p][-3:] == expected["last"]


def test_without_the_probe_the_marks_do_nothing(tmp_path: Path) -> None:
    words = [sys.executable, str(REPLAY), "transformers", str(HOOKS / "transformers.json")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HANGDOCTOR_DIR": str(tmp_path / "boxes")}
    done = subprocess.run(words, env=environ, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "boxes").exists()


class StandInAccelerator:
    """The methods of an Accelerator that are marked; gradients are complete with each second batch."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.sync_gradients = True

    def backward(self, loss: float, **more: Any) -> None:
        self.calls.append((loss, more))

    def save_state(self, folder: str) -> str:
        return folder

    save_model = load_state = save_state


def test_an_accelerator_is_marked_once_and_answers_as_before() -> None:
    from hangdoctor.callbacks import mark_accelerator

    accelerator = StandInAccelerator()
    assert mark_accelerator(accelerator) is accelerator
    marked = accelerator.backward
    assert mark_accelerator(accelerator).backward is marked
    accelerator.backward(1.5, retain_graph=True)
    assert accelerator.calls == [(1.5, {"retain_graph": True})]
    assert accelerator.save_state("here") == "here" and accelerator.load_state("there") == "there"
    assert json.dumps(marked.__name__) == '"backward"'
