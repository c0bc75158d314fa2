"""Ranks that wait for another process to give them work: the engine of an inference server.

Such a rank is in no operation of its peers, and waits for none of them. What that means, the others
show: where they are in a collective, it was given no work and is missing there; where one of them
does something else, the engine waits for that one, and so do all.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from .view import RankView


def idle(views: Sequence[RankView]) -> list[RankView]:
    """The ranks that wait for work."""
    return [v for v in views if v.place.kind == "work" and not v.gone]


def settle(views: Sequence[RankView]) -> None:
    """Make the wait for work one that all share, where a rank that has work keeps the engine."""
    without = idle(views)
    others = [v for v in views if not v.gone and v.place.kind != "work"]
    if any(not v.place.communicates for v in others):
        for view in without:
            view.place = structs.replace(view.place, kind="collective", group="world")
