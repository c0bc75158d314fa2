"""The merged stacks as an icicle: a flat list of nodes, each a run of frames that the same ranks
share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...model.diagnosis import StackGroup
from ...text.ranges import format_ranks
from ..tree import Node, build, lines
from .rank_details import Frames

_NODES = 4000  # beyond these a page could not be drawn


def rows(groups: Sequence[StackGroup], frames: Frames) -> tuple[list[list[Any]], int]:
    """([parent, ranks, frame numbers outermost first] of each node, parents first; ranks cut off)."""
    found: list[list[Any]] = []
    left_out = 0
    queue: list[tuple[int, Node]] = [(-1, node) for node in build(groups)]
    at = 0
    while at < len(queue):  # breadth first: what is cut is deep
        parent, node = queue[at]
        at += 1
        if len(found) >= _NODES:
            left_out += len(node.ranks)
            continue
        found.append(
            [
                parent,
                format_ranks(node.ranks),
                [frames.frame(f.name, f.file, f.line) for f in node.frames],
            ]
        )
        queue += [(len(found) - 1, child) for child in node.children]
    return found, left_out


def as_text(groups: Sequence[StackGroup]) -> str:
    """The same for a reader without a pointer: an indented tree."""
    return "\n".join(
        f"{label}  {frames}"
        for label, frames in lines(build(groups), max_frames=5, max_branches=12)
    )
