"""`sidecar --k8s` while pods of its job end and others begin, on the stand-in for Kubernetes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.launchers.kubernetes.follow import FollowedPods
from hangdoctor.launchers.kubernetes.kubectl import Kubectl
from hangdoctor.launchers.kubernetes.reach import K8sReach, Target
from hangdoctor.launchers.remote import Outcome
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture, SilentNode
from hangdoctor.model.members import Members
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.pods import Pods, unavailable
from tests.support.kubernetes.training import pod
from tests.support.plain_ranks import SLEEPER
from tests.support.stage import wait_until

KILLED = {"name": "pytorch", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
DONE = {"name": "pytorch", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
CRASHED = {
    "name": "pytorch",
    "restartCount": 1,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
}


class Cluster:
    """What kubectl prints of pods that a test puts here, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.items = {name: pod(name, "worker") for name in names}
        self.now = 0.0
        self.answers = True
        monkeypatch.setattr(Kubectl, "outcome", lambda *asked: self._answer())
        reach = K8sReach(Target("job/bloom", python="/usr/bin/python3"), Kubectl())
        words = ["agent", "--folder", "/job"]
        self.followed = FollowedPods(reach, words, clock=lambda: self.now)

    def _answer(self) -> Outcome:
        if not self.answers:
            return Outcome("", "", "The connection to the server was refused", code=1)
        return Outcome("", json.dumps({"items": list(self.items.values())}), code=0)

    def status(self, name: str, container: dict[str, Any], phase: str = "Running") -> None:
        self.items[name]["status"] = {"phase": phase, "containerStatuses": [container]}

    def look(self) -> tuple[dict[str, str], list[str], str]:
        changes = self.followed.changes()
        return changes.ended, [c.node for c in changes.begun], changes.trouble

    def members(self) -> tuple[set[str], dict[str, bool]]:
        known: Members = self.followed.members()
        return set(known.expected), dict(known.ended)


def test_a_pod_that_crashes_is_let_go_and_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "b-0", "b-1")
    assert cluster.look() == ({}, [], "")
    assert cluster.members() == ({"b-0", "b-1"}, {})
    cluster.status("b-1", CRASHED)
    [(name, why)] = cluster.look()[0].items()
    assert (name, why.partition(";")[0]) == ("b-1", "CrashLoopBackOff, restarted 1 times")
    assert cluster.members() == ({"b-0"}, {"b-1": False})
    assert cluster.look() == ({}, [], ""), "said once"
    cluster.now = 1000.0
    assert cluster.followed.waits(), "the pod starts its container again"
    cluster.status("b-1", {"name": "pytorch", "state": {"running": {}}})
    assert cluster.look() == ({}, ["b-1"], "")
    assert cluster.members() == ({"b-0", "b-1"}, {})


def test_pods_of_another_name_or_of_the_same_take_the_place_of_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, "b-0-x", "b-1")
    del cluster.items["b-0-x"]
    cluster.items["b-0-y"] = pod("b-0-y", "worker")
    cluster.items["b-1"]["metadata"]["creationTimestamp"] = "2026-11-23T05:00:00Z"
    assert cluster.look() == (
        {"b-0-x": "the pod was deleted", "b-1": "a new pod of the same name took its place"},
        ["b-0-y", "b-1"],
        "",
    )
    assert cluster.members() == ({"b-0-y", "b-1"}, {"b-0-x": False})
    cluster.items["b-1"]["metadata"]["deletionTimestamp"] = "2026-11-23T05:10:00Z"
    assert cluster.look() == ({}, [], ""), "it still runs"


def test_it_is_over_when_no_pod_has_come_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "b-0", "b-1")
    cluster.status("b-0", DONE, "Succeeded")
    cluster.look()
    cluster.items.clear()
    ended, begun, _ = cluster.look()
    assert (list(ended), begun) == (["b-1"], [])
    assert cluster.members() == (set(), {"b-0": True, "b-1": True}), "taken away by its operator"
    assert cluster.followed.waits()
    cluster.now = 61.0
    assert not cluster.followed.waits()


def test_an_api_server_that_does_not_answer_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, "b-0")
    cluster.answers = False
    ended, begun, trouble = cluster.look()
    assert (ended, begun) == ({}, []) and "API server does not answer" in trouble
    assert cluster.members() == ({"b-0"}, {})


