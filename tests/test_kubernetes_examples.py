"""The manifests in examples/kubernetes: valid, fitting one another, and their commands work."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import plain_ranks
from tests.support.kubernetes import schema
from tests.support.ports import free_port
from tests.support.stage import wait_until

EXAMPLES = Path(__file__).parents[1] / "examples" / "kubernetes"
# Of other projects: their schemas are not Kubernetes' own.
CUSTOM = {"ServiceMonitor", "PyTorchJob"}
POD = "io.k8s.api.core.v1.PodTemplateSpec"


def objects() -> list[dict[str, Any]]:
    found = [
        item
        for path in sorted(EXAMPLES.glob("*.yaml"))
        for item in yaml.safe_load_all(path.read_text())
    ]
    return found + made_secrets()


def made_secrets() -> list[dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("make_secrets", EXAMPLES / "make_secrets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.made())


def templates(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod templates of an object."""
    if item["kind"] == "PyTorchJob":
        return [one["template"] for one in item["spec"]["pytorchReplicaSpecs"].values()]
    return [item["spec"]["template"]] if item["kind"] in ("Deployment", "DaemonSet") else []


def of(kind: str, name: str = "") -> dict[str, Any]:
    [found] = [i for i in objects() if i["kind"] == kind and name in i["metadata"]["name"]]
    return found


def test_the_manifests_fit_the_published_schema() -> None:
    known = 0
    for item in objects():
        name = schema.definition_of(item)
        assert name or item["kind"] in CUSTOM, item["kind"]
        if name:
            known += 1
            assert [*schema.errors(item, schema.definitions()[name], item["kind"])] == []
        for template in templates(item):
            assert [*schema.errors(template, schema.definitions()[POD], "template")] == []
    assert known > 10


def test_a_manifest_that_does_not_fit_is_noticed() -> None:
    item = of("Deployment")
    container = item["spec"]["template"]["spec"]["containers"][0]
    container["securitycontext"] = {}
    container["ports"][0]["containerPort"] = "7511"
    del item["spec"]["selector"]
    wrong = [*schema.errors(item, schema.definitions()[schema.definition_of(item)])]
    assert [w.partition(":")[0] for w in wrong] == [
        ".spec.selector",
        ".spec.template.spec.containers[0].ports[0].containerPort",
        ".spec.template.spec.containers[0].securitycontext",
    ]


def test_what_they_name_is_there() -> None:
    every = objects()
    secrets = {i["metadata"]["name"] for i in every if i["kind"] == "Secret"}
    accounts = {i["metadata"]["name"] for i in every if i["kind"] == "ServiceAccount"}
    for template in [t for i in every for t in templates(i)]:
        spec = template["spec"]
        volumes = {v["name"]: v for v in spec["volumes"]}
        mounts = {m["name"] for c in spec["containers"] for m in c["volumeMounts"]}
        assert mounts == set(volumes)
        assert {v["secret"]["secretName"] for v in volumes.values() if "secret" in v} <= secrets
        assert {spec.get("serviceAccountName", "hangdoctor")} <= accounts
    labels = of("Deployment")["spec"]["template"]["metadata"]["labels"]
    service, monitor = of("Service"), of("ServiceMonitor")
    assert (
        service["spec"]["selector"] == labels == of("Deployment")["spec"]["selector"]["matchLabels"]
    )
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {p["name"] for p in service["spec"]["ports"]}
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["key"] in of("Secret", credentials["name"])["data"]


def test_no_pod_may_do_more_than_it_needs() -> None:
    for template in [t for i in objects() for t in templates(i)]:
        for container in [c for c in template["spec"]["containers"] if "hangdoctor" in c["image"]]:
            limits = container["securityContext"]
            assert not limits["allowPrivilegeEscalation"] and limits["readOnlyRootFilesystem"]
            assert limits["capabilities"]["drop"] == ["ALL"] and "privileged" not in limits
    for role in [i for i in objects() if i["kind"] in ("Role", "ClusterRole")]:
        assert all("*" not in [*r["verbs"], *r["resources"]] for r in role["rules"])
    collector = base64.b64decode(of("Secret", "agent")["data"]["collector.key"])
    assert yaml.safe_load(collector)["secret"] == ""


def command_of(item: dict[str, Any], name: str, **replaced: str) -> list[str]:
    """A container's command, with other addresses."""
    containers = templates(item)[0]["spec"]["containers"]
    [command] = [c["command"] for c in containers if c["name"] == name]
    script = command[-1]
    for old, new in replaced.items():
        assert old in script
        script = script.replace(old, new)
    return [*command[:-1], script]


def write_secret(name: str, folder: Path) -> dict[str, str]:
    """The variables of a container with this Secret mounted, as links like the kubelet makes."""
    data = folder / name / "..data"
    data.mkdir(parents=True)
    for key, value in SECRETS[name].items():
        (data / key).write_bytes(base64.b64decode(value))
        (data.parent / key).symlink_to(data / key)
    scripts = str(Path(sys.executable).parent)
    return os.environ | {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "KEYS": str(data.parent),
        "FOLDER": str(folder / f"{name}.job"),
    }


SECRETS = {i["metadata"]["name"]: i["data"] for i in made_secrets()}


@contextlib.contextmanager
def running(command: list[str], environ: dict[str, str], log: Path) -> Iterator[None]:
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environ, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.mark.full
def test_their_commands_bring_an_agent_to_the_collector(tmp_path: Path) -> None:
    port, page = free_port(), free_port()
    collect = command_of(
        of("Deployment"),
        "collector",
        **{"tcp://*:7511": f"tcp://127.0.0.1:{port}", "0.0.0.0:8470": f"127.0.0.1:{page}"},
    )
    job = f"--job 127.0.0.1:{plain_ranks.PORT}"
    follow = command_of(of("DaemonSet"), "agent", **{"--linger 60": f"--linger 60 {job}"})
    agent = write_secret("hangdoctor-agent", tmp_path) | {
        "HANGDOCTOR_COLLECTOR": f"tcp://127.0.0.1:{port}",
        "NODE": "gpu-7",
    }
    token = base64.b64decode(SECRETS["hangdoctor-collector"]["metrics.token"]).decode()

    def metrics() -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{page}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return str(urllib.request.urlopen(request, timeout=10).read().decode())
        return ""

    with (
        plain_ranks.processes(
            tmp_path, [(r, plain_ranks.SLEEPER) for r in plain_ranks.ranks(plain_ranks.PORT, 1)]
        ),
        running(collect, write_secret("hangdoctor-collector", tmp_path), tmp_path / "collect.log"),
        running(follow, agent, tmp_path / "agent.log"),
    ):
        wait_until(lambda: '{node="gpu-7",rank="0"}' in metrics(), lambda: metrics()[:2000], 90)
