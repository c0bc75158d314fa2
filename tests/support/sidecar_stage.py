"""Collectors, agents and sleeping ranks as real processes, for the tests of this folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import zmq

from hangdoctor.collector.instructions import Position
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import address, keys
from tests.support.stage import wait_until

RANK = "import sys, time; print('up', flush=True); time.sleep(600)"
PROBED = "import hangdoctor.probe as p; p.install(); p.iteration(1); " + RANK
Start = Callable[..., subprocess.Popen[bytes]]


@contextlib.contextmanager
def starting(tmp_path: Path) -> Iterator[Start]:
    """Start a program of this test; all of them are ended with it. Output goes to a file named
    after it.
    """
    running: list[subprocess.Popen[bytes]] = []

    def begin(name: str, *argv: str, **environ: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *argv],
                env={k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
                | environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        running.append(process)
        return process

    yield begin
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


class Job:
    """A folder, a collector, agents and sleeping ranks."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.folder, self.begin, self.logs = folder / "job", start, folder

    def collector(self, *more: str) -> subprocess.Popen[bytes]:
        bound = self.said("collector", "listening on")
        process = self.begin(
            "collector",
            "-m",
            "hangdoctor",
            "collect",
            "--folder",
            str(self.folder),
            "--bind",
            "tcp://127.0.0.1:*",
            *more,
        )
        wait_until(
            lambda: self.said("collector", "listening on") > bound or process.poll() is not None,
            "the collector listens",
        )
        assert process.poll() is None, (self.logs / "collector.log").read_text()
        return process

    def rank(self, number: int, key: str) -> subprocess.Popen[bytes]:
        process = self.begin(
            f"rank{number}", "-c", RANK, RANK=str(number), WORLD_SIZE="2", TORCHELASTIC_RUN_ID=key
        )
        wait_until(lambda: self.said(f"rank{number}", "up") > 0, "the rank runs")
        return process

    def rank_with_box(self, number: int, key: str) -> subprocess.Popen[bytes]:
        """A sleeping rank that carries the probe; its box is in `self.boxes`."""
        environ = {
            "RANK": str(number),
            "WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": key,
            "HANGDOCTOR_DIR": str(self.logs / "boxes"),
        }
        process = self.begin(f"rank{number}", "-c", PROBED, **environ)
        wait_until(lambda: self.said(f"rank{number}", "up") > 0, "the rank runs")
        return process

    def agent(self, node: str, key: str, *more: str) -> subprocess.Popen[bytes]:
        return self.begin(
            f"agent-{node}",
            "-m",
            "hangdoctor",
            "agent",
            "--folder",
            str(self.folder),
            "--node",
            node,
            "--job",
            key,
            "--interval",
            "0.2",
            "--spool",
            str(self.logs / f"spool-{node}"),
            *more,
        )

    def said(self, name: str, words: str) -> int:
        path = self.logs / f"{name}.log"
        return path.read_text().count(words) if path.exists() else 0

    def relay(self, name: str) -> subprocess.Popen[bytes]:
        """A collector below the first."""
        bound = self.said(name, "listening on")
        process = self.begin(
            name,
            "-m",
            "hangdoctor",
            "collect",
            "--folder",
            str(self.folder),
            "--parent",
            "auto",
            "--name",
            name,
            "--bind",
            "tcp://127.0.0.1:*",
        )
        wait_until(
            lambda: self.said(name, "listening on") > bound or process.poll() is not None,
            "the collector listens",
        )
        assert process.poll() is None, (self.logs / f"{name}.log").read_text()
        return process

    def positions(self, below: str = "") -> dict[str, Position]:
        """By node, as the collector (or one below, in that folder) has kept them."""
        kept = Incidents(self.folder / below).get("positions")
        told = msgspec.json.decode(kept, type=dict[str, Position]) if kept else {}
        return {p.node: p for p in told.values()}

    @contextlib.contextmanager
    def peer(self, own: bool = True, name: bytes = b"peer", curve: bool = True) -> Iterator[Any]:
        """A socket to the collector, with the job's key, with a stranger's, or in plaintext.

        It lets go of what was not sent: a context waits for that when it ends, also behind a failed
        check, and for good.
        """
        made = keys.load(self.folder)
        context = zmq.Context()
        context.setsockopt(zmq.LINGER, 0)
        socket = context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.IDENTITY, name)
            if curve:
                public, secret = (
                    (made.agent.public, made.agent.secret) if own else zmq.curve_keypair()
                )
                socket.curve_serverkey = made.collector.public
                socket.curve_publickey, socket.curve_secretkey = public, secret
            socket.connect(address.published(self.folder))
            yield socket
        finally:
            context.destroy(linger=0)
