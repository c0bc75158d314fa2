"""Who may go on talking: counts each peer's bad messages and its rate, and cuts off who does harm."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .instructions import Counters, Instruction, Log, Settings


class Peer(Struct):
    """The books of one peer. `tokens`: messages that it may send now; they come back with time (a
    token bucket).
    """

    agent: str = ""
    strikes: int = 0
    tokens: float = 0.0
    filled: float = 0.0


class Door:
    """The books of all peers. `node_of` returns the node of an agent, for the log."""

    def __init__(
        self, settings: Settings, counters: Counters, node_of: Callable[[str], str]
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.node_of = node_of
        self.peers: dict[bytes, Peer] = {}
        self.shut: dict[bytes, None] = {}

    def admit(self, peer: bytes, now: float) -> tuple[Peer | None, list[Instruction]]:
        """The peer's books, or None where it is cut off or sends more than anyone may."""
        if peer in self.shut:
            return None, []
        state = self.peers.get(peer)
        if state is None:
            if len(self.peers) >= self.settings.max_peers:
                idle = next((p for p, s in self.peers.items() if not s.agent), None)
                if idle is None:
                    return None, []
                del self.peers[idle]
            state = self.peers[peer] = Peer(tokens=self.settings.burst, filled=now)
        state.tokens = min(
            self.settings.burst, state.tokens + (now - state.filled) * self.settings.rate
        )
        state.filled = now
        if state.tokens < 1:
            self.counters.flooded += 1
            return None, self.cut(peer, "a flood of messages")
        state.tokens -= 1
        return state, []

    def give_back(self, peer: bytes) -> None:
        """Its message was asked for: a collector below answers for thousands of nodes at once."""
        state = self.peers.get(peer)
        if state is not None:
            state.tokens += 1

    def strike(self, peer: bytes, state: Peer, why: str) -> list[Instruction]:
        """One bad message; the peer is cut off after some."""
        state.strikes += 1
        if state.strikes >= self.settings.strikes:
            return self.cut(peer, why or "invalid messages")
        if not why or state.strikes > 1:
            return []
        return [Log(f"a message from {self.who(peer)} is dropped: {why}")]

    def cut(self, peer: bytes, why: str) -> list[Instruction]:
        """Deal with this peer no more; one line for the log."""
        who = self.who(peer)
        self.peers.pop(peer, None)
        self.shut[peer] = None
        if len(self.shut) > self.settings.max_peers:
            del self.shut[next(iter(self.shut))]
        self.counters.cut_off += 1
        # Whoever makes a new identity for each message must not fill the log.
        if self.counters.cut_off > 100:
            return []
        return [Log(f"{who} is disconnected: {why}")]

    def who(self, peer: bytes) -> str:
        """The peer in words: its node, once it has said hello."""
        state = self.peers.get(peer)
        if state and state.agent:
            return f"the agent of {self.node_of(state.agent)}"
        return f"peer {peer.hex()[:16]}"
