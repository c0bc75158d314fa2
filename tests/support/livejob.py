"""A real job with its agent and a collector that serves the page, for the tests of the page, of
`top` and of the metrics.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.stage import free_port, wait_until

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("jobs") / "steady_job.py"
_NUMBERS = itertools.count()


class LiveJob:
    """Ranks that train, an agent, and `collect --web`; a context manager that ends all of it."""

    def __init__(self, folder: Path, world: int = 4, more: tuple[str, ...] = ()) -> None:
        self.base, self.world, self.more = folder, world, more
        # Another run of these tests may be on this host, and a module's job beside a test's own.
        self.run_id = f"live-{os.getpid()}-{next(_NUMBERS)}-x"
        self.folder, self.control = folder / "job", folder / "control"
        self.control.mkdir(parents=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = self.token = ""

    def start(
        self, name: str, *argv: str, before: tuple[str, ...] = (), **environ: str
    ) -> subprocess.Popen[bytes]:
        env = (
            {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
            | {"OMP_NUM_THREADS": "1"}
            | environ
        )
        with (self.base / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*before, sys.executable, *argv],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def __enter__(self) -> LiveJob:
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        port = str(free_port())
        for rank in range(self.world):
            self.start(
                f"rank{rank}",
                str(JOB),
                str(self.control),
                RANK=str(rank),
                WORLD_SIZE=str(self.world),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                TORCHELASTIC_RUN_ID=self.run_id,
                PYTHONPATH=str(ROOT),
                HANGDOCTOR_DIR=str(self.base / "boxes"),
            )
        collector = self.start(
            "collector",
            "-m",
            "hangdoctor",
            "collect",
            "--folder",
            str(self.folder),
            "--bind",
            "tcp://127.0.0.1:*",
            "--web",
            "127.0.0.1:0",
            *self.more,
            PYTHONPATH=str(ROOT),
        )
        wait_until(
            lambda: (self.folder / "web.json").exists() or collector.poll() is not None,
            "the page is there",
        )
        assert collector.poll() is None, self.log("collector")
        self.read_address()
        if self.world:
            self._train()

    def read_address(self) -> None:
        told = json.loads((self.folder / "web.json").read_text())
        self.address, self.token = told["address"], told["token"]

    def _train(self) -> None:
        self.start(
            "agent",
            "-m",
            "hangdoctor",
            "agent",
            "--folder",
            str(self.folder),
            "--node",
            "n1",
            "--job",
            self.run_id,
            "--spool",
            str(self.base / "spool"),
            PYTHONPATH=str(ROOT),
        )
        wait_until(self.trains, lambda: f"all ranks train:\n{self._state()}", 100)

    def _state(self) -> str:
        """What its processes printed last, and what the collector says of them."""
        logs = (f"{n} ({p.poll()}): {self.log(n)[-600:]}" for n, p in self.processes.items())
        return "\n".join([*logs, str(self.status()["status"])])

    def __exit__(self, *_: object) -> None:
        (self.control / "end").write_text("1")
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait(timeout=20)

    def log(self, name: str) -> str:
        return (self.base / f"{name}.log").read_text()

    def pid(self, rank: int) -> int:
        return self.processes[f"rank{rank}"].pid

    def trains(self) -> bool:
        status = self.status()["status"]
        return bool(status["counts"].get("moving") == self.world and status["iteration"][0] >= 3)

    def settled(self) -> None:
        """Until the job trains again, after a test that stopped a rank."""
        wait_until(self.trains, "the job goes on")

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.request("/api/v1/status")[2]))

    def request(
        self, path: str, body: bytes | None = None, token: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers in lower case, body); with the right token unless another is given."""
        token = self.token if token is None else token
        sent = {k.replace("_", "-"): v for k, v in headers.items()} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        request = urllib.request.Request(self.address + path, body, sent)
        opener = urllib.request.build_opener(_Stay)
        try:
            with opener.open(request, timeout=30) as answer:
                return (
                    answer.status,
                    {k.lower(): v for k, v in answer.headers.items()},
                    answer.read(),
                )
        except urllib.error.HTTPError as error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


class _Stay(urllib.request.HTTPRedirectHandler):
    """Redirects are answers here."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None
