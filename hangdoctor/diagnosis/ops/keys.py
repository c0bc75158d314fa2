"""Names of operation instances that are equal on all ranks which take part in them.

A collective is (group uid, sequence number). A store operation counts apart: (group uid, op, number). A send and
the receive that it pairs with share (group uid, source, destination, number). The lengths of the tuples differ,
so the three kinds never meet.
"""

from __future__ import annotations

from ...operations import STORE, Operation

SENDS = frozenset({"send", "isend"})
RECEIVES = frozenset({"recv", "irecv"})
P2P_NAMES = SENDS | RECEIVES
UNNUMBERED = STORE | P2P_NAMES  # not in the sequence of their group's collectives

Key = tuple[str, int] | tuple[str, str, int] | tuple[str, int, int, int]
Head = str | tuple[str, str] | tuple[str, int, int]


def key_of(op: Operation, rank: int) -> Key:
    name = op.op
    if name not in UNNUMBERED:
        return (op.group, op.seq)
    if name in STORE:
        return (op.group, name, op.seq)
    if name in SENDS:
        return (op.group, rank, op.peer, op.seq)
    return (op.group, op.peer, rank, op.seq)


def head_of(op: Operation, rank: int) -> Head:
    """The counter that the operation's number belongs to."""
    name = op.op
    if name not in UNNUMBERED:
        return op.group
    if name in STORE:
        return (op.group, name)
    if name in SENDS:
        return (op.group, rank, op.peer)
    return (op.group, op.peer, rank)


def counter(key: Key) -> Head:
    """The counter of an instance."""
    return key[0] if len(key) == 2 else key[:-1]


def is_p2p(key: Key) -> bool:
    return len(key) == 4
