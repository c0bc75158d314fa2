"""Which ranks wait for which, condensed: ranks at the same distance from a culprit and in the same
operations are one box.

Boxes stand in columns by that distance, culprits on the right; the drawing is plain SVG with its
places worked out here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from msgspec import Struct

from ...model.diagnosis import Diagnosis, Wait
from ...text.group_words import group_words
from ...text.plural import choose
from ...text.ranges import format_ranks
from .safe_text import cut, cut_list, plural

_FAR = 4  # steps from a culprit that have a column of their own; what is farther shares the last
_PER_COLUMN = 5
_WIDTH, _GAP_X, _GAP_Y, _LINE = 186, 48, 16, 17


class WaitBox(Struct):
    """Ranks that wait for the same reason, or that are waited for; places in pixels."""

    ranks: list[int]
    level: int
    cause: int  # -1 where it names no culprit
    lines: list[str]  # what they wait in
    whole: str = ""  # everything that the lines leave out
    x: int = 0
    y: int = 0
    height: int = 0
    inward: bool = False  # its ranks wait for one another


class Edge(Struct):
    """An arrow between two boxes, an SVG path, with what is said of it."""

    path: str
    says: str
    waiters: int


class Graph(Struct):
    """The drawing of who waits for which ranks; sizes in pixels."""

    boxes: list[WaitBox]
    edges: list[Edge]
    width: int
    height: int
    box_width: int = _WIDTH


_Key = tuple[object, ...]


def build(diagnosis: Diagnosis) -> Graph | None:
    """The drawing, None if no rank waits for another."""
    waits = [w for w in diagnosis.waits if w.ranks]
    if not waits:
        return None
    key_of = _keys(diagnosis, waits)
    _merge_small(key_of)
    boxes = _boxes(diagnosis, key_of, waits)
    links = _telling(_links(waits, key_of), boxes)
    for source, target in links:
        boxes[source].inward |= source == target
    _place(boxes, links)
    every = list(boxes.values())
    width = max(b.x for b in every) + _WIDTH
    if any(b.inward for b in every):
        width += _GAP_X // 2
    edges = [_edge(boxes[s], boxes[t], n) for (s, t), n in links.items() if s != t]
    return Graph(every, edges, width, max(b.y + b.height for b in every))


def _keys(diagnosis: Diagnosis, waits: list[Wait]) -> dict[int, _Key]:
    """The box of each rank: by its level, the first cause that blames it, and what it waits in."""
    blamed: dict[int, int] = {}
    for number, cause in enumerate(diagnosis.causes):
        for rank in cause.ranks:
            blamed.setdefault(rank, number)
    reasons: dict[int, set[tuple[str, str]]] = {}
    for wait in waits:
        for rank in wait.ranks:
            reasons.setdefault(rank, set()).add((wait.on.op or "", wait.on.group or ""))
    level = _levels(waits, blamed)
    key_of: dict[int, _Key] = {}
    for rank in {*level, *blamed}:
        why = tuple(sorted(reasons.get(rank, ())))
        key_of[rank] = (level.get(rank, 0), blamed.get(rank, -1), why)
    return key_of


def _levels(waits: list[Wait], blamed: Iterable[int]) -> dict[int, int]:
    """Steps from each rank to the nearest one that is to blame, or that waits for no one."""
    waiting = {r for w in waits for r in w.ranks}
    targets = {r for w in waits for r in w.for_}
    roots = sorted({*blamed} & (waiting | targets) or targets - waiting)
    by_target: dict[int, list[int]] = {}
    for i, wait in enumerate(waits):
        for rank in wait.for_:
            by_target.setdefault(rank, []).append(i)
    level = dict.fromkeys(roots, 0)
    seen: set[int] = set()
    queue = deque(roots)
    while queue:
        rank = queue.popleft()
        for i in by_target.get(rank, ()):
            if i in seen:
                continue
            seen.add(i)
            for waiter in waits[i].ranks:
                if waiter not in level:
                    level[waiter] = min(level[rank] + 1, _FAR)
                    queue.append(waiter)
    for rank in waiting | targets:  # in a ring without a culprit, or for someone unknown
        level.setdefault(rank, 0 if not roots else 1)
    return level


def _merge_small(key_of: dict[int, _Key]) -> None:
    """At most a handful of boxes in a column: the smallest ones share one."""
    sizes = Counter(key_of.values())
    columns: dict[object, list[_Key]] = {}
    for key, _ in sizes.most_common():
        columns.setdefault(key[0], []).append(key)
    small = {
        key
        for keys in columns.values()
        if len(keys) > _PER_COLUMN
        for key in keys[_PER_COLUMN - 1 :]
    }
    for rank, key in key_of.items():
        if key in small:
            key_of[rank] = (key[0], -2, ())


def _instances(
    key_of: dict[int, _Key], waits: list[Wait]
) -> dict[_Key, dict[tuple[str, str], set[object]]]:
    """What the ranks of each box wait in: (operation, group) -> its numbers."""
    instances: dict[_Key, dict[tuple[str, str], set[object]]] = {}
    for i, wait in enumerate(waits):
        what = wait.on.op or "", wait.on.group or ""
        number = wait.on.seq if wait.on.seq is not None else ("", i)
        for key in {key_of[r] for r in wait.ranks}:
            instances.setdefault(key, {}).setdefault(what, set()).add(number)
    return instances


def _boxes(diagnosis: Diagnosis, key_of: dict[int, _Key], waits: list[Wait]) -> dict[_Key, WaitBox]:
    members: dict[_Key, list[int]] = {}
    for rank, key in sorted(key_of.items()):
        members.setdefault(key, []).append(rank)
    instances = _instances(key_of, waits)
    boxes = {}
    for key, ranks in members.items():
        cause = key[1] if isinstance(key[1], int) else -1
        lines: list[str] = []
        for (op, group), seqs in sorted(instances.get(key, {}).items()):
            lines += _reason(op, group, seqs)
        if cause >= 0:
            lines.insert(0, diagnosis.causes[cause].kind)
        elif not lines:
            lines = ["waited for"]
        shown = lines if len(lines) <= 4 else [*lines[:3], "and other operations"]
        label = f"{choose(ranks, 'rank', 'ranks')} {format_ranks(ranks)}"
        level = key[0] if isinstance(key[0], int) else 0
        boxes[key] = WaitBox(
            ranks,
            level,
            max(cause, -1),
            [cut(s, 24) for s in shown],
            whole="\n".join([label, *lines]),
        )
        boxes[key].height = 14 + _LINE * (1 + len(shown))
    return boxes


def _reason(op: str, group: str, seqs: set[object]) -> list[str]:
    """What they wait in, and on a line of its own in which kind of group."""
    number = _number(seqs)
    lines = [cut(op or "an operation", 23 - len(number)) + number]
    named = group_words("" if group == "sub" else group)
    if named and op not in ("send", "recv"):
        lines.append(named)
    return lines


def _number(seqs: set[object]) -> str:
    """`` #12`` of one operation, how many there are of several."""
    if len(seqs) > 1:
        return f" ({len(seqs)} of them)"
    numbers = [seq for seq in seqs if isinstance(seq, int)]
    return f" #{numbers[0]}" if numbers else ""


