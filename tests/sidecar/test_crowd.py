"""Raw connections to the agents' port: neither files nor the log of the collector are filled, and
agents get in.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from hangdoctor.transport import address
from hangdoctor.transport import messages as msg
from tests.support.sidecar_stage import Job
from tests.support.stage import wait_until

FILES = 400


class Flood:
    """Raw connections from another address of the loopback, opened again as soon as they are cut."""

    def __init__(self, port: int, count: int, source: str = "127.0.0.9") -> None:
        self.port, self.count, self.source = port, count, source
        self.over = threading.Event()
        self.tried = 0
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Flood:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(20)

    def _run(self) -> None:
        held: list[socket.socket] = []
        while not self.over.is_set():
            if len(held) < self.count:
                one = socket.socket()
                one.bind((self.source, 0))
                one.setblocking(False)
                with contextlib.suppress(OSError):
                    one.connect(("127.0.0.1", self.port))
                with contextlib.suppress(OSError):
                    one.send(b"\xff")
                held.append(one)
                self.tried += 1
                continue
            poll = select.poll()
            by_number = {one.fileno(): one for one in held}
            for number in by_number:
                poll.register(number, select.POLLIN)
            for number, _ in poll.poll(100):
                held.remove(by_number[number])
                by_number[number].close()
        for one in held:
            one.close()


def small_collector(job: Job) -> subprocess.Popen[bytes]:
    """A collector that may open few files."""
    told = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES})); "
    told += "import sys; sys.argv[0] = 'hangdoctor'; from hangdoctor.cli.main import main; main()"
    process = job.begin(
        "collector",
        "-c",
        told,
        "collect",
        "--folder",
        str(job.folder),
        "--bind",
        "tcp://127.0.0.1:*",
    )
    wait_until(lambda: job.said("collector", "listening on") > 0, "the collector listens")
    return process


def test_agents_get_in_while_raw_connections_flood_the_port(job: Job, tmp_path: Path) -> None:
    collector = small_collector(job)
    port = int(address.published(job.folder).rpartition(":")[2])
    with Flood(port, 2 * FILES) as flood:
        wait_until(lambda: flood.tried > 3 * FILES, "the flood has begun, and is cut off", 40)
        for number in range(3):
            with job.peer(name=b"agent%d" % number) as peer:
                assert welcome(peer, f"n{number}"), "an agent is let in"
                assert is_kept(job, peer, f"n{number}"), "its report is kept"
    wait_until(
        lambda: psutil.Process(collector.pid).num_fds() < FILES // 4, "its files are free again"
    )
    assert collector.poll() is None
    log = (job.logs / "collector.log").read_text()
    assert len(log) < 100_000 and "Traceback" not in log, log[-3000:]
    assert "connections without a handshake" in log


def welcome(peer: Any, node: str) -> bool:
    peer.send_multipart(msg.encode(msg.Hello(f"agent-of-{node}", node)))
    return bool(peer.poll(30_000)) and isinstance(
        msg.from_collector(peer.recv_multipart()), msg.Welcome
    )


def is_kept(job: Job, peer: Any, node: str) -> bool:
    """Say it until it is acknowledged, as an agent does: where no file could be opened, a report is
    not taken.
    """
    end = time.monotonic() + 30
    while time.monotonic() < end:
        peer.send_multipart(msg.encode(msg.Report(1, 1, time.time())))
        if peer.poll(500) and isinstance(msg.from_collector(peer.recv_multipart()), msg.Ack):
            return job.positions()[node].seq == 1
    return False
