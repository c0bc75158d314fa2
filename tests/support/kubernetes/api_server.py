"""The part of the Kubernetes API that `hangdoctor` uses through kubectl: lists of objects, and exec
over a WebSocket (https://kubernetes.io/docs/reference/using-api/api-concepts/).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from .pods import Pods
from .websocket import WebSocket, accept

_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSED = 0, 1, 2, 3, 255
# (group/version, plural, kind) of what can be listed.
RESOURCES = (
    ("v1", "pods", "Pod"),
    ("v1", "events", "Event"),
    ("v1", "nodes", "Node"),
    ("ray.io/v1", "rayjobs", "RayJob"),
)


class ApiServer:
    """An API server on the loopback, without authentication. Its objects are plain dictionaries, as
    the API gives them; a pod that also lives in `pods` can be entered.
    """

    def __init__(self, pods: Pods) -> None:
        self.pods = pods
        self.objects: dict[str, dict[str, dict[str, Any]]] = {r[1]: {} for r in RESOURCES}
        self.forbidden = ""  # a plural that no one may list
        handler = type("Handler", (_Handler,), {"api": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True

    def add(self, plural: str, item: dict[str, Any]) -> None:
        """Keep an object under its name."""
        version, kind = next((v, kind) for v, name, kind in RESOURCES if name == plural)
        item |= {"apiVersion": version, "kind": kind}
        item["metadata"].setdefault("namespace", "default")
        self.objects[plural][item["metadata"]["name"]] = item

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join(10)

    def configuration(self, folder: Path) -> Path:
        """A kubeconfig file for this server, in namespace `training`."""
        path = folder / "kubeconfig"
        url = f"http://127.0.0.1:{self.server.server_port}"
        cluster = {"name": "stand-in", "cluster": {"server": url}}
        context = {"cluster": "stand-in", "user": "me", "namespace": "training"}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "stand-in",
                    "clusters": [cluster],
                    "contexts": [{"name": "stand-in", "context": context}],
                    "users": [{"name": "me", "user": {}}],
                }
            )
        )
        return path


class _Handler(BaseHTTPRequestHandler):
    api: ClassVar[ApiServer]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values for name, values in parse_qs(url.query).items()}
        parts = [part for part in url.path.split("/") if part]
        if parts == ["api"]:
            return self._answer({"kind": "APIVersions", "versions": ["v1"]})
        if parts == ["apis"]:
            return self._answer(_groups())
        version, rest = (
            ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        )
        if not rest:
            return self._answer(_resources(version))
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if rest[2:] == ["exec"]:
            return self._exec(rest[1], asked)
        return self._objects(version, namespace, rest, asked)

    do_POST = do_GET

    def do_PATCH(self) -> None:
        """Ephemeral containers, which run at once."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = urlsplit(self.path).path.split("/")[-2]
        item = self.api.objects["pods"][name]
        added = sent["spec"]["ephemeralContainers"]
        item["spec"]["ephemeralContainers"] = added
        item["status"]["ephemeralContainerStatuses"] = [
            {"name": one["name"], "state": {"running": {}}} for one in added
        ]
        self._answer(item)

    def _answer(self, body: dict[str, Any], code: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, code: int, reason: str, message: str) -> None:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        details = {"name": self.path, "kind": "pods"}
        body |= {"reason": reason, "message": message, "metadata": {}, "details": details}
        self._answer(body, code)

    def _objects(
        self, version: str, namespace: str, rest: list[str], asked: dict[str, list[str]]
    ) -> None:
        plural = rest[0]
        if plural == self.api.forbidden:
            message = f'{plural} is forbidden: User "me" cannot list resource "{plural}"'
            return self._fail(403, "Forbidden", message)
        known = self.api.objects.get(plural, {})
        if len(rest) > 1:
            if rest[1] not in known:
                return self._fail(404, "NotFound", f'{plural} "{rest[1]}" not found')
            return self._answer(known[rest[1]])
        [kind] = [kind for _, name, kind in RESOURCES if name == plural]
        found = [
            item
            for item in known.values()
            if namespace in ("", item["metadata"]["namespace"])
            and _selected(item["metadata"].get("labels", {}), asked.get("labelSelector", [""])[0])
            and _selected(_fields(item), asked.get("fieldSelector", [""])[0])
        ]
        head = {"kind": f"{kind}List", "apiVersion": version, "metadata": {"resourceVersion": "1"}}
        return self._answer(head | {"items": found})

    def _may_trace(self, pod: str, asked: dict[str, list[str]]) -> bool:
        """Whether the container is an ephemeral one with the capability."""
        added = self.api.objects["pods"][pod]["spec"].get("ephemeralContainers", [])
        return any(
            [one["name"]] == asked.get("container")
            and one["targetContainerName"] == "pytorch"
            and "SYS_PTRACE" in one["securityContext"]["capabilities"]["add"]
            for one in added
        )

    def _exec(self, pod: str, asked: dict[str, list[str]]) -> None:
        """Run a command in a pod: one byte for the channel before each message.

        v5.channel.k8s.io of k8s.io/apimachinery, pkg/util/remotecommand/constants.go
        """
        if self.headers.get("Upgrade", "").lower() != "websocket":
            return self._fail(400, "BadRequest", "only WebSockets are understood")
        if pod not in self.api.pods.running:
            return self._fail(404, "NotFound", f'pods "{pod}" not found')
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept(self.headers["Sec-WebSocket-Key"]))
        self.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        _Session(
            WebSocket(self.rfile, self.wfile),
            self.api.pods.enter(
                pod, asked["command"], "stdin" in asked, self._may_trace(pod, asked)
            ),
        ).run()


