"""NCCL watchdog's counters that name no rank but are a lead, and how long a part of the work took."""

from __future__ import annotations

from msgspec import Struct

from .named import Op


class Ahead(Struct, frozen=True):
    """Waiters called an operation that these other members of their group, as many or more, never did."""

    called: int  # the last operation that a waiter had called
    others: tuple[int, ...]
    last: int  # the last one that any of these had called; they had completed it
    elsewhere: tuple[int, ...] = ()  # who waited in gloo meanwhile


class CalledLess(Struct, frozen=True):
    """By NCCL's own lines these had not called what `others` called next."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    op: Op
    elements: int


class LeftBehind(Struct, frozen=True):
    """These printed nothing after a step that all others left behind: a lead, since prints lie in buffers."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    step: int  # that the others had come to
    says: str
    at: str  # file and line of the log


class LeftBefore(Struct, frozen=True):
    """These were ending, their process groups still up, so long before the first wait reached its limit."""

    ranks: tuple[int, ...]
    seconds: float
    at: str  # file and line of the log


class TookLonger(Struct, frozen=True):
    """A part of its work took longer than the others' time limit in `op`."""

    seconds: float
    limit_s: float
    op: Op
    says: str
    at: str  # file and line of the log
    late: bool = False  # by a line of its own it slept, or was late, before a collective


class StillPreparing(Struct, frozen=True):
    """It was making data ready when those that waited for it, in `op` where that is known, came to their limit;
    `alone`: at other work, which began when their wait did.
    """

    op: Op
    says: str
    at: str  # file and line of the log
    alone: bool = False
