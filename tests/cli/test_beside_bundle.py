"""A bundle (or an incident) with the logs and dumps of the same job beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput
from hangdoctor.model.capture import JobCapture, NodeCapture
from hangdoctor.storage import bundle
from tests.support.active_dumps import dump, entry, write
from tests.support.captures import LOAD, WAIT, still

LAGS = "[rank{0}]:[E] [{1}] finished collective #80, but didn't join collective #81\n"
TIMED_OUT = (
    "[rank{0}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran "
    "for 600301 milliseconds before timing out.\n"
)


def saved(folder: Path, outside: int) -> Path:
    """A bundle of four ranks, three of which wait for one."""
    ranks = [still(r, LOAD if r == outside else WAIT) for r in range(4)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4, taken=1.0)
    return bundle.save(folder / "kept", capture, diagnose(capture), "", ["dump"])


def log(folder: Path, lags: int) -> Path:
    path = folder / "slurm-7.out"
    waits = "".join(TIMED_OUT.format(r) for r in range(4) if r != lags)
    path.write_text(waits + LAGS.format(0, lags))
    return path


def verdict(*paths: Path) -> dict[str, Any]:
    found = diagnose(load(list(paths)))
    return dict(json.loads(bundle.encode_diagnosis(found)))


def test_logs_support_what_the_bundle_shows(tmp_path: Path) -> None:
    found = verdict(saved(tmp_path, 2), log(tmp_path, 2))
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [2])
    assert {"log", "stack"} <= {e["source"] for e in cause["evidence"]}
    assert not any("the logs name" in note.lower() for note in found["notes"])


def test_logs_that_name_another_rank_contradict(tmp_path: Path) -> None:
    path = tmp_path / "slurm-7.out"
    path.write_text(LAGS.format(0, 1))
    found = verdict(path, saved(tmp_path, 2))
    assert found["causes"][0]["ranks"] == [2]
    said = [e["says"] for e in found["causes"][0]["evidence"] if e["source"] == "log"]
    assert any("The log contradicts: by its lines rank 1 is the cause" in text for text in said)
    assert any("one names rank 1, the other rank 2" in note for note in found["notes"])


def test_a_rank_that_timed_out_itself_is_no_longer_the_cause(tmp_path: Path) -> None:
    """Its host had gone on to the next batch, and its operation waited with the others."""
    found = verdict(log(tmp_path, 1), saved(tmp_path, 2))
    [cause] = found["causes"]
    assert cause["ranks"] == [1]
    assert [a["ranks"] for a in cause["alternatives"]] == [[2]]
    assert any("rank 2 timed out in the operation that it is said" in n for n in found["notes"])


def test_dumps_add_the_operation_where_the_bundle_has_stacks_alone(tmp_path: Path) -> None:
    waits = dump({"0": range(4)}, {"0": 80}, [entry(80, 81)])
    files = write(tmp_path, {r: waits for r in (0, 1, 3)})
    files += write(tmp_path, {2: dump({"0": range(4)}, {"0": 80}, [])})
    [cause] = verdict(saved(tmp_path, 2), *files)["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [2])
    assert (cause["where"]["op"], cause["where"]["seq"]) == ("all_reduce", 81)
    assert cause["where"]["frame"].startswith("load_batch")


def test_dumps_of_another_job_are_not_joined(tmp_path: Path) -> None:
    waits = dump({"0": range(2)}, {"0": 80}, [entry(80, 81)])
    files = write(tmp_path, dict.fromkeys(range(2), waits))
    found = verdict(saved(tmp_path, 2), *files)
    assert found["causes"][0]["ranks"] == [2]
    assert any("of another job: it has 2 ranks" in note for note in found["notes"])


def test_two_bundles_are_one_too_many(tmp_path: Path) -> None:
    first = saved(tmp_path, 2)
    second = saved(tmp_path, 1)
    with pytest.raises(BadInput, match="are two bundles"):
        load([first, second])
