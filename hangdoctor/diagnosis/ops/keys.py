"""Names of operation instances that are equal on all ranks which take part in them.

A collective is numbered within its group, a store operation within its group and name, and a send
and the receive that it pairs with between their two ranks. A `Counter` is what such numbers belong
to.
"""

from __future__ import annotations

from msgspec import Struct

from ...model.operations import STORE, Operation

SENDS = frozenset({"send", "isend"})
RECEIVES = frozenset({"recv", "irecv"})
P2P_NAMES = SENDS | RECEIVES
UNNUMBERED = STORE | P2P_NAMES  # not in the sequence of their group's collectives


class Collectives(Struct, frozen=True, gc=False):
    """Counter of the collectives on one group (its uid)."""

    group: str


class StoreCalls(Struct, frozen=True, gc=False):
    """Counter of one store operation on one group."""

    group: str
    op: str


class Transfers(Struct, frozen=True, gc=False):
    """Counter of the sends from one rank to another; a negative rank is any."""

    group: str
    source: int
    destination: int


Counter = Collectives | StoreCalls | Transfers


class Key(Struct, frozen=True, gc=False):
    """One instance: the `number`th of its counter."""

    counter: Counter
    number: int

    @property
    def group(self) -> str:
        """Uid of the group."""
        return self.counter.group

    @property
    def transfer(self) -> Transfers | None:
        """The counter of a send and its receive; None of other operations."""
        return self.counter if isinstance(self.counter, Transfers) else None

    @property
    def store_op(self) -> str:
        """The name of a store operation; "" of others."""
        return self.counter.op if isinstance(self.counter, StoreCalls) else ""


def counter_of(op: Operation, rank: int) -> Counter:
    """The counter that the operation's number belongs to."""
    name = op.op
    if name not in UNNUMBERED:
        return Collectives(op.group)
    if name in STORE:
        return StoreCalls(op.group, name)
    if name in SENDS:
        return Transfers(op.group, rank, op.peer)
    return Transfers(op.group, op.peer, rank)


def key_of(op: Operation, rank: int) -> Key:
    """The instance that an operation of `rank` takes part in."""
    return Key(counter_of(op, rank), op.seq)
