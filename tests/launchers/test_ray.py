"""Ray clusters: what Ray knows becomes nodes, ranks and reasons; a driver that fails, hangs or is left
alone ends. Ray itself is in tests/frameworks; here its recorded answer, and a stand-in for its package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from hangdoctor.errors import (
    HangdoctorError,
    JobNotFound,
    LauncherError,
    NoRanksFound,
    UsageError,
)
from hangdoctor.launchers import ray_reach, ray_state, reach
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.readers import ray_ranks
from tests.support import ray_stand_in
from tests.support.stage import hangdoctor, wait_until

pytestmark = pytest.mark.timeout(90)

DATA = Path(__file__).parents[1] / "data" / "ray"
N1, N2 = (
    "9c0cabe9d873b39906463371aa96dce7f57bf04cb96d8f09297f2e72",
    "3015591096575bc50a569bd4756f7a05352873df4f66ca28c406c100",
)


def recorded(name: str = "two-nodes") -> ray_state.RayState:
    return msgspec.json.decode((DATA / f"{name}.json").read_bytes(), type=ray_state.RayState)


def test_ranks_and_actors_of_a_recorded_cluster() -> None:
    found = ray_state.training(recorded())
    assert [found.names[node.id] for node in found.asked] == ["n1", "n2"] and not found.lost
    assert [found.ranks(node) for node in found.asked] == [{723: 2, 749: 3}, {558: 0, 557: 1}]
    assert found.world_size == 4
    assert ray_state.given(found.ranks(found.asked[0]), 4) == "4:723=2,749=3"
    assert [line.split(", actors")[0] for line in ray_state.placement(found)] == [
        "Ray job 02000000, n1: ranks 2-3",
        "Ray job 02000000, n2: ranks 0-1",
    ]


def test_a_dead_node_and_a_dead_actor_are_evidence_with_rays_reason() -> None:
    state = recorded()
    lost = next(node for node in state.nodes if node.id == N2)
    lost.alive, lost.why = False, "health check failed due to missing too many heartbeats"
    dead = next(actor for actor in state.actors if actor.pid == 749)
    dead.state, dead.why = "DEAD", "The actor is dead because it was killed by `ray.kill`."
    known = ray_reach.RayReach("auto")
    known._found = ray_state.training(state)
    assert known.nodes() == ["n1", "n2"]
    assert known.unasked() == {"n2": f"Ray lists it as dead: {lost.why}"}
    capture = JobCapture("j", [NodeCapture("n1", ranks=[RankCapture(pid=9, rank=2, node="n1")])])
    capture.world_size = 4
    known.enter(capture)
    assert [(r.rank, r.gone) for r in capture.nodes[0].ranks] == [(2, False), (3, True)]
    assert f"Ray lists the actor of rank 3 (n1) as dead: {dead.why}" in capture.notes


def test_a_training_that_is_over_is_said_with_its_first_death() -> None:
    said = ray_state.ended(recorded("training-over"))
    assert said.startswith(
        "all 4 workers of Ray job 02000000 are dead, first 2 on n2: The actor died"
    )
    assert "its node has died" in said
    assert ray_state.ended(recorded()) == ""
    assert ray_state.ended(ray_state.RayState()) == ""
    known = ray_reach.RayReach("auto")
    none = NoRanksFound("none has a rank")
    assert known.without_ranks(none) is none
    known._ended = said
    assert str(known.without_ranks(none)) == f"{said}; none has a rank"


def test_without_a_training_all_nodes_with_actors_are_asked() -> None:
    state = recorded()
    state.logs = {}
    assert [n.host for n in ray_state.training(state).asked] == ["n1", "n2"]
    state.actors = [actor for actor in state.actors if actor.node == N2]
    assert [n.host for n in ray_state.training(state).asked] == ["n2"]
    state.actors = []
    found = ray_state.training(state)
    assert [n.host for n in found.asked] == ["n1", "n2"] and found.ranks(found.asked[0]) == {}


def test_names_of_nodes_that_share_a_host_or_an_address() -> None:
    nodes = [
        ray_state.RayNode("a" * 56, "vm", "10.0.0.1", alive=True),
        ray_state.RayNode("b" * 56, "vm", "10.0.0.2", alive=True),
        ray_state.RayNode("c" * 56, "vm", "10.0.0.2", alive=True),
        ray_state.RayNode("d" * 56, "n9", "10.0.0.9", alive=True),
    ]
    names = list(ray_state.node_names(nodes).values())
    assert names == ["10.0.0.1", "vm/" + "b" * 12, "vm/" + "c" * 12, "n9"]


def test_the_last_of_several_lists_counts() -> None:
    one, two = (
        f"Started training worker group of size 1: \n- (ip=10.0.0.1, pid={pid}) world_rank=0, local_rank=0\n"
        for pid in (5, 6)
    )
    assert ray_ranks.workers(one + two) == ([ray_ranks.Listed("10.0.0.1", 6, 0)], 1)
    assert ray_ranks.workers("no list") == ([], 0)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("4:{pid}=2,999=3", 2),
        ("4:999=3", None),
        ("2:{pid}=2", None),
        ("", None),
        ("4:{pid}=x", None),
        ("9999999999:1=1", None),
    ],
)
def test_ranks_that_an_agent_is_given(
    told: str, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ray_ranks.GIVEN, told.format(pid=os.getpid()))
    ranks, _ = ray_ranks.given([os.getpid()])
    assert ranks.get(os.getpid()) == found


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded cluster as the stand-in for Ray's package shows it, and a node that takes no task."""
    ray_stand_in.make(tmp_path)
    nodes = [
        {"NodeID": n, "NodeManagerHostname": host, "NodeManagerAddress": host, "Alive": True}
        for n, host in ((N1, "n1"), (N2, "n2"), ("c3" * 28, "n3"))
    ]
    known = {"nodes": nodes, "actors": []}
    (tmp_path / "known.json").write_text(json.dumps(known))
    monkeypatch.setenv("RAY_STAND_IN", str(tmp_path / "known.json"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_each_node_runs_its_task_and_one_that_cannot_be_scheduled_says_why(cluster: None) -> None:
    known = ray_reach.RayReach("auto", seconds=60)
    outcomes = {o.node: o for o in reach.ask(known, ["--version"], 60, lambda text: None)}
    for node in ("n1", "n2"):
        assert outcomes[node].output.startswith("hangdoctor") and outcomes[node].code == 0
    assert outcomes["n3"].errors == "Ray: The task is not schedulable: the node is infeasible\n"
    assert outcomes["n3"].code == 1
    driver, folder = known._driver, known._folder
    assert driver is not None and driver.stdin is not None
    driver.stdin.close()  # as the end of this process does
    assert driver.wait(30) == 0 and not folder.exists()


@pytest.mark.parametrize(
    ("address", "kind", "said", "advice"),
    [
        ("nowhere", JobNotFound, "no Ray cluster was found", "Run it on a node of the cluster"),
        (
            "older",
            LauncherError,
            "Ray (by this Python): Version mismatch: The cluster was",
            "--python",
        ),
        ("silent", LauncherError, "(silent) did not answer within 1 s", "ray status"),
    ],
)
def test_a_cluster_that_cannot_be_asked(
    cluster: None, address: str, kind: type[HangdoctorError], said: str, advice: str
) -> None:
    known = ray_reach.RayReach(address, seconds=1 if address == "silent" else 60)
    with pytest.raises(kind) as caught:
        known.nodes()
    assert said in str(caught.value) and advice in caught.value.help
    assert known._driver is not None and known._driver.poll() is not None
    assert not known._folder.exists()


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="this Python has ray")
def test_this_python_without_ray_is_said() -> None:
    with pytest.raises(LauncherError, match="this Python cannot import ray") as caught:
        ray_reach.RayReach("auto", seconds=60).nodes()
    assert "--python PATH" in caught.value.help


def test_a_python_without_ray_is_said(tmp_path: Path) -> None:
    without = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    python = Path("/usr/bin/python3")
    if (
        not python.exists()
        or subprocess.run([python, "-c", "import ray"], check=False).returncode == 0
    ):
        pytest.skip("needs a Python without ray")
    flags = ("--ray", "--python", str(python), "--timeout", "60")
    done = hangdoctor("dump", *flags, cwd=tmp_path, code=1, env=without)
    assert f"{python} cannot import ray" in done.stderr and "this Python" not in done.stderr
    assert "Name another one with --python" in done.stderr
    done = hangdoctor("dump", "--ray", "local", cwd=tmp_path, code=2, env=without)
    assert "'local' is no address of a running Ray cluster" in done.stderr


def test_a_driver_whose_starter_is_killed_ends(cluster: None, tmp_path: Path) -> None:
    words = "from hangdoctor.launchers.ray_reach import RayReach as R; import time; "
    words += "r = R('silent', seconds=600); "
    words += "import threading; threading.Thread(target=r.nodes, daemon=True).start(); "
    words += "\nwhile r._driver is None: time.sleep(0.01)\nprint(r._driver.pid, flush=True); time.sleep(600)"
    root = Path(ray_reach.__file__).parents[2]
    env = os.environ | {"PYTHONPATH": f"{root}:{os.environ['PYTHONPATH']}"}
    with subprocess.Popen(
        [sys.executable, "-c", words], stdout=subprocess.PIPE, env=env
    ) as starter:
        assert starter.stdout is not None
        driver = psutil.Process(int(starter.stdout.readline()))
        wait_until(lambda: driver.num_threads() > 1, "the driver reads its input", 30)
        starter.kill()
    wait_until(lambda: not psutil.pid_exists(driver.pid), "the driver ends", 30)


def test_the_address_is_never_one_that_starts_a_cluster() -> None:
    for address in ("local", "--head"):
        with pytest.raises(UsageError):
            ray_reach.RayReach(address)
