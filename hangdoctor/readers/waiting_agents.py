"""torchrun's agents that wait for other nodes: they start no rank before all have come.

Which of them is missing no process here knows; how many have come, the host of the store does: each
agent is connected to it.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil
from msgspec import Struct

from ..text.durations import duration
from ..text.plain import readable
from . import connections

_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_COUNT = re.compile(r"\d{1,6}(?::\d{1,6})?")


class WaitingAgent(Struct, frozen=True):
    """One agent without ranks."""

    pid: int
    nodes: int  # that it waits for, itself among them
    come: int  # of them, as far as its store's connections show; 0 where the store is elsewhere
    seconds: float


def find(uid: int | None) -> list[WaitingAgent]:
    """The agents on this host that have started no rank, of several nodes each. `uid`: only this
    user's.
    """
    found = (_read(process, uid) for process in psutil.process_iter())
    return [agent for agent in found if agent is not None]


def help_on(agent: WaitingAgent, node: str) -> str:
    """The help that goes with an error: how many nodes have come, and what to do."""
    since = duration(agent.seconds)
    waits = (
        f"torchrun on {node} (pid {agent.pid}) has started no rank for {since}: it waits for "
        f"{agent.nodes} nodes"
    )
    if not agent.come:
        return f"{waits}. Its store is on another node: run hangdoctor dump --local there to see how many have come."
    return f"{waits}, and {agent.come} of {agent.nodes} have come. Start torchrun on the missing nodes, or see there why it does not reach this one."


def _read(process: psutil.Process, uid: int | None) -> WaitingAgent | None:
    try:
        argv = [readable(word) for word in process.cmdline()]
        nodes = nodes_of(argv) if is_agent(argv) else 0
        if nodes < 2 or (uid is not None and process.uids().real != uid):
            return None
        if any("python" in child.name() for child in process.children()):
            return None  # its ranks
        guests = connections.guests(process.pid)
        come = 1 + max(map(len, guests.values())) if guests else 0
        seconds = time.time() - process.create_time()
    except (psutil.Error, OSError):
        return None
    return WaitingAgent(process.pid, nodes, min(come, nodes), seconds)


def is_agent(argv: list[str]) -> bool:
    """Whether a command line is torchrun's, also as a module."""
    for before, word in zip(["", *argv], argv[:6], strict=False):
        if Path(word).name == "torchrun" or (before == "-m" and word in _MODULES):
            return True
    return False


def nodes_of(argv: list[str]) -> int:
    """The least number of nodes that it needs, as --nnodes says; 1 without it."""
    words = [w.replace("_", "-") for w in argv]
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name != "--nnodes":
            continue
        told = value if equals else "".join(words[n + 1 : n + 2])
        return int(told.partition(":")[0]) if _COUNT.fullmatch(told) else 1
    return 1
