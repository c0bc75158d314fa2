"""Stacks of many processes that a tool has merged into one tree, with how many or which ranks are in each
part of it.

Processes,Threads,Function                   Linaro Forge (DDT)
14,14,main (gather.c:110)
14,14,  PMPI_Wait (pwait.c:74)

[0-2,4] (4 processes)                        padb
main() at gather.c:110
  PMPI_Wait() at pwait.c:74

1 [label="main", ...]                        STAT's .dot files
1 -> 2 [label="14:[0-13]"]

melt{0..1,3}: #0  0x7f in PMPI_Barrier ()     gdb4hpc, of the ranks of a program

[2] /m/libmpi.so.12(MPI_Barrier+0x30a) [0x7f2]    glibc's, behind mpirun's prefix: MPICH prints its
[2] ./melt(main+0x91) [0x56a]                     own where nothing moves (MPIR_CVAR_DEBUG_PROGRESS_TIMEOUT)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..errors import UsageError
from ..model.capture import Frame, ThreadSample
from ..stacks.native_program import call_of
from ..text.late import late
from ..text.ranges import parse_ranks
from . import native_frames
from .bare_stacks import group_label
from .pyspy_frames import MAX_NAME
from .pyspy_text import TextProcess

_HEAD = late(
    r"^[ \t]{0,400}\"?Processes\"?[ ]{0,40}[,\t|][ ]{0,40}(?:\"?Threads\"?[ ]{0,40}[,\t|][ ]{0,40})?\"?Function\"?[ \t]{0,400}$",
    re.M,
)
_ROW = late(r"^[ \t]{0,400}(\d{1,7})\s?[,\t|]\s?(?:\d{1,9}\s?[,\t|])?\"?( *)(\S.{0,400}?)\"?$")
_PLACED = late(r"^(\S.*?)(?:\(\))? (?:\(|at )([^\s()]{1,300}):(\d{1,7}|\?)\)?$")
_PADB = late(r"^[ \t]{0,400}\[(\d[\d,-]{0,4000})\] \(\d{1,7} processes\)[ \t]{0,400}$", re.M)
_NODE = late(r"^[ \t]{0,400}(\d{1,9}) \[.{0,400}?\blabel=\"([^\"]{1,400})\"", re.M)
_EDGE = late(
    r"^[ \t]{0,400}(\d{1,9}) ?-> ?(\d{1,9}) \[.{0,400}?\blabel=\"(\d{1,7})(?::\[([\d, -]{1,4000})\])?",
    re.M,
)
_GLIBC = late(
    r"^\[(\d{1,7})\] (\S{1,400}?)\(([A-Za-z_]\w{0,200})?\+0x[0-9a-f]{1,12}\) ?\[0x[0-9a-f]{1,16}\][ \t]{0,400}$",
    re.M,
)
_OF_PROGRAM = late(r"^([\w.$-]{1,80})\{([\d., -]{1,4000})\}:? {1,8}(#\d{1,4} .{1,4000})")
# A function without its brackets, as it prints one
_BARE = late(r"^(#\d{1,4} +(?:0x[0-9a-f]{1,16} in )?[^\s(]{1,400}) (?=(?:at|from) \S)")
_PENDING = late(r"^\[\d{1,7}\] \[[\d.]{1,20}\] \d{1,9} pending requests in pool \d", re.M)
_MOST = 4096  # processes
_LONGEST = 800  # characters of a line
_DEEP = 200  # frames
_ALIKE = 3  # frames that a stack that was cut has as another


class _Part(Struct):
    """A place in the tree: the frames down to it, and who is in it or below."""

    frames: tuple[Frame, ...]  # outermost first
    number: int
    ranks: tuple[int, ...] = ()


def read(text: str) -> list[TextProcess]:
    """The processes, one for each rank that is named, or one for each group of them; [] of other texts."""
    if _HEAD.search(text) is not None:
        return list(_processes(_leaves(_of_table(text))))
    if _PADB.search(text) is not None:
        return list(_processes(_leaves(_of_padb(text))))
    if _EDGE.search(text) is not None:
        return list(_processes(_of_dot(text)))
    of_programs = list(_of_programs(text))
    return list(_processes(iter(of_programs or _of_glibc(text))))


def is_pending(text: str) -> bool:
    """Whether MPICH reports in it that a call does not get on."""
    return _PENDING.search(text) is not None


def _of_programs(text: str) -> Iterator[_Part]:
    """Each frame behind the ranks that are in it, innermost first. A text that was cut has not all
    frames of its last stack.
    """
    found: list[tuple[str, tuple[int, ...], list[Frame]]] = []
    for line in text.splitlines() if "{" in text else ():
        match = _OF_PROGRAM.match(line)
        frame = native_frames.read(_BARE.sub(r"\1 () ", match[3])) if match is not None else None
        if match is None or frame is None:
            continue
        who = f"{match[1]}{match[2]}"
        if not found or who != found[-1][0] or frame.number == 0:
            found.append((who, _numbers(match[2].replace("..", "-")), []))
        if len(found[-1][2]) < _DEEP:
            found[-1][2].append(frame.frame)
    if len(found) > 1:
        _complete(found[-1][2], [frames for _, _, frames in found[:-1]])
    for _, ranks, frames in found[:_MOST]:
        if ranks:
            yield _Part(tuple(reversed(frames)), len(ranks), ranks)


def _complete(cut: list[Frame], others: Sequence[list[Frame]]) -> None:
    """The outer frames of a stack whose shown ones another has, line by line, and all of them."""
    longer = [frames for frames in others if len(frames) > len(cut) and frames[: len(cut)] == cut]
    if len(cut) >= _ALIKE and longer:
        cut += longer[0][len(cut) :]


def _of_table(text: str) -> Iterator[_Part]:
    """A row each, set in by its depth."""
    head = _HEAD.search(text)
    path: list[tuple[int, Frame]] = []
    for line in text[head.end() if head is not None else 0 :].splitlines():
        match = _ROW.match(line.rstrip())
        if match is None:
            continue
        path = [(depth, frame) for depth, frame in path if depth < len(match[2])][:_DEEP]
        path.append((len(match[2]), _frame(match[3])))
        yield _Part(tuple(frame for _, frame in path), int(match[1]))


def _of_padb(text: str) -> Iterator[_Part]:
    """Below the ranks of a group their stack, set in by its depth."""
    ranks: tuple[int, ...] = ()
    path: list[tuple[int, Frame]] = []
    for line in text.splitlines():
        head = _PADB.match(line)
        if head is not None:
            ranks, path = _numbers(head[1]), []
        elif ranks and _PLACED.match(line.strip()[:_LONGEST]) is not None:
            depth = len(line) - len(line.lstrip())
            path = [(at, frame) for at, frame in path if at < depth][:_DEEP]
            path.append((depth, _frame(line.strip())))
            yield _Part(tuple(frame for _, frame in path), len(ranks), ranks)


def _of_dot(text: str) -> Iterator[_Part]:
    """The paths of a graph from its root, as far as the call of a library that each comes to."""
    names = {match[1]: match[2] for match in _NODE.finditer(text)}
    below: dict[str, list[tuple[str, int, tuple[int, ...]]]] = defaultdict(list)
    for match in _EDGE.finditer(text):
        below[match[1]].append((match[2], int(match[3]), _numbers(match[4] or "")))
    reached = {child for edges in below.values() for child, _, _ in edges}
    stack: list[tuple[str, tuple[Frame, ...], int, tuple[int, ...]]]
    stack = [(root, (), 0, ()) for root in below if root not in reached]
    while stack:
        node, frames, number, ranks = stack.pop()
        own = frames if number == 0 else (*frames, _frame(names.get(node, "??")))
        ended = own and call_of(own[-1]) is not None
        if not below.get(node) or ended or len(own) >= _DEEP:
            if own:
                yield _Part(own, number, ranks)
            continue
        stack += [(child, own, many, who) for child, many, who in below[node]]


def _of_glibc(text: str) -> Iterator[_Part]:
    """The last stack of each rank, innermost first; none where a rank's frames have no names."""
    found: dict[int, list[Frame]] = {}
    for match in _GLIBC.finditer(text):
        rank, name = int(match[1]), match[3] or "??"
        own = found.setdefault(rank, [])
        if name.endswith("backtrace_show"):
            own.clear()
        file = match[2][:MAX_NAME] if ".so" in match[2] else ""  # the program's own has no source
        if len(own) < _DEEP:
            own.append(Frame(name, file, 0))
    if len(found) > 1 or (found and is_pending(text)):
        for rank, frames in sorted(found.items()):
            yield _Part(tuple(reversed(frames)), 1, (rank,))


