"""Runs a program with the probe in it and returns what it has marked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
_RUN = Path(__file__).with_name("jobs") / "marked.py"


class Marks(Struct):
    """In their order: phases as texts, iterations and micro-batches as pairs."""

    said: list[str | tuple[str, int]]

    def _numbers(self, kind: str) -> list[int]:
        return [one[1] for one in self.said if not isinstance(one, str) and one[0] == kind]

    @property
    def iterations(self) -> list[int]:
        """As they began."""
        return self._numbers("iteration")

    @property
    def micro_batches(self) -> list[int]:
        """As they began."""
        return self._numbers("micro_batch")

    def phases_of(self, iteration: int) -> list[str]:
        """From the begin of this iteration to that of the next."""
        begin = self.said.index(("iteration", iteration))
        phases = []
        for one in self.said[begin + 1 :]:
            if isinstance(one, str):
                phases.append(one)
            elif one[0] == "iteration":
                break
        return phases


def marks_of(folder: Path, program: Path, *words: str, more_path: str = "") -> Marks:
    """What the program marks, run in `folder`; `more_path` is searched for packages, too."""
    environ = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    environ |= {"HANGDOCTOR_DIR": str(folder / "boxes"), "OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), more_path]))
    done = subprocess.run(
        [sys.executable, str(_RUN), str(program), *words],
        env=environ,
        cwd=folder,
        timeout=240,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("MARKS ")]
    told = json.loads(line.removeprefix("MARKS "))
    return Marks([one if isinstance(one, str) else (one[0], one[1]) for one in told])
