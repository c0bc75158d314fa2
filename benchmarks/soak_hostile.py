"""Hostile messages to a real collector with a real agent beside: who gets in, what is lost.

With the job's keys (a rank's code could read them): noise, cut messages, wrong versions, other
nodes' names, claims without bound, reports that no one announced. Without them: a stranger's key,
no key, and bytes that are no ZeroMQ at all.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import zmq
from msgspec import Struct

from benchmarks.progress import say
from hangdoctor.collector.instructions import Position
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg

_EACH = 10  # messages of one peer: after N bad ones it is cut off
_JOB = "soak-hostile"
_RANK = "import time; time.sleep(3600)"


class Attacked(Struct):
    messages: int = 0
    answered: int = 0  # to those without the job's keys
    nodes: list[str] = []  # that the collector has kept reports or a hello of, by its own books
    honest: Position = msgspec.field(default_factory=Position)
    alive: bool = False
    log_bytes: int = 0
    tracebacks: int = 0
    rss_mb: tuple[float, float] = (0.0, 0.0)
    slowest_s: float = 0.0  # an honest hello, meanwhile

    @property
    def good(self) -> bool:
        """Whether the collector lived, and lost nothing of the honest agent."""
        whole = self.honest.seq == self.honest.received > 0 and self.honest.lost == 0
        return (
            self.alive
            and whole
            and self.answered == 0
            and self.nodes == ["honest"]
            and self.tracebacks == 0
        )

    def told(self) -> dict[str, Any]:
        """All figures by name."""
        return dict(msgspec.to_builtins(self))


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A collector, and an agent with one sleeping rank."""
    environ = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[1]), environ.get("PYTHONPATH", "")]
    )
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            running.append(
                subprocess.Popen(
                    [sys.executable, *words], env=environ | more, stdout=log, stderr=log
                )
            )
        return running[-1]

    where = str(folder / "job")
    try:
        flags = ["--folder", where, "--bind", "tcp://127.0.0.1:*"]
        collector = start("collector", "-m", "hangdoctor", "collect", *flags)
        start("rank", "-c", _RANK, RANK="0", WORLD_SIZE="1", TORCHELASTIC_RUN_ID=_JOB)
        while not address.published(folder / "job"):
            time.sleep(0.1)
        flags = ["--folder", where, "--node", "honest", "--job", _JOB, "--interval", "0.2"]
        flags += ["--spool", str(folder / "spool")]
        start("agent", "-m", "hangdoctor", "agent", *flags)
        while not position(folder).received:
            time.sleep(0.1)
        yield collector
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(timeout=30)


def kept(folder: Path) -> dict[str, Position]:
    """Each agent that the collector has let in, as its books on the disk say."""
    told = Incidents(folder / "job").get("positions")
    return msgspec.json.decode(told, type=dict[str, Position]) if told else {}


def position(folder: Path) -> Position:
    """Of the honest agent."""
    return next((p for p in kept(folder).values() if p.node == "honest"), Position())


