"""torchrun's agents that wait for other nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.errors import NoRanksFound
from hangdoctor.readers import connections, waiting_agents
from hangdoctor.readers.node import CaptureOptions, capture_node
from tests.support.stage import free_port, wait_until


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ("torchrun --nnodes=4 t.py", 4),
        ("/v/bin/python3 -m torch.distributed.run --nnodes 2:8 --nproc-per-node 4 t.py", 2),
        ("python /v/bin/torchrun --nproc_per_node 8 t.py", 1),
        ("torchrun --nnodes", 1),
        ("torchrun --nnodes x t.py", 1),
        ("python t.py --nnodes 4", 0),
        ("", 0),
    ],
)
def test_how_many_nodes_an_agent_needs(words: str, nodes: int) -> None:
    argv = words.split()
    assert (waiting_agents.nodes_of(argv) if waiting_agents.is_agent(argv) else 0) == nodes


@contextlib.contextmanager
def agents(*rendezvous: list[str], nodes: int) -> Iterator[list[int]]:
    started = []
    try:
        for number, flags in enumerate(rendezvous):
            started.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}"),
                        *(f"--node-rank={number}", "--nproc-per-node=1", *flags, "never.py"),
                    ],
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        yield [p.pid for p in started]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=20)


@pytest.mark.torch
@pytest.mark.timeout(150)
@pytest.mark.parametrize("kind", ["static", "c10d"])
def test_an_agent_that_waits_says_how_many_have_come(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port = free_port()
    flags = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    if kind == "c10d":
        flags = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=7"]
    with agents(flags, flags, nodes=3) as pids:

        def hosts() -> list[int]:
            return [pid for pid in pids if any(connections.guests(pid).values())]

        wait_until(lambda: bool(hosts()), "the second agent is at the first one's store", 100)
        found = {a.pid: a for a in waiting_agents.find(os.getuid()) if a.pid in pids}
        [host] = hosts()
        assert set(found) == set(pids)
        assert (found[host].nodes, found[host].come) == (3, 2)
        monkeypatch.setattr("psutil.pids", lambda: [host])
        with pytest.raises(NoRanksFound) as raised:
            capture_node(CaptureOptions(timeout_s=30), "n1")
        assert "it waits for 3 nodes, and 2 of 3 have come" in raised.value.help
