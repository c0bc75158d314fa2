"""The words for the start of a job: nodes that have not come to torchrun's rendezvous, and ports."""

from __future__ import annotations

from ...model.start_up import Launch
from ...text.plural import count
from ...text.ranges import format_ranks
from .. import findings as f
from ..findings import Finding
from . import terms
from .advice import by_story
from .clues import say
from .differences import subject
from .stories import tell
from .terms import choose


def _torchrun(agent: f.Agent) -> str:
    """``torchrun (n1, pid 71)``."""
    inner = ", ".join(part for part in (agent.node, f"pid {agent.pid}") if part)
    return f"torchrun ({inner})"


def _on(agent: f.Agent) -> str:
    return f" on {agent.node}" if agent.node else ""


@tell.register
def _(story: f.NotAtRendezvous, finding: Finding) -> str:
    started = f"was started {terms.duration(story.seconds)} ago and runs no rank"
    if not story.come:
        meets = f"at {story.where}" if story.where else "at its rendezvous"
        waits = f"it waits for {count(story.needed, 'node')} {meets}"
        return f"{_torchrun(story.agent)} {started}: {waits}, and how many have come is not known"
    missing = story.needed - story.come
    has = choose(missing, "has", "have")
    there = f"{story.come} of {story.needed} nodes {choose(story.come, 'is', 'are')} there"
    if story.per_node:
        all_ranks = story.needed * story.per_node
        there = f"{there}, with {story.come * story.per_node} of {all_ranks} ranks"
    at = f" at {story.where}" if story.where else ""
    came_not = f"{_missing(story, finding, missing)} {has} not come to the rendezvous{at}"
    return f"{came_not}: {there}; {_torchrun(story.agent)} {started}"


def _missing(story: f.NotAtRendezvous, finding: Finding, missing: int) -> str:
    if len(finding.nodes) == missing:
        return terms.host_names(finding.nodes)
    if story.numbers:
        numbers = format_ranks(story.numbers)
        return f"The {choose(missing, 'node', 'nodes')} with --node-rank {numbers}"
    return terms.capital(count(missing, "node"))


@tell.register
def _(story: f.SameNodeRank, finding: Finding) -> str:
    *others, last = [_torchrun(agent) for agent in story.agents]
    who = f"{', '.join(others)} and {last}"
    nobody = f"no one has come as {format_ranks(story.free)}"
    since = f"{terms.duration(story.seconds)} after the start no rank runs"
    return f"{who} have the same --node-rank {story.number}, and {nobody}: {since}"


@tell.register
def _(story: f.NoWayToRendezvous, finding: Finding) -> str:
    if story.others_at:
        looks = f"looks for the rendezvous at {story.where}: {story.why}"
        return f"{_torchrun(story.agent)} {looks}; the others meet at {story.others_at}"
    cannot = f"cannot reach the rendezvous at {story.where}: {story.why}"
    return f"{_torchrun(story.agent)} {cannot}. It runs no rank"


@tell.register
def _(story: f.OtherPort, finding: Finding) -> str:
    uses = choose(finding.ranks, "uses", "use")
    use = choose(
        story.others, f"{terms.ranks(story.others)} uses", f"{terms.ranks(story.others)} use"
    )
    return f"{subject(finding)} {uses} MASTER_PORT {story.own}, {use} {story.theirs}"


@by_story.register
def _(story: f.NotAtRendezvous, finding: Finding) -> str:
    if not story.come:
        host = story.where.rpartition(":")[0]
        return f"Capture on {host or 'the node of the rendezvous'}, too: hangdoctor dump --local there shows how many have come."
    missing = story.needed - story.come
    node = (
        terms.host_names(finding.nodes)
        if finding.nodes
        else choose(missing, "the missing node", "the missing nodes")
    )
    number = f" --node-rank {story.numbers[0]}" if len(story.numbers) == 1 else ""
    command = f"torchrun --nnodes {story.needed}{number}"
    meet = f" with the endpoint {story.where}" if story.where else ""
    return f"See on {node} whether {command} runs{meet}, and what its log says: hangdoctor dump --local there."


@by_story.register
def _(story: f.SameNodeRank, finding: Finding) -> str:
    other = story.agents[-1]
    flag = f"--node-rank {story.free[0]} (accelerate: --machine_rank {story.free[0]})"
    return f"Start torchrun{_on(other)} with {flag}: each node needs a number of its own."


@by_story.register
def _(story: f.NoWayToRendezvous, finding: Finding) -> str:
    if story.others_at:
        return f"Give torchrun{_on(story.agent)} the endpoint of the others: {story.others_at} (--rdzv-endpoint, or --master-addr and --master-port)."
    host, _, port = story.where.partition(" ")[0].rpartition(":")
    if story.why == "connection refused":
        return f"See whether torchrun runs on {host} and listens there: ss -ltnp | grep {port}. Start it first, or check the endpoint."
    if story.why.startswith("a name"):
        return f"See what the name leads to{_on(story.agent)}: getent hosts {host}."
    return f"Open TCP port {port} for the nodes of the job, or take another one; see the firewall{_on(story.agent)}: nft list ruleset; ip rule."


@by_story.register
def _(story: f.OtherPort, finding: Finding) -> str:
    one = choose(finding.ranks, "this rank", "these ranks")
    return f"Set one MASTER_PORT for all ranks: {one} got {story.own}. See what sets it: grep -n MASTER_PORT in the job script and in the environment of the launcher."


@say.register
def _(fact: f.AgentWaits) -> str:
    where = f", meeting at {fact.launch.endpoint}" if fact.launch.endpoint else ""
    since = f"it was started {terms.duration(fact.seconds)} ago and runs no rank"
    return f"{_torchrun(fact.agent)} was asked for {_size(fact.launch)}{where}; {since}"


@say.register
def _(fact: f.AskedFor) -> str:
    launch = fact.launch
    asked = f"{launch.launcher} was asked for {_size(launch)}"
    return f"{asked}: {fact.here} of {count(launch.world_size, 'rank')} were seen"


def _size(launch: Launch) -> str:
    """``2 nodes with 8 ranks each``."""
    if not launch.nodes:
        return count(launch.world_size, "rank")
    nodes = count(launch.nodes, "node")
    if launch.nodes_at_most > launch.nodes:
        nodes = f"{launch.nodes} to {launch.nodes_at_most} nodes"
    if not launch.per_node:
        return f"{count(launch.world_size, 'rank')} on {nodes}" if launch.world_size else nodes
    each = " each" if launch.nodes > 1 else ""
    return f"{nodes} with {count(launch.per_node, 'rank')}{each}"
