"""Ranks of Ray Train's workers, by the log of the actor that directs them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hangdoctor.errors import NoRanksFound
from hangdoctor.readers import discover, families, node, ray_ranks
from hangdoctor.readers.node import CaptureOptions
from tests.support.stage import wait_until

pytestmark = pytest.mark.timeout(60)

# As Ray Train 2.60 writes it.
LOG = b"""Requesting resources: {'CPU': 1} * 4
Started training worker group of size 2:
- (ip=192.0.2.2, pid=311) world_rank=0, local_rank=0, node_rank=0
- (ip=192.0.2.2, pid=337) world_rank=1, local_rank=1, node_rank=0
a line of another actor
Started training worker group of size 3:
- (ip=192.0.2.2, pid=337) world_rank=2, local_rank=1, node_rank=0
- (ip=192.0.2.2, pid=363) world_rank=0, local_rank=0, node_rank=0
- (ip=192.0.2.3, pid=380) world_rank=1, local_rank=0, node_rank=1
"""


@pytest.mark.parametrize(
    ("log", "pids", "found"),
    [
        (LOG, [337, 363], ([2, 0], 3)),
        (LOG, [311], None),
        (LOG, [337, 999], None),
        (LOG.replace(b"=380", b"=363"), [337, 363], None),
        (LOG.replace(b"rank=2", b"rank=3"), [337, 363], None),
        (LOG.replace(b"rank=2", b"rank=0"), [337, 363], None),
        (b"", [337], None),
    ],
    ids=["the last list", "an earlier one", "one lacks", "two nodes", "too large", "twice", "none"],
)
def test_what_a_log_says_of_workers(log: bytes, pids: list[int], found: object) -> None:
    assert ray_ranks.told(log, pids) == found


PARENT = """
import subprocess, sys, time
log = open(sys.argv[1], "wb")
words = [sys.executable, "-c", "import time; time.sleep(600)"]
workers = [subprocess.Popen(words) for _ in range(2)]
log.write(b"Started training worker group of size 2:\\n")
for rank, worker in enumerate(reversed(workers)):
    log.write(b"- (ip=192.0.2.2, pid=%d) world_rank=%d, local_rank=0\\n" % (worker.pid, rank))
log.flush()
title = ["ray::TrainController.run", *words[1:]]
director = subprocess.Popen(title, executable=sys.executable, stderr=log)
print(*(worker.pid for worker in workers), director.pid, flush=True)
time.sleep(600)
"""


def test_the_log_of_the_actor_beside_the_workers_is_read(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        pids: list[int] = []
        try:
            assert parent.stdout is not None
            pids = [int(word) for word in parent.stdout.readline().split()]
            title = Path(f"/proc/{pids[2]}/cmdline")
            wait_until(lambda: title.read_bytes().startswith(b"ray::"), "the director has begun")
            assert ray_ranks.find(parent.pid, pids[:2]) == ([1, 0], 2)
            assert ray_ranks.find(pids[2], pids[:2]) is None
        finally:
            parent.kill()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


def test_one_worker_alone_on_a_node_is_a_rank_where_its_number_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing on the node itself tells it from any other process."""
    title = ["ray::RayTrainWorker", "-c", "print(flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(title, executable=sys.executable, stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None and worker.stdout.readline()
            assert families._family(os.getpid(), [worker.pid]) is None
            monkeypatch.setenv(ray_ranks.GIVEN, f"8:{worker.pid}=5")
            found = families._family(os.getpid(), [worker.pid])
            assert found is not None and (found.ranks, found.world_size) == ([5], 8)
            monkeypatch.setenv(ray_ranks.GIVEN, f"8:{worker.pid + 1}=5")
            assert families._family(os.getpid(), [worker.pid]) is None
        finally:
            worker.kill()


@pytest.mark.parametrize(("names", "hint"), [(["bash", "raylet"], True), (["bash"], False)])
def test_beside_a_node_of_ray_a_search_in_vain_names_what_asks_ray(
    names: list[str], hint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(_attributes: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(info={"name": name}) for name in names]

    monkeypatch.setattr(discover, "search", lambda *_: ([], 0))
    monkeypatch.setattr(families, "with_families", lambda *_: [])
    monkeypatch.setattr(node.waiting_agents, "capture", lambda *_, **__: None)
    monkeypatch.setattr(node.unnumbered, "by_hand", lambda *_: "")
    monkeypatch.setattr(psutil, "process_iter", listed)
    with pytest.raises(NoRanksFound) as raised:
        node.capture_node(CaptureOptions(timeout_s=20), "n1")
    assert ("hangdoctor dump --ray asks it" in raised.value.help) is hint
    monkeypatch.setenv(ray_ranks.GIVEN, "2:1=0,2=1")
    assert not ray_ranks.has_node(), "who asked Ray needs no hint"
