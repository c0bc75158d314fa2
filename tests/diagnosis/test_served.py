"""Stacks of hung inference servers (`tests/data/served`): the worker that hangs is named, and no helper is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers import pyspy_ranks

DATA = Path(__file__).parents[1] / "data" / "served"

CULPRITS = {
    "dev-sglang-cache-write": [3],
    "dev-vllm-adapter-load": [1],
    "dev-vllm-engine-in-grammar": [],
    "dev-vllm-warm-up-compiles": [2],
    "held-sglang-graph-capture": [1],
    "held-vllm-lost-message": [0],
    "held-vllm-pipeline-kv-transfer": [3],
    "held-vllm-ray-set-up": [2],
    "held-vllm-replica-without-work": [2, 3],
}


@pytest.mark.parametrize("name", CULPRITS)
def test_the_worker_that_hangs_is_named(name: str) -> None:
    found = diagnose(pyspy_ranks.read_files([DATA / f"{name}.txt"]))
    assert sorted(r for cause in found.causes for r in cause.ranks) == CULPRITS[name], found.summary
    assert found.status == ("hang" if CULPRITS[name] else "unknown")
    named_by = [note for note in found.notes if "inference server" in note]
    assert named_by or "ray" in name


def test_all_cases_are_tried() -> None:
    assert {path.stem for path in DATA.glob("*.txt")} == set(CULPRITS)


def test_a_worker_that_polls_its_queue_has_not_moved(tmp_path: Path) -> None:
    """Between two dumps it is at other lines of the same wait: that is no progress."""
    once = (DATA / "dev-vllm-engine-in-grammar.txt").read_text()
    again = once.replace("shm_broadcast.py:864", "shm_broadcast.py:867")
    (tmp_path / "dump-n1.txt").write_text(once + again)
    found = diagnose(pyspy_ranks.read_files([tmp_path / "dump-n1.txt"]))
    assert (found.status, found.causes) == ("unknown", [])
    assert "ranks 0-3 wait for work from the engine" in found.summary


def test_the_log_of_a_server_that_dumped_itself_is_read(tmp_path: Path) -> None:
    """SGLang's watchdog prints py-spy's output of all its schedulers."""
    [head, *processes] = (DATA / "held-sglang-graph-capture.txt").read_text().split("Process ")
    said = "[2026-11-01 10:00:00 TP1] Pyspy dump for PID {}:\nProcess "
    log = head + "".join(said.format(p.partition(":")[0]) + p for p in processes)
    (tmp_path / "server.log").write_text(
        f"[2026-11-01 10:00:00 TP1] Scheduler watchdog timeout\n{log}"
    )
    found = diagnose(pyspy_ranks.read_files([tmp_path / "server.log"]))
    assert [cause.ranks for cause in found.causes] == [[1]], found.summary