def _links(waits: list[Wait], key_of: dict[int, _Key]) -> dict[tuple[_Key, _Key], int]:
    links: Counter[tuple[_Key, _Key]] = Counter()
    for wait in waits:
        sources = Counter(key_of[r] for r in wait.ranks)
        for target in {key_of[r] for r in wait.for_}:
            for source, n in sources.items():
                links[(source, target)] += n
    return dict(links)


def _telling(
    links: dict[tuple[_Key, _Key], int], boxes: dict[_Key, WaitBox]
) -> dict[tuple[_Key, _Key], int]:
    """The waits that lead towards a culprit; of boxes that have none of these, and in a ring at the
    end, all.
    """
    onward = {s for s, t in links if boxes[t].level < boxes[s].level}
    return {
        (s, t): n
        for (s, t), n in links.items()
        if boxes[t].level < boxes[s].level or s not in onward
    }


def _place(boxes: dict[_Key, WaitBox], links: dict[tuple[_Key, _Key], int]) -> None:
    """Columns from the farthest waiters on the left to the culprits on the right, each in the order
    of what it points at.
    """
    levels = sorted({b.level for b in boxes.values()})
    tall = max(
        sum(b.height + _GAP_Y for b in boxes.values() if b.level == level) - _GAP_Y
        for level in levels
    )
    for column, level in enumerate(levels):
        here = [(key, box) for key, box in boxes.items() if box.level == level]

        def pull(item: tuple[_Key, WaitBox]) -> tuple[float, int]:
            aims = [
                boxes[t].y + boxes[t].height / 2
                for s, t in links
                if s == item[0] and boxes[t].level < item[1].level
            ]
            return (sum(aims) / len(aims) if aims else 1e9, item[1].ranks[0])

        here.sort(key=pull)
        y = (tall - sum(b.height + _GAP_Y for _, b in here) + _GAP_Y) // 2
        for _, box in here:
            box.x, box.y = (len(levels) - 1 - column) * (_WIDTH + _GAP_X), y
            y += box.height + _GAP_Y


def _edge(source: WaitBox, target: WaitBox, waiters: int) -> Edge:
    y1, y2 = source.y + source.height // 2, target.y + target.height // 2
    if source.level > target.level:
        x1, x2 = source.x + _WIDTH, target.x - 7
        bend = max(28, (x2 - x1) // 2)
        path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    else:  # backwards, or within a column: around its left side
        x1, x2 = source.x, target.x - 7
        path = f"M{x1} {y1}C{x1 - 56} {y1} {x2 - 52} {y2} {x2} {y2}"
    says = f"{plural(len(source.ranks), 'rank')} {cut_list(format_ranks(source.ranks), 40)} wait for {cut_list(format_ranks(target.ranks), 40)}"
    return Edge(path, says, waiters)
