"""What differs between two moments, or between ranks that must hold the same: pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Line = Mapping[str, Any]
At = tuple[tuple[str, int], ...]  # (("pp", 1), ("dp", 0), ("tp", 0))
AXES = ("pp", "dp", "tp")
_TIED = "tied_modules."  # DeepSpeed's name for what the first and the last stage both hold


@dataclass
class Mismatch:
    """Tensors that differ at the same ranks: `at` are these, `of` all ranks that hold them; `axes`:
    those along which the job has more than one rank.
    """

    names: list[str]
    kinds: list[str]
    at: list[At]
    of: list[At]
    axes: list[str]
    why: str = ""  # where it is not that the values differ
    sizes: list[tuple[float | None, float | None]] = field(
        default_factory=list
    )  # norms there, here


def place_of(line: Line) -> At:
    """The coordinates of the rank that wrote the line."""
    return tuple((axis, int(line[axis])) for axis in AXES if axis in line)


def between(one: Iterable[Line], other: Iterable[Line]) -> list[Mismatch]:
    """What differs between two moments of the same layout; what only one of them has included."""
    first, second = _by_key(one), _by_key(other)
    holders: dict[str, set[At]] = {}
    for _, name, at, _ in (*first, *second):
        holders.setdefault(name, set()).add(at)
    found: dict[tuple[str, str, str], dict[At, tuple[Any, Any]]] = {}
    for key in sorted(first.keys() | second.keys()):
        kind, name, at, _ = key
        a, b = first.get(key), second.get(key)
        if a is None or b is None:
            why = f"only in {'A' if b is None else 'B'}"
        elif a["shape"] != b["shape"] or a["dtype"] != b["dtype"]:
            why = "shape or dtype"
        elif a["hash"] != b["hash"]:
            why = ""
        else:
            continue
        norms = ((a or {}).get("norm"), (b or {}).get("norm"))
        found.setdefault((name, kind, why), {})[at] = norms
    return _joined(found, holders)


def _by_key(lines: Iterable[Line]) -> dict[tuple[str, str, At, int], Line]:
    return {(x["kind"], x["name"], place_of(x), x.get("start", 0)): x for x in lines}


def replicas(lines: Iterable[Line]) -> list[Mismatch]:
    """What differs between ranks that must hold the same: weights over dp, what no group splits over
    tp, tied weights over pp; the optimizer's slices over tp where they begin in the same place.

    The ranks named are those that differ from the majority; all of them where there is none.
    """
    groups: dict[tuple[Any, ...], dict[At, Line]] = {}
    holders: dict[str, set[At]] = {}
    for line in lines:
        if line["kind"] == "random":
            continue
        at = place_of(line)
        holders.setdefault(line["name"], set()).add(at)
        groups.setdefault(_must_agree(line, dict(at)), {})[at] = line
    found: dict[tuple[str, str, str], dict[At, tuple[Any, Any]]] = {}
    for held in groups.values():
        usual, wrong = _minority(held)
        why = "" if usual else "no majority"
        for at in wrong:
            line = held[at]
            norms = (usual["norm"] if usual else None, line["norm"])
            found.setdefault((line["name"], line["kind"], why), {})[at] = norms
    return _joined(found, holders)


def _must_agree(line: Line, at: dict[str, int]) -> tuple[Any, ...]:
    key: tuple[Any, ...] = (line["kind"], line["name"], at.get("tp") if line["split"] else -1)
    if not line["name"].startswith(_TIED):
        key += (at.get("pp"),)
    if line["kind"] != "weight":
        key += (at.get("dp"), line.get("start", 0), tuple(line["shape"]))
    return key


def _minority(held: Mapping[At, Line]) -> tuple[Line | None, list[At]]:
    """(a line of the majority, ranks that differ from it); no line and all ranks without one."""
    counts = Counter(line["hash"] for line in held.values())
    (word, most), *rest = counts.most_common()
    if not rest:
        return next(iter(held.values())), []
    if rest[0][1] == most:
        return None, list(held)
    usual = next(line for line in held.values() if line["hash"] == word)
    return usual, [at for at, line in held.items() if line["hash"] != word]


def _joined(
    found: Mapping[tuple[str, str, str], Mapping[At, tuple[Any, Any]]],
    holders: Mapping[str, set[At]],
) -> list[Mismatch]:
    """Kinds of one name first, then names that differ at the same ranks."""
    axes = several(place for places in holders.values() for place in places)
    by_name: dict[tuple[str, str, tuple[At, ...]], Mismatch] = {}
    for (name, kind, why), places in found.items():
        at = tuple(sorted(places))
        one = by_name.setdefault(
            (name, why, at),
            Mismatch([name], [], list(at), sorted(holders[name]), axes, why=why),
        )
        one.kinds.append(kind)
        one.sizes.append(places[at[0]])
    together: dict[tuple[Any, ...], Mismatch] = {}
    for one in by_name.values():
        key = (tuple(one.kinds), tuple(one.at), tuple(one.of), one.why)
        if key in together:
            together[key].names += one.names
        else:
            together[key] = one
    return list(together.values())


# ---------------------------------------------------------------------- in words


def ranges(numbers: Sequence[int]) -> str:
    """3, 5, 6, 7 -> "3,5-7"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def several(places: Iterable[At]) -> list[str]:
    """The axes on which these ranks have more than one coordinate."""
    seen: dict[str, set[int]] = {}
    for place in places:
        for axis, number in place:
            seen.setdefault(axis, set()).add(number)
    return [axis for axis, numbers in seen.items() if len(numbers) > 1]


def where(at: Sequence[At], of: Sequence[At], axes: Sequence[str]) -> str:
    """Ranks as people name them: "pp 11, all tp"."""
    values = {axis: sorted({dict(place)[axis] for place in at}) for axis in axes}
    whole = {axis: sorted({dict(place)[axis] for place in of}) for axis in axes}
    if math.prod(len(numbers) for numbers in values.values()) != len(set(at)):
        # No product of axes: one by one.
        return "; ".join(where([place], of, axes) for place in sorted(at))
    words = []
    for axis in axes:
        if len(whole[axis]) > 1 and values[axis] == whole[axis]:
            words.append(f"all {axis}")
        else:
            words.append(f"{axis} {ranges(values[axis])}")
    return ", ".join(words) or "the only rank"


def sentence(mismatch: Mismatch) -> str:
    """One line on what differs."""
    names = ", ".join(mismatch.names[:6])
    more = len(mismatch.names) - 6
    if more > 0:
        names += f" and {more} more"
    line = (
        f"{where(mismatch.at, mismatch.of, mismatch.axes)}: {names} ({', '.join(mismatch.kinds)})"
    )
    if mismatch.why:
        return f"{line}: {mismatch.why}"
    before, after = mismatch.sizes[0]
    if len(mismatch.names) == 1 and before is not None and after is not None:
        line += f", norm {before:.6g} and {after:.6g}"
    return line