def _leaves(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Where processes are: at the call of a library, or where a path ends."""
    every = list(parts)
    nexts: list[_Part | None] = [*every[1:], None]
    for part, following in zip(every, nexts, strict=True):
        if any(call_of(frame) is not None for frame in part.frames[:-1]):
            continue
        goes_on = following is not None and following.frames[: len(part.frames)] == part.frames
        if call_of(part.frames[-1]) is not None or not goes_on:
            yield part


def _processes(parts: Iterator[_Part]) -> Iterator[TextProcess]:
    left = _MOST
    for part in parts:
        frames = list(reversed(part.frames))
        if part.ranks:
            for rank in part.ranks[:left]:
                yield _process(frames, rank=rank)
        else:
            yield _process(frames, many=part.number)
        left -= max(1, len(part.ranks))
        if left <= 0:
            return


def _process(frames: Sequence[Frame], rank: int = -1, many: int = 0) -> TextProcess:
    thread = ThreadSample(tid=0, name="MainThread", frames=list(frames))
    label = group_label(many) if many else ""
    return TextProcess(0, "", "", [thread], rank=rank, label=label, many=max(1, many))


def _frame(text: str) -> Frame:
    """``main (gather.c:110)``, ``main() at gather.c:110``, ``main@gather.c:110``, ``poll``."""
    match = _PLACED.match(text.strip())
    if match is not None:
        file = match[2][:MAX_NAME] if match[2] != "?" else ""
        line = int(match[3]) if match[3] != "?" else 0
        return Frame(match[1][:MAX_NAME], file, line)
    name, at, place = text.strip().partition("@")
    where, _, digits = place.rpartition(":")
    if at and digits.isdigit():
        return Frame(name[:MAX_NAME], where[:MAX_NAME], int(digits[:9]))
    return Frame(text.strip().removesuffix("()")[:MAX_NAME], "", 0)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(parse_ranks(text.replace(" ", "")))[:_MOST]
    except UsageError:
        return ()
