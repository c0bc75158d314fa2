"""The smaller readers: messages, lists of ranks and hosts, settings, requests, environments, and
the page's addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import fuzz_seeds as seeds
from benchmarks.fuzz_mutations import spoil, spoil_tree
from benchmarks.fuzz_readers import Target, _as_file, _json_or_bytes

_MESSAGES = (
    "Hello",
    "Report",
    "Relayed",
    "Captured",
    "Declined",
    "Bye",
    "Capture",
    "Trace",
    "Level",
    "Welcome",
)


def _message_seeds() -> list[bytes]:
    from hangdoctor.probe.calls.request import Request
    from hangdoctor.transport import messages as msg

    now = msg.RankNow(0, 7, op="all_reduce", seq=3)
    said: list[Any] = [
        msg.Hello("a1", "n1", "j", 8),
        msg.Report(1, 1, 0.0, [now]),
        msg.Relayed(1, 1, [msg.NodeNews("n1", ranks=[now])]),
        msg.Captured("c1", b"x" * 40),
        msg.Declined("c1", "busy"),
        msg.Bye(),
        msg.Capture("c1"),
        msg.Trace(Request(1, True, ("train",), ranks="0-7")),
        msg.Level(1.0),
        msg.Welcome(3),
    ]
    return [msg.encode(one)[1] for one in said]


def _message_case(data: bytes, chance: random.Random, other: bytes) -> bytes:
    if chance.random() < 0.6:
        with contextlib.suppress(
            ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError
        ):
            return msgspec.msgpack.encode(spoil_tree(msgspec.msgpack.decode(data), chance))
    return spoil(data, chance, other)


def _read_message(data: bytes) -> None:
    from hangdoctor.errors import WireError
    from hangdoctor.transport import messages as msg

    for decode in (msg.from_agent, msg.from_collector):
        with contextlib.suppress(WireError):
            decode([msg.PROTOCOL, data])


def _read_lists(data: bytes) -> None:
    from hangdoctor.errors import UsageError
    from hangdoctor.text import ranges

    text = data.decode("utf-8", "replace")
    for parse in (ranges.parse_ranks, ranges.parse_hosts):
        with contextlib.suppress(UsageError):
            parse(text)
    ranges.format_hosts(text.split(","))
    with _as_file(data, "hosts") as path:
        from hangdoctor.launchers.ssh import read_hostfile

        read_hostfile(path)


def _read_settings(data: bytes) -> None:
    from hangdoctor.errors import BadInput
    from hangdoctor.sidecar import actions
    from hangdoctor.stacks import place_rules

    with _as_file(data, "hangdoctor.toml") as path, contextlib.suppress(BadInput):
        actions.load(path)
    with contextlib.suppress(BadInput):
        place_rules._rules_of(data.decode("utf-8", "replace"), "place_rules.toml")


_SETTINGS = b"""[actions]
dry_run = false
cooldown_s = 600
[[action]]
kind = "command"
command = ["/bin/page", "{summary}"]
timeout_s = 30
[[action]]
kind = "webhook"
url = "https://x"
[[rule]]
kind = "collective"
function = "all_.*"
file = "torch/"
"""


def _read_request(data: bytes) -> None:
    from hangdoctor.probe.calls import request

    request.decode(data[: 64 << 10].decode("utf-8", "replace"))  # as much as a rank reads


def _read_state(data: bytes) -> None:
    """What a collector leaves in its folder: address, page, key, and what an agent has not got rid
    of.
    """
    from hangdoctor.errors import CollectorError
    from hangdoctor.transport import address, keys
    from hangdoctor.transport.spool import Spool
    from hangdoctor.web import page_address as place

    with tempfile.TemporaryDirectory(prefix="hangdoctor-fuzz-", dir="/dev/shm") as folder:
        here = Path(folder)
        (here / "keys").mkdir(mode=0o700)
        for name in (
            address.FILE,
            place.FILE,
            "keys/collector.key",
            "keys/agent.key",
            "00000000000000000001.seg",
        ):
            (here / name).write_bytes(data)
            (here / name).chmod(0o600)
        address.published(here)
        place.published(here)
        with contextlib.suppress(CollectorError):
            keys.load(here)
        len(Spool(here))


def _incident_seeds() -> list[bytes]:
    from hangdoctor.diagnosis import diagnose
    from hangdoctor.storage.incidents import Incidents

    with tempfile.TemporaryDirectory(prefix="hangdoctor-fuzz-", dir="/dev/shm") as folder:
        index = Incidents(Path(folder))
        index.save(seeds.job(), diagnose(seeds.job()), "report", "stall")
        index.put({"learned": b"{}"})
        return [(Path(folder) / "incidents" / "index.sqlite").read_bytes()]


def _incident_case(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """A damaged file, or a sound one whose fields are of other kinds."""
    if chance.random() < 0.5:
        return spoil(data, chance, other)
    with _as_file(data, "index.sqlite") as path:
        db = sqlite3.connect(path)
        columns = ("id", "job", "at", "reason", "state", "status", "summary", "ranks")
        value = chance.choice(
            (0, -1.5, b"\xff", "9" * 5000, "", "x" * 100_000, 1 << 62, "../../etc/passwd")
        )
        with contextlib.suppress(sqlite3.Error):
            db.execute(f"UPDATE incidents SET {chance.choice(columns)} = ?", (value,))
            db.commit()
        db.close()
        return path.read_bytes()


def _read_incidents(data: bytes) -> None:
    from hangdoctor.storage.incidents import Incidents

    with tempfile.TemporaryDirectory(prefix="hangdoctor-fuzz-", dir="/dev/shm") as folder:
        (Path(folder) / "incidents").mkdir()
        (Path(folder) / "incidents" / "index.sqlite").write_bytes(data)
        index = Incidents(Path(folder), create=False)
        for row in index.rows():
            msgspec.json.encode(row)
        index.get("learned")


def _read_environment(data: bytes) -> None:
    from hangdoctor.model.layout import guess_layout
    from hangdoctor.readers import discover, jobnames, lost_ranks, rank_environment

    words = data.decode("utf-8", "surrogateescape").split("\0")
    environ = dict(w.split("=", 1) for w in words if "=" in w)
    numbers = rank_environment.rank_of(environ)
    rank_environment.is_launcher(words)
    guess_layout(words, environ, numbers[1] if numbers else 8)
    jobnames.job_key(environ, 1)
    jobnames.box_name(environ)
    rank_environment.gpu_of(environ, 1)
    if numbers is not None:
        rank, world, local, on_node = numbers
        found = discover.Found(
            pid=1,
            ppid=1,
            rank=rank,
            world_size=world,
            local_rank=local,
            local_world_size=on_node,
            job="j",
            started=0.0,
            user="u",
            argv=words,
            environ=environ,
        )
        lost_ranks._expected([found])


_ENVIRONMENT = (
    b"python\0train.py\0--tensor-model-parallel-size\0"
    + b"2\0--pp=2\0RANK=3\0WORLD_SIZE=8\0LOCAL_RANK=3\0LOCAL_WORLD_SIZE=4\0"
    b"MASTER_ADDR=127.0.0.1\0MASTER_PORT=29500\0SLURM_JOB_ID=7\0SLURM_GTIDS=0,1,2\0CUDA_VISIBLE_DEVICES=0,1\0TP=2"
)


def _read_launcher(data: bytes) -> None:
    """What schedulers, remote shells and nvidia-smi print."""
    from hangdoctor.launchers import gather
    from hangdoctor.preflight import gpu as preflight_gpu

    text = data.decode("utf-8", "replace")
    gather.last_words(text)
    gather.set_up_trouble(text)
    preflight_gpu.parse(text)


_LAUNCHER = b"srun: error: n4: task 45: Exited with exit code 1\n0, NVIDIA H100, 550.1, 120, 0\nslurmstepd: error: execve(): No such file or directory\n"


@functools.lru_cache(maxsize=1)
def _page() -> Any:
    from hangdoctor.storage.incidents import Incidents
    from hangdoctor.web.access import Access
    from hangdoctor.web.api import Api
    from hangdoctor.web.collector_mirror import Mirror
    from hangdoctor.web.hub import Hub
    from hangdoctor.web.metrics import Exporter
    from hangdoctor.web.pages import Pages
    from hangdoctor.web.server import application
    from hangdoctor.web.snapshot import Board, Doors

    folder = Path(tempfile.mkdtemp(prefix="hangdoctor-fuzz-"))
    board = Board(
        Mirror(),
        Incidents(folder),
        Doors(lambda why: None, lambda path: (b"", "text/html")),
    )
    access = Access("token", "metrics", ["localhost"], "cookie")
    hub = Hub(board)
    return application(Api(board), Pages(access), hub, Exporter(board, hub, 8), access=access)


def _read_page(data: bytes) -> None:
    """One request: method, path and query in the first line, a body behind it.

    Any status below 500 is an answer.
    """
    line, _, body = data.partition(b"\n")
    method, _, address = line.decode("latin-1").partition(" ")
    path, _, query = address.partition("?")
    method = "".join(c for c in method if c.isalpha())[:10] or "GET"
    if "/stream" in path:
        return
    status = asyncio.run(
        _ask(method, "/" + path.lstrip("/"), query.encode("latin-1", "replace"), body)
    )
    if status >= 500:
        raise AssertionError(f"the page answered {status}")


async def _ask(method: str, path: str, query: bytes, body: bytes) -> int:
    headers = [
        (b"host", b"localhost"),
        (b"authorization", b"Bearer token"),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": headers,
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    said: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            said.append(message["status"])

    await _page()(scope, receive, send)
    return said[0]


_REQUESTS = [
    b"GET /api/v1/ranks?ranks=0-3,8&state=idle&node=n1\n",
    b"GET /api/v1/ranks/12\n",
    b"GET /api/v1/incidents/20261121-1/report\n",
    b'POST /api/v1/trace\n{"on": true}',
    b"GET /api/v1/status\n",
    b"POST /login\ntoken=x",
    b"GET /static/page.js\n",
    b"GET /metrics\n",
]

SMALL = [
    Target("messages", _message_seeds, _read_message, _message_case),
    Target(
        "lists",
        lambda: [
            b"0-3,8,12-15",
            b"r7i6n[0-1,04],login",
            b"n1,n02,n003",
            b"n1 slots=4\nn[2-3]:22\n",
        ],
        _read_lists,
    ),
    Target("settings", lambda: [_SETTINGS], _read_settings),
    Target(
        "trace_request",
        lambda: [
            b'{"serial": 3, "on": true, "follow": ["a"], "ranks": "0-7", "from_iteration": 3, "size_mb": 4}'
        ],
        _read_request,
        _json_or_bytes,
    ),
    Target(
        "collector_state",
        lambda: [
            b'{"address": "tcp://n1:1", "pid": 3, "host": "n1"}',
            b'{"public": "YQ==", "secret": "YQ=="}',
        ],
        _read_state,
        _json_or_bytes,
    ),
    Target("incidents", _incident_seeds, _read_incidents, _incident_case),
    Target("environment", lambda: [_ENVIRONMENT], _read_environment),
    Target("launcher_output", lambda: [_LAUNCHER], _read_launcher),
    Target("page", lambda: _REQUESTS, _read_page),
]
