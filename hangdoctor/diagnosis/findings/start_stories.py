"""What happened at the start of a job, beyond the ranks themselves: launchers, nodes, ports."""

from __future__ import annotations

from msgspec import Struct

from ...model.start_up import Launch


class Agent(Struct, frozen=True):
    """torchrun's process on a node."""

    node: str
    pid: int


class NotAtRendezvous(Struct, frozen=True):
    """Nodes that `agent` waits for at `where`: `come` of `needed` are there, 0 where that is not
    known.
    """

    agent: Agent
    where: str
    needed: int
    come: int
    per_node: int = 0  # ranks
    seconds: float = 0.0  # since the agent was started
    numbers: tuple[int, ...] = ()  # --node-rank of those that are missing


class SameNodeRank(Struct, frozen=True):
    """Several agents were given one node rank, `number`, so that no one has come as one of `free`."""

    agents: tuple[Agent, ...]
    number: int
    free: tuple[int, ...]
    where: str = ""
    seconds: float = 0.0  # since the first of them was started


class NoWayToRendezvous(Struct, frozen=True):
    """The agent has no connection to the rendezvous that it looks for, at `where`; `others_at`: where
    those of other nodes meet, if that is another place.
    """

    agent: Agent
    where: str
    why: str
    others_at: str = ""


class OtherPort(Struct, frozen=True):
    """Has another MASTER_PORT than `others`, which were started with it."""

    own: int
    theirs: int
    others: tuple[int, ...]


StartStory = NotAtRendezvous | SameNodeRank | NoWayToRendezvous | OtherPort


class AskedFor(Struct, frozen=True):
    """What the launcher was asked to start, and how many of its ranks were seen."""

    launch: Launch
    here: int


class AgentWaits(Struct, frozen=True):
    """An agent that runs no rank, and what it was asked to start."""

    agent: Agent
    launch: Launch
    seconds: float
