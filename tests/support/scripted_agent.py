"""An agent that reports what a test tells it to, with the job's key: states and sizes that no job
of this machine has.
"""

from __future__ import annotations

import zmq

from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg
from tests.support.livejob import LiveJob
from tests.support.stage import wait_until


class ScriptedAgent:
    """One node; a context manager."""

    def __init__(self, live: LiveJob, node: str, world: int, job: str = "run-7") -> None:
        wait_until((live.folder / "keys" / "agent.key").exists, "the collector has keys")
        wait_until(lambda: address.published(live.folder) != "", "the collector has an address")
        made = keys.load(live.folder)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.IDENTITY, node.encode())
        self.socket.curve_serverkey = made.collector.public
        self.socket.curve_publickey = made.agent.public
        self.socket.curve_secretkey = made.agent.secret
        self.socket.connect(address.published(live.folder))
        self.node, self.sent = node, 0
        self.socket.send_multipart(msg.encode(msg.Hello(f"agent-{node}", node, job, world)))
        assert self.socket.poll(20_000), "the collector answers"

    def __enter__(self) -> ScriptedAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)

    def report(self, ranks: list[msg.RankNow]) -> None:
        self.sent += 1
        self.socket.send_multipart(msg.encode(msg.Report(self.sent, 1, 0.0, ranks)))

    def beat(self) -> bool:
        """Nothing new, but the agent is there; True, for use in a condition."""
        self.report([])
        return True


def waiting(rank: int, idle_s: float = 50.0) -> msg.RankNow:
    return msg.RankNow(
        rank,
        pid=100 + rank,
        idle_s=idle_s,
        iteration=12,
        phase="forward",
        op="all_reduce",
        seq=12,
        inside=True,
        box=True,
    )


def moving(rank: int, iteration: int) -> msg.RankNow:
    return msg.RankNow(
        rank,
        pid=100 + rank,
        idle_s=0.1,
        iteration=iteration,
        phase="forward",
        op="all_reduce",
        seq=iteration,
        box=True,
    )


def outside(rank: int, idle_s: float = 50.0) -> msg.RankNow:
    return msg.RankNow(
        rank,
        pid=100 + rank,
        idle_s=idle_s,
        iteration=12,
        phase="data",
        op="all_gather",
        seq=11,
        box=True,
    )


def over(rank: int, finished: bool) -> msg.RankNow:
    return msg.RankNow(rank, idle_s=30.0, iteration=99, box=True, over=True, finished=finished)
