"""torchrun's agents that wait for other nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from hangdoctor.agents.rendezvous_search import RendezvousSearch
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import NoRanksFound
from hangdoctor.launchers.gather import Gathered, join
from hangdoctor.launchers.remote import Outcome
from hangdoctor.model.capture import JobCapture, NodeCapture, world_size_of
from hangdoctor.model.start_up import Launch, StoreView, WaitingAgent
from hangdoctor.readers import connections, waiting_agents
from hangdoctor.readers.node import CaptureOptions, capture_node
from hangdoctor.transport.stdout_frame import NodeReply
from tests.support.stage import free_port, wait_until

SCRIPT = f"never_{os.getpid()}"  # of this test alone: others may run beside it


@contextlib.contextmanager
def agents(*rendezvous: list[str], nodes: int) -> Iterator[list[int]]:
    started = []
    try:
        for number, flags in enumerate(rendezvous):
            started.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}"),
                        *(f"--node-rank={number}", "--nproc-per-node=2", *flags, f"{SCRIPT}.py"),
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
    kind: str,
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
        [guest] = set(pids) - {host}
        assert set(found) == set(pids)
        assert (found[host].launch.nodes, found[host].come) == (3, 2)
        way = found[guest].store
        assert way is not None and (way.port, way.link) == (port, "connected")
        mine = RendezvousSearch(str(host), "")
        assert mine.waits_s(time.monotonic()) > 0
        capture = capture_node(CaptureOptions(timeout_s=30, pids=[host]), "n1")
        assert {agent.pid for agent in capture.agents} == set(pids)
        for name in (f"{SCRIPT}.py", str(guest)):
            named = capture_node(CaptureOptions(timeout_s=30, job=name), "n1")
            assert {agent.pid for agent in named.agents} == set(pids), name
        none = r"no job 'other\.py'|no rank processes|no process on n1 has a rank"  # by what runs beside
        with pytest.raises(NoRanksFound, match=none):
            capture_node(CaptureOptions(timeout_s=30, job="other.py"), "n1")
    verdict = diagnose(
        JobCapture("j", [capture, NodeCapture("n3")], world_size=world_size_of([capture]))
    )
    [cause] = verdict.causes
    assert (verdict.status, cause.kind, verdict.job.world_size) == ("hang", "start_stall", 6)
    assert cause.summary.startswith(
        f"n3 has not come to the rendezvous at 127.0.0.1:{port}: 2 of 3 nodes are there, with 4 of 6 ranks; torchrun (n1, pid {host})"
    )
    assert cause.ranks == ([4, 5] if kind == "static" else [])


def test_a_node_that_answers_without_torchrun_is_the_one_that_is_missing() -> None:
    """As `--jobid` and `--hostfile` join them: one node waits, one has nothing, one is silent."""
    launch = Launch("torchrun", 3, per_node=8, world_size=24, endpoint="n1:29400")
    waits = NodeCapture("n1", "n1:29400", launch=launch)
    waits.agents = [WaitingAgent(7, launch, come=1, seconds=41.0)]
    gathered = Gathered({"n1": waits}, {"n2": NodeReply("n2", error="no rank")})
    gathered.silent = {"n3": Outcome("n3")}
    job = join(gathered, ["n1", "n2", "n3"], {"n3": "no answer"}, CaptureOptions())
    [cause] = diagnose(job).causes
    assert (job.world_size, cause.nodes, cause.ranks) == (24, ["n2", "n3"], [])
    assert cause.summary.startswith("n[2-3] have not come to the rendezvous at n1:29400: 1 of 3")


def test_one_that_cannot_reach_the_rendezvous_is_named_before_the_others() -> None:
    def agent(pid: int, endpoint: str, come: int = 0, refused: str = "") -> WaitingAgent:
        link = "none" if refused else "connected"
        store = StoreView("n1", 29400, ["10.0.0.1"], link, refused=refused)
        launch = Launch("torchrun", 2, per_node=8, world_size=16, endpoint=endpoint)
        return WaitingAgent(pid, launch, come=come, seconds=41.0, store=store)

    def said(*agents: WaitingAgent) -> str:
        nodes = [NodeCapture(f"n{n}", "j", agents=[a]) for n, a in enumerate(agents, start=1)]
        return diagnose(JobCapture("j", nodes, world_size=16)).causes[0].summary

    host = agent(7, "n1:29400", come=1)
    shut = agent(8, "n1:29400", refused="connection refused")
    assert said(host, shut) == (
        "torchrun (n2, pid 8) cannot reach the rendezvous at n1:29400 (10.0.0.1): connection refused. It runs no rank."
    )
    other = agent(8, "n3:29400", refused="no answer in 2 s")
    assert said(host, other).endswith("no answer in 2 s; the others meet at n1:29400.")
    assert said(host) == (
        "1 node has not come to the rendezvous at n1:29400: 1 of 2 nodes is there, with 8 of 16 ranks; torchrun (n1, pid 7) was started 41 s ago and runs no rank."
    )
    assert "how many have come is not known" in said(agent(7, "n9:29400"))


def test_nodes_that_were_started_with_one_number_are_both_named() -> None:
    """The same command was run on both: `accelerate launch` with one machine_rank for all."""

    def agent(pid: int) -> WaitingAgent:
        where = "n1:29500"
        launch = Launch("accelerate", 2, per_node=8, world_size=16, endpoint=where, node_rank=0)
        return WaitingAgent(pid, launch, come=1, seconds=41.0)

    nodes = [NodeCapture(f"n{n}", "j", agents=[agent(6 + n)]) for n in (1, 2)]
    [cause] = diagnose(JobCapture("j", nodes, world_size=16)).causes
    assert (cause.kind, cause.nodes, cause.ranks) == ("start_stall", ["n2"], [*range(8, 16)])
    assert cause.summary == (
        "torchrun (n1, pid 7) and torchrun (n2, pid 8) have the same --node-rank 0, and no one has come as 1: 41 s after the start no rank runs."
    )
    assert "--machine_rank 1" in cause.advice


@pytest.mark.timeout(60)
def test_a_program_above_it_with_the_same_words_is_no_agent() -> None:
    """`timeout`, and srun, which starts it elsewhere. A shell stands in for torchrun: it only has its words."""
    words = ["torchrun", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1", "x.py"]
    shell = ["sh", "-c", "echo; read line"]
    lines = [["timeout", "50", *shell, *words], [*shell, "srun", "-N2", *words]]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [subprocess.Popen(line, **piped) for line in lines]  # type: ignore[call-overload]
    try:
        for process in started:
            process.stdout.readline()
        [child] = psutil.Process(started[0].pid).children()
        family = {child.pid, *(p.pid for p in started)}
        found = {agent.pid for agent in waiting_agents.find(os.getuid(), ways=False)}
        assert found & family == {child.pid}
    finally:
        for process in started:
            process.communicate()
