"""Which nodes and collectors report here, over which connection, and how far the reports of each are kept."""

from __future__ import annotations

from collections.abc import Collection

from ..transport.messages import Hello, NodeNews
from .instructions import Node, Position, Settings


class NodeTable:
    """`nodes` are those of the whole tree, `relays` the collectors right below this one, by their names."""

    def __init__(self, settings: Settings, positions: dict[str, Position] | None) -> None:
        self.settings = settings
        self.nodes: dict[str, Node] = {}
        self.relays: dict[str, Node] = {}
        self.positions = {} if positions is None else positions  # by agent

    @property
    def full(self) -> bool:
        """Whether no further node is taken."""
        return len(self.nodes) >= self.settings.max_nodes

    def sender(self, peer: bytes, agent: str) -> Node | None:
        """The node, or the collector below, that has said hello over this connection."""
        name = self.node_of(agent)
        for known in (self.nodes.get(name), self.relays.get(name)):
            if known is not None and known.peer == peer:
                return known
        return None

    def node_of(self, agent: str) -> str:
        """The name of the node of this agent; "" of one that never said hello."""
        position = self.positions.get(agent)
        return position.node if position else ""

    def known(self, hello: Hello) -> Node | None:
        """What is known of the node or collector that says hello."""
        return (self.relays if hello.relay else self.nodes).get(hello.node)

    def refusal(self, hello: Hello, now: float) -> str:
        """Why this hello is not taken; "" where it is."""
        table, other = self.nodes, self.relays
        if hello.relay:
            table, other = other, table
        known = table.get(hello.node)
        full = known is None and len(table) >= self.settings.max_nodes
        if full or hello.node in other:
            return f"more than {self.settings.max_nodes} nodes, or the name is already used"
        if known is None or known.agent == hello.agent:
            return ""
        # Two agents of one node: the first stays, so that no one can push a living one aside.
        speaks = known.speaks(now, self.settings.silent_s)
        return f"node {hello.node} already has an agent" if speaks else ""

    def enter(self, hello: Hello, peer: bytes, ranks: dict[int, bool], now: float) -> Node:
        """The node or collector that says hello, from now on spoken to over this connection."""
        node = Node(
            name=hello.node,
            peer=peer,
            agent=hello.agent,
            heard=now,
            job=hello.job,
            world_size=hello.world_size,
            ranks=ranks,
            began=hello.began,
        )
        table = self.relays if hello.relay else self.nodes
        table[hello.node] = node
        return node

    def enter_behind(
        self, relay: Node, news: NodeNews, ranks: dict[int, bool], heard: float
    ) -> Node:
        """A node that a collector below reports of, from now on spoken to through it."""
        known = self.nodes.get(news.node)
        if known is not None and known.via == relay.name:
            heard = max(heard, known.heard)
        node = Node(
            name=news.node,
            peer=relay.peer,
            agent=relay.agent,
            heard=heard,
            job=news.job,
            world_size=news.world_size,
            ranks=ranks,
            left=news.left,
            via=relay.name,
            began=news.began,
        )
        self.nodes[news.node] = node
        return node

    def position(self, agent: str, node: str, unacked: Collection[str]) -> Position:
        """How far the reports of this agent are kept; of agents that no longer speak, few are remembered."""
        if len(self.positions) > 2 * self.settings.max_nodes:
            speaking = {n.agent for n in (*self.nodes.values(), *self.relays.values())}
            for gone in self.positions.keys() - speaking.union(unacked):
                del self.positions[gone]
        position = self.positions.setdefault(agent, Position())
        position.node = node
        return position

    def direct(self) -> list[bytes]:
        """The connections of all who speak with this collector itself."""
        nodes = [*self.relays.values(), *(n for n in self.nodes.values() if not n.via)]
        return [n.peer for n in nodes if not n.left]
