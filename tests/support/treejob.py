"""A live job above a tree of collectors: two nodes in process namespaces of their own, each behind
a collector of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from hangdoctor.train.faults import outside
from tests.support.livejob import JOB, ROOT, LiveJob
from tests.support.stage import free_port, wait_until

HERE = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]


def unavailable() -> str:
    """Why there can be no nodes here, "" where there can."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs unshare and nsenter (util-linux)"
    done = subprocess.run([*HERE, "true"], capture_output=True, text=True, timeout=20)
    return f"needs namespaces for processes: {done.stderr.strip()}" if done.returncode else ""


class TreeJob(LiveJob):
    """`nodes` of two ranks each; node i is behind collector ri."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        super().__init__(folder, world=2 * nodes)
        # The agent of another job of these tests sees into the namespaces
        self.run_id = f"tree-{os.getpid()}-x"
        self.nodes = nodes
        self.port = str(free_port())
        self._holders: dict[int, int] = {}

    def _begin(self) -> None:
        self.collector()
        for node in range(self.nodes):
            self.relay(node)
            self._hold(node)
            for rank in (2 * node, 2 * node + 1):
                self.inside(
                    node,
                    f"rank{rank}",
                    str(JOB),
                    str(self.control),
                    RANK=str(rank),
                    WORLD_SIZE=str(self.world),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=self.port,
                    TORCHELASTIC_RUN_ID=self.run_id,
                    HANGDOCTOR_DIR=str(self.boxes(node)),
                )
            self.inside(
                node,
                f"agent{node}",
                "-m",
                "hangdoctor",
                "agent",
                "--folder",
                str(self.folder),
                "--via",
                f"r{node}",
                "--node",
                f"n{node}",
                "--job",
                self.run_id,
                "--spool",
                str(self.base / f"spool{node}"),
            )
        wait_until(self.trains, f"all ranks train: {self.log('collector')}", 100)

    def collector(self, *more: str) -> None:
        """The first of the tree, with the page; `address` and `token` are those of this start."""
        before = self.token
        (self.folder / "web.json").unlink(missing_ok=True)
        process = self.start(
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
            *more,
            PYTHONPATH=str(ROOT),
        )
        wait_until(
            lambda: (self.folder / "web.json").exists() or process.poll() is not None,
            "the page is there",
        )
        assert process.poll() is None, self.log("collector")
        self.read_address()
        assert self.token != before

    def relay(self, node: int) -> None:
        """The collector that this node is behind."""
        self.start(
            f"r{node}",
            "-m",
            "hangdoctor",
            "collect",
            "--folder",
            str(self.folder),
            "--parent",
            "auto",
            "--name",
            f"r{node}",
            "--bind",
            "tcp://127.0.0.1:*",
            PYTHONPATH=str(ROOT),
        )

    def lose(self, name: str) -> None:
        """Kill one of them, as a failing node does."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait(timeout=20)

    def _hold(self, node: int) -> None:
        """A namespace: it has only its own processes, as a node has."""
        log = (self.base / f"node{node}.log").open("ab")
        with log:
            holder = subprocess.Popen(
                [
                    *HERE,
                    sys.executable,
                    "-c",
                    "import time; print('up', flush=True); time.sleep(100_000)",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes[f"node{node}"] = holder
        wait_until(
            lambda: "up" in self.log(f"node{node}") or holder.poll() is not None, "a namespace"
        )
        assert holder.poll() is None, self.log(f"node{node}")
        [inside] = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        self._holders[node] = int(inside)

    def inside(self, node: int, name: str, *argv: str, **environ: str) -> None:
        self.start(
            name,
            *argv,
            before=("nsenter", "-t", str(self._holders[node]), "-p", "-m"),
            PYTHONPATH=str(ROOT),
            **environ,
        )

    def boxes(self, node: int) -> Path:
        return self.base / f"boxes{node}"

    def stopped(self, rank: int) -> contextlib.AbstractContextManager[None]:
        """The rank and the nsenter in front of it, which would continue it; the rank first: continued while its rank is
        stopped, nsenter would stop itself again."""
        front = self.processes[f"rank{rank}"].pid
        [pid] = Path(f"/proc/{front}/task/{front}/children").read_text().split()
        return outside.stopped(int(pid), front)
