"""A gloo job in pods of the stand-in, which hangs on command."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hangdoctor as hangdoctor_package
from tests.support.stage import hangdoctor, wait_until

from .api_server import ApiServer
from .pods import Pods

PACKAGE = Path(hangdoctor_package.__file__).parent
JOB = Path(__file__).parents[1] / "jobs" / "lab_job.py"

_STEPS = """import sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
def step():
    time.sleep(0.05)
while True:
    step()
    open(sys.argv[1], "w").close()
"""


class Training:
    """A PyTorchJob: a master pod with two ranks and a worker with one; rank 2 stays away from the
    first all_reduce. `hangdoctor` is installed in the master's image, and in the worker's not.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = folder / "control"
        self.control.mkdir()
        self.temporary = folder / "tmp"  # TMPDIR of the pods
        self.temporary.mkdir()
        self.pods = Pods(folder)
        self.api = ApiServer(self.pods)

    def start(self) -> None:
        """Start the pods and wait until the job hangs."""
        (self.control / "go.0").write_text("2")
        self._pod("bloom-master-0", [0, 1], [])
        self._pod("bloom-worker-0", [2], [PACKAGE])
        wait_until(
            lambda: self._at() == {0: "0 enters", 1: "0 enters", 2: "0 away"}, "the hang", 100
        )

    def _at(self) -> dict[int, str]:
        said = self.control.glob("at.*")
        return {int(p.suffix[1:]): p.read_text().rpartition(" ")[0] for p in said}

    def _pod(self, name: str, ranks: list[int], hidden: Sequence[Path]) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "MASTER_ADDR": "10.88.0.1",
            "MASTER_PORT": "29500",
            "WORLD_SIZE": "3",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        command = f"{sys.executable} {JOB} {self.control}"
        script = "".join(f"RANK={rank} LOCAL_RANK={rank} {command} &\n" for rank in ranks)
        address = self.pods.start(name, f"{script}wait", environ, hidden=hidden)
        self.api.add("pods", pod(name, name.split("-")[1], address=address))

    @contextlib.contextmanager
    def probed(self, name: str) -> Iterator[None]:
        """A pod beside the job, with one rank under `hangdoctor run`; ready once it steps."""
        boxes, stepping = self.folder / "boxes", self.folder / "stepping"
        job = self.folder / "steps.py"
        job.write_text(_STEPS)
        environ = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
        }
        rank = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"
        run = f"{sys.executable} -m hangdoctor run -- {sys.executable} {job} {stepping}"
        self.pods.start(name, f"HANGDOCTOR_DIR={boxes} {rank} {run}\nsleep 900", environ)
        item = pod(name, "worker")
        item["metadata"]["labels"] = {}
        self.api.add("pods", item)
        try:
            wait_until(stepping.exists, f"{name} steps", 100)
            yield
        finally:
            del self.api.objects["pods"][name]
            self.pods.end(name)
            del self.pods.running[name]

    def environ(self) -> dict[str, str]:
        """The environment in which kubectl asks this cluster."""
        config = str(self.api.configuration(self.folder))
        return os.environ | {"KUBECONFIG": config, "KUBECACHEDIR": str(self.folder / "cache")}

    def run(self, *words: str, code: int | None = 0) -> tuple[str, str]:
        """``hangdoctor WORDS``: what it prints, and its standard error."""
        done = hangdoctor(*words, cwd=self.folder, env=self.environ(), code=code)
        return done.stdout, done.stderr

    def dump(self, *words: str) -> dict[str, Any]:
        """The diagnosis of ``hangdoctor dump --k8s bloom WORDS``."""
        flags = ("--no-bundle", "--json", "-", "--timeout", "60")
        found, _ = self.run("dump", "--k8s", "bloom", *flags, *words)
        return dict(json.loads(found))

    def warn(self, name: str, pod: str, reason: str, last: str, message: str) -> None:
        """The cluster has recorded an event of a pod, `last` seen at that time."""
        event = {
            "metadata": {"name": name, "namespace": "training"},
            "involvedObject": {"kind": "Pod", "name": pod, "namespace": "training"},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": last,
        }
        self.api.add("events", event)

    @contextlib.contextmanager
    def status(self, name: str, **status: object) -> Iterator[None]:
        """The API server says this of a pod meanwhile."""
        item = self.api.objects["pods"][name]
        before = item["status"]
        item["status"] = status
        try:
            yield
        finally:
            item["status"] = before


def pod(name: str, role: str, index: int = 0, address: str = "") -> dict[str, Any]:
    """A running pod of the PyTorchJob `bloom`, with a sidecar of a service mesh before its ranks."""
    labels = {
        "training.kubeflow.org/job-name": "bloom",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": role,
    }
    names = ("istio-proxy", "pytorch")
    containers: list[dict[str, Any]] = [{"name": n, "image": f"{n}:1"} for n in names]
    containers[1]["env"] = [{"name": "WORLD_SIZE", "value": "3"}]
    running = {"running": {"startedAt": "2026-11-23T04:00:00Z"}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "training",
            "labels": labels,
            "creationTimestamp": "2026-11-23T04:00:00Z",
        },
        "spec": {"containers": containers, "nodeName": "gpu-7"},
        "status": {
            "phase": "Running",
            "podIP": address,
            "containerStatuses": [
                {"name": n, "imageID": f"{role}:{n}", "restartCount": 0, "state": dict(running)}
                for n in names
            ],
        },
    }
