"""`preflight --collectives` on nodes that something else than Slurm or ssh reaches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.launchers.reach import connected
from hangdoctor.launchers.template import TemplateReach
from hangdoctor.preflight.collectives import addresses
from tests.support import ray_stand_in
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.pods import Pods, unavailable
from tests.support.kubernetes.training import pod
from tests.support.stage import hangdoctor

FLAGS = ("--timeout", "60", "--gpus", "0", "--sizes", "4k,16k", "--json", "-")
# A process namespace of its own: ranks of other tests on this machine do not make it busy.
ALONE = "unshare --mount --pid --fork --mount-proc sh -c {command} {host}"
needs_namespaces = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "-")


def collectives(folder: Path, *target: str, env: dict[str, str]) -> dict[str, Any]:
    env = env | {"OMP_NUM_THREADS": "1", "HOME": str(folder)}
    done = hangdoctor("preflight", "--collectives", *FLAGS, *target, cwd=folder, env=env)
    return dict(json.loads(done.stdout)["collectives"])


def both_work(data: dict[str, Any]) -> None:
    [test] = data["tests"]
    assert (test["complete"], data["culprits"], data["untested"]) == (True, [], []), data
    assert [device["error"] for device in data["devices"]] == ["", ""]


@pytest.mark.torch
@needs_namespaces
def test_hosts_by_a_command_of_the_users_own(tmp_path: Path) -> None:
    """Neither name can be looked up: brokers of Flux have numbers, containers names of their own."""
    data = collectives(tmp_path, "--exec", ALONE, "--hosts", "3,no-such-host", env={**os.environ})
    assert [test["units"] for test in data["tests"]] == [["3", "no-such-host"]]
    both_work(data)


@pytest.mark.full
@pytest.mark.torch
@needs_namespaces
def test_pods_that_do_not_train_yet(tmp_path: Path) -> None:
    pods = Pods(tmp_path)
    api = ApiServer(pods)
    idle = f"exec {sys.executable} -c 'import time; time.sleep(900)'"
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "GLOO_SOCKET_IFNAME": "eth0"}
    try:
        for index in range(2):
            name = f"bloom-worker-{index}"
            address = pods.start(name, idle, environ)
            api.add("pods", pod(name, "worker", index, address=address))
        with api.running():
            own = {
                "KUBECONFIG": str(api.configuration(tmp_path)),
                "KUBECACHEDIR": str(tmp_path / "cache"),
            }
            both_work(collectives(tmp_path, "--k8s", "pytorchjob/bloom", env=os.environ | own))
            for name in pods.running:
                assert pods.processes(name, "preflight") == []
    finally:
        pods.close()


@pytest.mark.full
@pytest.mark.torch
def test_actors_of_a_stand_in_for_ray(tmp_path: Path) -> None:
    """Two nodes of this host, which see each other's processes: what a node says comes through."""
    ray_stand_in.make(tmp_path)
    nodes = [
        {"NodeID": n * 28, "NodeManagerHostname": f"n{n}", "NodeManagerAddress": "127.0.0.1"}
        for n in ("a1", "b2")
    ]
    known = {"nodes": [node | {"Alive": True} for node in nodes], "actors": []}
    (tmp_path / "known.json").write_text(json.dumps(known))
    own = {"RAY_STAND_IN": str(tmp_path / "known.json"), "PYTHONPATH": str(tmp_path)}
    rank = ["env", "RANK=0", "WORLD_SIZE=1", "MASTER_PORT=1", sys.executable, "-c"]
    program = "print(flush=True); import time; time.sleep(600)"
    with subprocess.Popen([*rank, program], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        data = collectives(tmp_path, "--ray", env=os.environ | own)
        busy.kill()
    assert sorted(data["left_out"]) == ["na1", "nb2"] and data["tests"] == []
    assert data["untested"] == ["network and devices of na1,nb2"]


def test_only_the_nodes_that_are_meant_are_spoken_to() -> None:
    reach = TemplateReach("sh -c {command} {host}", "a,b,c")
    assert [c.node for c in connected(reach, ["trace", "tail"], ["b"])] == ["b"]


def test_an_address_that_can_be_looked_up() -> None:
    assert addresses.first_known("3,no-such-host.invalid,127.0.0.1") == "127.0.0.1"
    assert addresses.first_known("localhost,127.0.0.1") == "localhost"
    assert addresses.first_known("no-such-host.invalid") == "no-such-host.invalid"
    assert not any(one.startswith("127.") for one in addresses.own())