def attack(count: int, seed: int = 5) -> Attacked:
    """`count` messages, half of them with the job's keys."""
    chance, found = random.Random(seed), Attacked()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scene(folder) as collector:
            watched = psutil.Process(collector.pid)
            before = watched.memory_info().rss / 1e6
            while found.messages < count:
                kind = ("keys", "keys", "stranger", "raw")[found.messages // _EACH % 4]
                found.answered += _one_peer(folder / "job", kind, chance)
                found.messages += _EACH
                if found.messages % 1000 == 0:
                    found.slowest_s = max(found.slowest_s, _honest_hello(folder / "job"))
                    say(f"{found.messages} of {count} messages")
            seen = position(folder).seq
            _wait_for(lambda: position(folder).seq > seen)
            found.alive = collector.poll() is None
            found.rss_mb = (round(before, 1), round(watched.memory_info().rss / 1e6, 1))
        found.honest = position(folder)
        found.nodes = sorted({p.node for p in kept(folder).values()} - {"probe"})
        log = (folder / "collector.log").read_text()
        found.log_bytes, found.tracebacks = len(log), log.count("Traceback")
    return found


def _wait_for(ready: Any) -> None:
    end = time.monotonic() + 30
    while not ready() and time.monotonic() < end:
        time.sleep(0.1)


def _one_peer(folder: Path, kind: str, chance: random.Random) -> int:
    """Send ten messages; how many answers came to one that has no right to any."""
    if kind == "raw":
        return _raw(folder, chance)
    socket_ = _dealer(folder, kind == "keys", b"%x" % chance.getrandbits(64))
    for _ in range(_EACH):
        with contextlib.suppress(zmq.Again):
            socket_.send_multipart(_noise(chance), zmq.DONTWAIT)
    if kind == "stranger":
        with contextlib.suppress(zmq.Again):
            socket_.send_multipart(msg.encode(msg.Hello("stranger", "stranger")), zmq.DONTWAIT)
    # Each has time for its handshake: who is let in would have its answer by then.
    answered = socket_.poll(200 if kind == "stranger" else 30)
    answers = int(bool(answered) and kind == "stranger")
    socket_.close(linger=100)
    return answers


def _dealer(folder: Path, own: bool, name: bytes) -> Any:
    made = keys.load(folder)
    public, secret = (made.agent.public, made.agent.secret) if own else zmq.curve_keypair()
    found = zmq.Context.instance().socket(zmq.DEALER)
    found.setsockopt(zmq.IDENTITY, name)
    found.curve_serverkey, found.curve_publickey, found.curve_secretkey = (
        made.collector.public,
        public,
        secret,
    )
    found.connect(address.published(folder))
    return found


def _raw(folder: Path, chance: random.Random) -> int:
    """Ten connections with bytes that are no ZeroMQ, or half a greeting; an answer beyond the
    greeting would be one too many.
    """
    port = int(address.published(folder).rpartition(":")[2])
    answered = 0
    for _ in range(_EACH):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
        ):
            raw.sendall(
                chance.choice(
                    (
                        chance.randbytes(200),
                        b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48),
                        b"GET / HTTP/1.1\r\n\r\n",
                    )
                )
            )
            raw.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                answered += len(raw.recv(4096)) > 64
    return answered


def _honest_hello(folder: Path) -> float:
    """Seconds until another agent of the job is welcome."""
    begin = time.monotonic()
    probe = _dealer(folder, True, b"probe")
    probe.send_multipart(msg.encode(msg.Hello("probe", "probe")))
    while probe.poll(30_000) and not isinstance(
        msg.from_collector(probe.recv_multipart()), msg.Welcome
    ):
        pass
    took = time.monotonic() - begin
    probe.send_multipart(msg.encode(msg.Bye()))
    probe.close(linger=500)
    return round(took, 3)


def _noise(chance: random.Random) -> list[bytes]:
    """One message that no agent sends."""
    report = msg.encode(msg.Report(1, 1, 0.0, [msg.RankNow(0, iteration=3)]))[1]
    return chance.choice(
        (
            lambda: [chance.randbytes(chance.randrange(300))],
            lambda: [msg.PROTOCOL, chance.randbytes(chance.randrange(2000))],
            lambda: [b"hangdoctor/%d" % chance.randrange(2, 99), report],
            lambda: [msg.PROTOCOL, report[: chance.randrange(len(report))]],
            lambda: [msg.PROTOCOL, report],
            lambda: msg.encode(
                msg.Hello(f"liar{chance.random()}"[:40], "honest", "slurm:9", 1 << 40)
            ),
            lambda: [msg.PROTOCOL, b"\x91" * 50_000],
            lambda: [msg.PROTOCOL, b"\xdd\xff\xff\xff\xff" + bytes(100)],
            lambda: msg.encode(msg.Captured(f"c-{chance.randrange(9)}", chance.randbytes(5000))),
            lambda: msg.encode(
                msg.Relayed(1, 1, [msg.NodeNews("honest", ranks=[msg.RankNow(0, over=True)])])
            ),
            lambda: msg.encode(msg.Bye("as if I were honest")),
            lambda: [msg.PROTOCOL] * chance.randrange(3, 50),
            # Well made, and of somebody else: the first that says hello for a node stays its agent.
            lambda: msg.encode(msg.Hello(f"liar{chance.getrandbits(32)}", "honest", _JOB, 1)),
            lambda: msg.encode(msg.Report(1, 1, 0.0, [msg.RankNow(0, over=True)])),
        )
    )()