def test_what_the_cluster_says_is_in_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "b-0", "b-1", "b-2")
    cluster.status("b-1", KILLED, "Failed")
    waiting = {"name": "pytorch", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    cluster.status("b-2", waiting, "Pending")
    cluster.look()
    rank = RankCapture(pid=9, rank=0, node="b-0", world_size=3)
    capture = JobCapture("j", [NodeCapture("b-0", ranks=[rank])], world_size=3)
    capture.silent = [SilentNode("b-1", "no message from its agent for 12 s", [1])]
    cluster.followed.enter(capture)
    gone = [(r.rank, r.exit_code, r.node) for n in capture.nodes for r in n.ranks if r.gone]
    assert gone == [(1, -9, "b-1")]
    assert capture.site is not None and "kubectl delete pod b-0 b-1 b-2" in capture.site.restart
    [silent] = capture.silent
    assert (silent.node, silent.ranks, silent.unstarted) == ("b-2", [2], True)


def test_a_pod_that_ended_before_it_said_its_rank_is_known_by_the_rank_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, "b-0", "b-1")
    cluster.status("b-1", KILLED, "Failed")
    cluster.look()
    rank = RankCapture(pid=9, rank=0, node="b-0", world_size=2)
    capture = JobCapture("j", [NodeCapture("b-0", ranks=[rank])], world_size=2)
    capture.silent = [SilentNode("b-1", "no message from its agent for 12 s")]
    cluster.followed.enter(capture)
    assert [r.rank for n in capture.nodes for r in n.ranks if r.gone] == [1]
    assert capture.silent == []


class Followed:
    """Two pods of one job, of which the second may begin later; no torch in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods = Pods(folder)
        self.api = ApiServer(self.pods)

    def start(self, rank: int) -> str:
        name, ready = f"bloom-worker-{rank}", self.folder / f"ready.{rank}"
        rank_is = f"RANK={rank} LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.88.0.1 MASTER_PORT=29500"
        program = self.folder / "sleeps.py"
        program.write_text(SLEEPER)
        script = f"{rank_is} {sys.executable} {program} {ready} &\nwait"
        environ = {"PATH": os.environ["PATH"], "TMPDIR": str(self.folder)}
        self.pods.start(name, script, environ)
        wait_until(ready.exists, f"{name} runs", 60)
        self.api.add("pods", pod(name, "worker", rank))
        return name

    @contextlib.contextmanager
    def watched(self) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A sidecar, and its log."""
        words = [sys.executable, "-m", "hangdoctor", "sidecar", "--k8s", "pytorchjob/bloom"]
        words += ["--folder", str(self.folder / "job"), "--bind", "tcp://127.0.0.1:*"]
        config = str(self.api.configuration(self.folder))
        env = os.environ | {"KUBECONFIG": config, "KUBECACHEDIR": str(self.folder / "cache")}
        log = self.folder / "log"
        with log.open("wb") as output:
            own = subprocess.Popen([*words, "--once"], env=env, cwd=self.folder, stderr=output)
        try:
            yield own, log
        finally:
            own.kill()
            own.wait(timeout=30)


@pytest.mark.timeout(240)
@pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "-")
@pytest.mark.full
def test_a_pod_that_starts_later_is_watched_and_one_that_is_killed_is_named(tmp_path: Path) -> None:
    job = Followed(tmp_path)
    try:
        first = job.start(0)
        with job.api.running(), job.watched() as (sidecar, log):
            wait_until(lambda: f"{first}: its agent has" in log.read_text(), log.read_text, 90)
            second = job.start(1)
            wait_until(lambda: f"{second}: its agent has" in log.read_text(), log.read_text, 90)
            assert f"{second} has started: an agent is started in it" in log.read_text()
            job.pods.end(second)
            item = job.api.objects["pods"][second]
            item["status"] = {"phase": "Failed", "containerStatuses": [KILLED]}
            said = "container pytorch has ended: OOMKilled, exit code 137; it is watched no more"
            wait_until(lambda: f"{second}: {said}" in log.read_text(), log.read_text, 60)
            sidecar.send_signal(signal.SIGUSR1)
            assert sidecar.wait(timeout=90) == 0
            assert "Rank 1 (bloom-worker-1) is dead" in log.read_text()
    finally:
        job.pods.close()
