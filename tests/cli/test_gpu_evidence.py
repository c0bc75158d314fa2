"""A dump of a real job on a node with GPUs, whose nvidia-smi is a stand-in that lists its processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from hangdoctor.model.capture import NodeCapture
from hangdoctor.model.gpu import Xid
from hangdoctor.transport.capture_codec import pack_capture, unpack_capture
from tests.support import fake_gpus
from tests.support.stage import Stage, hangdoctor

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("gpus") / "job", world=4) as job:
        yield job.wait_ready()


def test_gpus_are_joined_by_process_and_kept_in_the_bundle(job: Stage) -> None:
    busy = [fake_gpus.one(7 - r, pids=[job.pid(r)], busy=0 if r == 2 else 99) for r in range(4)]
    by_index = sorted(busy, key=lambda gpu: gpu.index)
    for index, gpu in enumerate(by_index):
        gpu.index = index
    path = f"{fake_gpus.program(job.folder / 'bin', by_index)}:{os.environ['PATH']}"
    job.play("sleep", 2)
    bundle = job.folder / "kept"
    live = hangdoctor(
        *("dump", "--local", "--job", job.key, "--json", "-", "--bundle", str(bundle)),
        cwd=job.folder,
        env=os.environ | {"PATH": path},
    ).stdout
    job.release(2)
    verdict = json.loads(live)
    [cause] = verdict["causes"]
    assert cause["ranks"] == [2]
    said = [e["says"] for e in cause["evidence"] if e["source"] == "gpu"]
    assert said[0] == "its GPU is idle (0 %), those of the 3 other ranks are busy (99 %)"
    assert [line["gpu"] for line in verdict["ranks"]] == ["3", "2", "1", "0"]
    again = hangdoctor("diagnose", str(bundle), "--json", "-", cwd=job.folder).stdout
    assert again == live


def test_gpus_go_to_the_collector() -> None:
    gpu = fake_gpus.one(1, pids=[5], xids=[Xid(79, 2.0, 5, "fallen")], slowed=["hw_slowdown"])
    found = unpack_capture(pack_capture(NodeCapture("n", gpus=[gpu])))
    assert found.gpus == [gpu]
