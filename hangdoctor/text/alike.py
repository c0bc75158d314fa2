"""One reason for many nodes, once: equal but for the names of the nodes in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .plural import count
from .ranges import format_hosts

_PLACE = "NODE"


def grouped(whys: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """(nodes, their reason) of (node, reason), in the order in which each reason comes first.

    A reason that several share has NODE where their names were, or nothing where it began with them.
    """
    shared: dict[str, list[tuple[str, str]]] = {}
    for node, why in whys:
        shared.setdefault(_nameless(node, why), []).append((node, why))
    return [
        ([node for node, _ in alike], nameless if len(alike) > 1 else alike[0][1])
        for nameless, alike in shared.items()
    ]


def in_words(whys: Iterable[tuple[str, str]]) -> list[str]:
    """The same as ``n[1-8] (8 nodes): Permission denied``, ``n9: No route to host``."""
    return [_sentence(nodes, why) for nodes, why in grouped(whys)]


def _sentence(nodes: list[str], why: str) -> str:
    if not nodes[0]:
        return why
    several = f" ({count(len(nodes), 'node')})" if len(nodes) > 1 else ""
    return f"{format_hosts(nodes)}{several}: {why}"


def _nameless(node: str, why: str) -> str:
    """The reason without the node's name, and without ``alice@NODE: `` before it."""
    if not node:
        return why
    name = rf"(?<![\w.-]){re.escape(node)}(?![\w-])"
    why = re.sub(rf"^([\w.-]+@)?{name}: ", "", why)
    return re.sub(name, _PLACE, why)
