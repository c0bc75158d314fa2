"""Stacks of all ranks as one prefix tree, with the ranks on its edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..model.diagnosis import StackFrame, StackGroup
from ..model.frame import place_of
from ..text.plural import count
from ..text.ranges import format_ranks


class Node(Struct):
    """A run of frames that the same ranks share, and where they part."""

    ranks: list[int]
    frames: list[StackFrame]
    children: list[Node] = []


def build(groups: Sequence[StackGroup]) -> list[Node]:
    """Merge stacks (outermost frame first) into trees; children in order of their ranks' number,
    largest first.
    """
    return _split([(g.ranks, g.frames) for g in groups if g.frames])


def _split(stacks: list[tuple[list[int], list[StackFrame]]]) -> list[Node]:
    by_first: dict[tuple[str, str, int], list[tuple[list[int], list[StackFrame]]]] = {}
    for ranks, frames in stacks:
        first = frames[0]
        by_first.setdefault((first.name, first.file, first.line), []).append((ranks, frames))
    nodes = [_grow(same) for same in by_first.values()]
    return sorted(nodes, key=lambda n: (-len(n.ranks), n.ranks[:1]))


def _grow(stacks: list[tuple[list[int], list[StackFrame]]]) -> Node:
    """One node: as many frames as all of `stacks` share, then its branches."""
    shortest = min(len(frames) for _, frames in stacks)
    shared = 1
    while shared < shortest and all(frames[shared] == stacks[0][1][shared] for _, frames in stacks):
        shared += 1
    ranks = sorted(r for rs, _ in stacks for r in rs)
    rest = [(rs, frames[shared:]) for rs, frames in stacks if len(frames) > shared]
    return Node(ranks, stacks[0][1][:shared], _split(rest) if rest else [])


def short_file(path: str) -> str:
    """The last two parts of a path; inside an installed package, from the package on."""
    for mark in ("site-packages/", "dist-packages/"):
        if mark in path:
            return path.rpartition(mark)[2]
    return "/".join(path.split("/")[-2:])


def lines(
    nodes: Sequence[Node], max_frames: int = 4, max_branches: int = 8
) -> Iterator[tuple[str, str]]:
    """(prefix with ranks, frames) for each node, depth first; long runs of frames are cut in their
    middle.
    """
    yield from _lines(nodes, "", max_frames, max_branches)


def _lines(
    nodes: Sequence[Node], indent: str, max_frames: int, max_branches: int
) -> Iterator[tuple[str, str]]:
    for i, node in enumerate(nodes[:max_branches]):
        last = i == min(len(nodes), max_branches) - 1 and len(nodes) <= max_branches
        corner = "└─ " if last else "├─ "
        label = f"{indent}{corner}{count(len(node.ranks), 'rank')} {_cut(format_ranks(node.ranks))}"
        shown = node.frames
        text = [_written(f) for f in shown]
        if len(text) > max_frames:
            left_out = count(len(text) - max_frames, "frame")
            text = [*text[:1], f"… {left_out}", *text[-(max_frames - 1) :]]
        yield label, " > ".join(text)
        yield from _lines(
            node.children, indent + ("   " if last else "│  "), max_frames, max_branches
        )
    if len(nodes) > max_branches:
        rest = sorted(r for n in nodes[max_branches:] for r in n.ranks)
        yield (
            f"{indent}└─ {len(rest)} more ranks {_cut(format_ranks(rest))}",
            f"… in {len(nodes) - max_branches} more places",
        )


def _written(frame: StackFrame) -> str:
    place = place_of(short_file(frame.file), frame.line)
    return f"{frame.name} ({place})" if place else frame.name


def _cut(text: str, width: int = 40) -> str:
    return text if len(text) <= width else text[: width - 1].rpartition(",")[0] + ",…"
