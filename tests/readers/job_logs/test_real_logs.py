"""`diagnose` on the output of real jobs that failed: kept ones, and jobs that fail here and now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from tests.support.ports import free_port
from tests.support.read_logs import DATA, named
from tests.support.stage import hangdoctor

PROGRAM = Path(__file__).parent / "programs" / "failing_job.py"

KEPT = {
    "exception.log": ("failed", [("error", [2])]),
    "kill.log": ("failed", [("dead", [2])]),
    "sleep.log": ("hang", [("not_entered", [1])]),
    "monitored.log": ("hang", [("not_entered", [2])]),
    "shape_detail.log": ("failed", [("mismatch", [2])]),
    "other_detail.log": ("failed", [("mismatch", [2])]),
    "tee.log": ("failed", [("error", [2])]),
    "tree": ("failed", [("dead", [2])]),
    "late.log": ("hang", [("start_stall", [3])]),
    "deepspeed.log": ("failed", [("dead", [1])]),
    "healthy.log": ("healthy", []),
    "srun_exception.log": ("failed", [("error", [2])]),
    "srun_kill.log": ("failed", [("dead", [3])]),
    "srun_cancel.log": ("unknown", []),
    "srun_torchrun.log": ("failed", [("error", [3])]),
}


@pytest.mark.parametrize("name", sorted(KEPT))
def test_the_first_cause_of_a_real_job(name: str) -> None:
    verdict = diagnose(load([DATA / name]))
    assert (verdict.status, named(verdict)) == KEPT[name], verdict.summary


def test_a_lost_node_is_named() -> None:
    verdict = diagnose(load([DATA / "srun_node.log"]))
    assert [(c.kind, c.nodes) for c in verdict.causes] == [("unreachable", ["n3"])]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("exception", ("error", [1])),
        ("kill", ("dead", [1])),
        pytest.param("sleep", ("not_entered", [1]), marks=pytest.mark.full),
    ],
)
def test_a_job_that_fails_now(tmp_path: Path, kind: str, cause: tuple[str, list[int]]) -> None:
    log = tmp_path / "job.log"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    run += ["--master-port", str(free_port()), str(PROGRAM), kind, "1"]
    with log.open("w") as out:
        environ = os.environ | {"OMP_NUM_THREADS": "1", "LIMIT_S": "15"}
        done = subprocess.run(run, stdout=out, stderr=subprocess.STDOUT, env=environ, timeout=150)
    assert done.returncode != 0
    said = json.loads(hangdoctor("diagnose", str(log), "--json", "-", cwd=tmp_path).stdout)
    assert [(c["kind"], c["ranks"]) for c in said["causes"]] == [cause], log.read_text()
    assert any(h["role"] in ("cause", "wait") and h["line"] > 0 for h in said["chain"])