class _Session:
    """One `kubectl exec`. As with a real runtime, the command goes on when the client leaves."""

    def __init__(self, socket: WebSocket, process: subprocess.Popen[bytes]) -> None:
        self.socket, self.process = socket, process

    def run(self) -> None:
        out = threading.Thread(target=self._pump, args=(_STDOUT, self.process.stdout), daemon=True)
        err = threading.Thread(target=self._pump, args=(_STDERR, self.process.stderr), daemon=True)
        feed = threading.Thread(target=self._feed, daemon=True)
        for thread in (out, err, feed):
            thread.start()
        out.join()
        err.join()
        code = self.process.wait()
        with contextlib.suppress(OSError, ValueError):
            self.socket.send(bytes([_ERROR]) + json.dumps(_status(code)).encode())
            self.socket.send(b"\x03\xe8", 8)

    def _pump(self, channel: int, pipe: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := pipe.read1(1 << 15):
                self.socket.send(bytes([channel]) + data)

    def _feed(self) -> None:
        stdin = self.process.stdin
        with contextlib.suppress(OSError, ValueError):
            while (message := self.socket.receive()) is not None:
                if message[:2] == bytes([_CLOSED, _STDIN]):
                    break
                if message[:1] == bytes([_STDIN]) and stdin is not None:
                    stdin.write(message[1:])
                    stdin.flush()
        with contextlib.suppress(OSError):
            if stdin is not None:
                stdin.close()


def _status(code: int) -> dict[str, Any]:
    """How a command ended, as the API says it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code if code > 0 else 128 - code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }


def _groups() -> dict[str, Any]:
    versions = sorted({version for version, _, _ in RESOURCES if "/" in version})
    groups = []
    for version in versions:
        name, _, number = version.partition("/")
        one = {"groupVersion": version, "version": number}
        groups.append({"name": name, "versions": [one], "preferredVersion": one})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _resources(version: str) -> dict[str, Any]:
    found = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": plural != "nodes",
            "kind": kind,
            "verbs": ["get", "list", "create"],
            "shortNames": [],
        }
        for of, plural, kind in RESOURCES
        if of == version
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": found}


def _fields(item: dict[str, Any]) -> dict[str, str]:
    """What a field selector of events can name."""
    involved = item.get("involvedObject", {})
    return {"type": item.get("type", "")} | {f"involvedObject.{k}": v for k, v in involved.items()}


def _selected(labels: dict[str, str], selector: str) -> bool:
    """Whether labels fit ``a=b,c!=d,e``."""
    for word in [w for w in selector.split(",") if w]:
        key, sign, value = word.replace("==", "=").partition("=")
        if not sign and key not in labels:
            return False
        if key.endswith("!"):
            if labels.get(key[:-1]) == value:
                return False
        elif sign and labels.get(key) != value:
            return False
    return True
