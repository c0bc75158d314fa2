"""A dump of ranks that have no torch, only NCCL's plugin: what the device of each has come to decides."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.recorders import by_recorder, records_of
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.operations import Operation, RankOps
from hangdoctor.storage.bundle import load
from tests.support.nccl_driver import Built, build, private
from tests.support.ports import free_port
from tests.support.probe_ranks import ROOT, STARTUP
from tests.support.stage import hangdoctor

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("nccl"))


def dumped(
    built: Built, tmp_path: Path, version: int, states: list[str], **more: str
) -> dict[str, Any]:
    """What `dump --local` finds on ranks whose last operation has come to these states."""
    folder, port = private(tmp_path / "run"), str(free_port())
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1", **more}
    ranks: list[subprocess.Popen[str]] = []
    try:
        for number, state in enumerate(states):
            place = (number, len(states))
            ranks.append(built.rank(folder, version, place, state, LOCAL_RANK=str(number), **job))
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline().startswith("ready")
        words = ("dump", "--local", "--job", port, "--json", "-", "--bundle", str(tmp_path / "b"))
        live = hangdoctor(*words, cwd=tmp_path).stdout
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate(timeout=20)
    again = hangdoctor("diagnose", str(tmp_path / "b"), "--json", "-", cwd=tmp_path).stdout
    assert again == live
    found: dict[str, Any] = json.loads(live)
    return found


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_device_that_has_not_started_what_its_host_enqueued(
    built: Built, tmp_path: Path, version: int
) -> None:
    verdict = dumped(built, tmp_path, version, ["started", "enqueued", "started"])
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("device_wait", [1])
    assert "enqueued all_reduce #4, but its GPU has not started it" in cause["summary"]
    assert cause["where"]["seq"] == 4 and cause["where"]["group_ranks"] == [0, 1, 2]
    assert [w["ranks"] for w in verdict["waits"]] == [[0, 2]]


def test_a_host_that_has_not_enqueued_it_is_another_matter(built: Built, tmp_path: Path) -> None:
    [cause] = dumped(built, tmp_path, 5, ["started", "missing", "started"])["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [1])
    assert "never reached all_reduce #4; it is sleeping in load_batch" in cause["summary"]


@pytest.mark.parametrize("version", [1, 2])
def test_versions_without_kernels_accuse_no_rank(
    built: Built, tmp_path: Path, version: int
) -> None:
    verdict = dumped(built, tmp_path, version, ["started", "enqueued", "started"])
    assert not [c for c in verdict["causes"] if c["kind"] in ("device_wait", "not_entered")]


@pytest.mark.torch
def test_beside_black_boxes_that_show_no_wait(built: Built, tmp_path: Path) -> None:
    """torch's own recorder, which would come first, is switched off."""
    joined = {"JOIN": "1", "HANGDOCTOR_WORKER_SERVER": "0", "PYTHONPATH": f"{STARTUP}:{ROOT}"}
    verdict = dumped(built, tmp_path, 5, ["started", "enqueued", "started"], **joined)
    files = sorted(path.suffix for path in (tmp_path / "run").iterdir())
    assert files == [".blackbox"] * 3 + [".nccl"] * 3
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("device_wait", [1])
    assert "enqueued all_reduce #4, but its GPU has not started it" in cause["summary"]
    kept = {r.rank: r for r in load(tmp_path / "b").ranks()}
    assert all(r.ops is not None and r.ops.source == "blackbox" for r in kept.values())
    assert [r.recorded.source for r in kept.values() if r.recorded is not None] == ["nccl"] * 3


def two(*recorded: RankOps, waits: bool = False) -> JobCapture:
    """Two ranks with boxes, and these records beside them."""
    box = RankOps(0, 2, operations=[Operation("g", 1, "barrier")] if waits else [])
    ranks = [
        RankCapture(pid=r + 1, rank=r, ops=box, recorded=ops) for r, ops in enumerate(recorded)
    ]
    return JobCapture("j", [NodeCapture("n", ranks=ranks)], [], 2)


def nccl(rank: int) -> RankOps:
    waits = [Operation("g", 7, "all_reduce", "started")]
    return RankOps(rank, 2, source="nccl", operations=waits, runs_ahead=True)


def test_what_nccl_says_counts_where_no_box_shows_a_wait() -> None:
    assert by_recorder(open_case(two(nccl(0), nccl(1))))
    assert not by_recorder(open_case(two(nccl(0), nccl(1), waits=True)))


def test_torchs_recorder_and_nccl_do_not_count_alike() -> None:
    other = nccl(1)
    other.source = "flight_recorder"
    assert not by_recorder(open_case(two(nccl(0), other)))
    capture = two(nccl(0), nccl(1))
    capture.ranks()[0].recorded_before = other
    capture.ranks()[1].recorded_before = nccl(1)
    _, before = records_of(open_case(capture))
    assert list(before) == [1]
