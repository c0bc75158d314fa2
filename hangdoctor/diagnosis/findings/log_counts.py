"""What counters of NCCL's watchdog add where they name nobody."""

from __future__ import annotations

from msgspec import Struct


class Ahead(Struct, frozen=True):
    """Waiters called an operation that these other members of their group, as many or more, never did."""

    called: int  # the last operation that a waiter had called
    others: tuple[int, ...]
    last: int  # the last one that any of these had called; they had completed it
    elsewhere: tuple[int, ...] = ()  # who waited in gloo meanwhile
