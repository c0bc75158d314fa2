"""benchmarks/README.md lists every benchmark there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
# Programs that a benchmark starts itself.
PARTS = {
    "accuracy.nvrx_log_stage",
    "accuracy.peers",
    "accuracy.simulated",
    "accuracy.stem",
    "gpu.worker",
    "torch_suite.in_one_mode",
    "trainer.rank",
}


def programs() -> set[str]:
    """The names below `benchmarks` that can be run with `python -m`."""
    found = set()
    for file in FOLDER.rglob("*.py"):
        if "jobs" in file.parts:
            continue  # what ranks run
        if 'if __name__ == "__main__":' in file.read_text() or file.name == "__main__.py":
            name = ".".join(file.relative_to(FOLDER).with_suffix("").parts)
            found.add(name.removesuffix(".__main__"))
    return found


def test_every_benchmark_is_listed_and_every_listed_one_exists() -> None:
    text = (FOLDER / "README.md").read_text()
    rows = set(re.findall(r"^\| `([\w.]+)", text, re.M))
    mentioned = rows | set(re.findall(r"`(accuracy\.\w+)", text))
    assert mentioned == programs() - PARTS
