"""Pass: torchrun's agents that have started no rank, because other nodes have not come to their
rendezvous.

Only where no node has a rank. Which ranks are missing is known where nodes are numbered by
--node-rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..model.start_up import Launch, WaitingAgent
from . import findings as f
from .case import Case
from .confidence import Ground, sure
from .draft import Draft, add_first
from .findings import Clue, Finding

_LINKED = ("listens", "connected")
_SHOWN = 4  # agents
Placed = tuple[str, WaitingAgent]  # with its node


def run(case: Case, draft: Draft) -> None:
    """Which nodes torchrun waits for."""
    add_first(find, case, draft)


def find(case: Case, blamed: set[int]) -> list[Finding]:
    """Agents without a way to the rendezvous, else the nodes that are missing there."""
    placed = [(node.node, agent) for node in case.capture.nodes for agent in node.agents]
    if case.views or not placed:
        return []
    hosts = [agent for _, agent in placed if agent.come]
    lost = [(node, a) for node, a in placed if _is_lost(a)]
    if lost and len(lost) < len(placed):
        return [_no_way(node, a, _meeting_place(placed, lost)) for node, a in lost]
    if lost and not hosts:
        return [_no_way(node, a, "") for node, a in lost[:1]]
    return [_same_number(placed) or _missing_nodes(case, placed, hosts)]


def _same_number(placed: Sequence[Placed]) -> Finding | None:
    """Agents that were started with the same --node-rank, as by the same command on each node."""
    launch = placed[0][1].launch
    here = Counter(agent.launch.node_rank for _, agent in placed)
    [(number, often)] = here.most_common(1)
    free = sorted(set(range(launch.nodes)) - set(here))
    if number < 0 or often < 2 or not free:
        return None
    alike = [(node, agent) for node, agent in placed if agent.launch.node_rank == number]
    story = f.SameNodeRank(
        tuple(f.Agent(node, agent.pid) for node, agent in alike[:_SHOWN]),
        number,
        tuple(free),
        where=launch.endpoint,
        seconds=max(agent.seconds for _, agent in alike),
    )
    return Finding(
        kind="start_stall",
        ranks=_ranks_of(launch, free),
        story=story,
        confidence=sure(Ground.RENDEZVOUS),
        nodes=sorted({node for node, _ in alike[1:]} - {""}),
        clues=[_clue(node, agent) for node, agent in alike[:_SHOWN]],
    )


def _is_lost(agent: WaitingAgent) -> bool:
    """Whether it has no connection to the rendezvous that it was told."""
    store = agent.store
    if agent.come or store is None or store.link in _LINKED:
        return False
    return bool(store.refused) or not store.addresses


def _meeting_place(placed: Sequence[Placed], lost: Sequence[Placed]) -> str:
    """Where the others meet; "" where those that are lost look for the same place."""
    there = {agent.launch.endpoint for node, agent in placed if (node, agent) not in lost}
    return "" if there & {agent.launch.endpoint for _, agent in lost} else min(there, default="")


def _no_way(node: str, agent: WaitingAgent, others_at: str) -> Finding:
    store = agent.store
    assert store is not None
    why = store.refused or "a name without an address on its node"
    address = store.addresses[0] if store.addresses else store.name
    where = agent.launch.endpoint
    if address != store.name:
        where = f"{where} ({address})"
    story = f.NoWayToRendezvous(f.Agent(node, agent.pid), where, why, others_at=others_at)
    return Finding(
        kind="start_stall",
        ranks=_ranks_of(agent.launch, {agent.launch.node_rank}),
        story=story,
        confidence=sure(Ground.RENDEZVOUS),
        nodes=[node] if node else [],
        clues=[_clue(node, agent)],
    )


def _missing_nodes(case: Case, placed: Sequence[Placed], hosts: Sequence[WaitingAgent]) -> Finding:
    """How many nodes are there, and which are not, as far as one can tell."""
    node, agent = next(((n, a) for n, a in placed if a.come), placed[0])
    launch = agent.launch
    come = max([len(placed), *(host.come for host in hosts)]) if hosts else 0
    numbers = _missing_numbers(launch, placed, come)
    story = f.NotAtRendezvous(
        agent=f.Agent(node, agent.pid),
        where=launch.endpoint,
        needed=launch.nodes,
        come=min(come, launch.nodes),
        per_node=launch.per_node,
        seconds=agent.seconds,
        numbers=tuple(numbers),
    )
    return Finding(
        kind="start_stall",
        ranks=_ranks_of(launch, numbers),
        story=story,
        confidence=sure(Ground.RENDEZVOUS),
        nodes=_empty_nodes(case, launch),
        clues=[_clue(n, a) for n, a in placed[:_SHOWN]],
    )


def _missing_numbers(launch: Launch, placed: Sequence[Placed], come: int) -> list[int]:
    """The --node-rank of each node that has not come; [] where that is not known."""
    here = {a.launch.node_rank for _, a in placed}
    if min(here) < 0 or len(here) != come:
        return []
    return sorted(set(range(launch.nodes)) - here)


def _ranks_of(launch: Launch, numbers: Sequence[int] | set[int]) -> list[int]:
    each = launch.per_node
    known = sorted(number for number in numbers if number >= 0)
    return [rank for number in known for rank in range(number * each, (number + 1) * each)]


def _empty_nodes(case: Case, launch: Launch) -> list[str]:
    """Nodes of the job that were asked and have no agent, else those that its launcher was given."""
    capture = case.capture
    here = {node.node for node in capture.nodes if node.agents}
    others = {node.node for node in capture.nodes} | {node.node for node in capture.silent}
    return sorted((others or set(launch.names)) - here - {""}) or sorted(set(launch.names) - here)


def _clue(node: str, agent: WaitingAgent) -> Clue:
    return Clue("proc", (), f.AgentWaits(f.Agent(node, agent.pid), agent.launch, agent.seconds))
