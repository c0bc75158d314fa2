"""Of errors that all ranks raised in one place when a wait of their own was over: whose names another
thing than all others do, a key, a file or a group that nobody else waits for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ...model.log_facts import PythonError
from ...text.late import late
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_places import OtherWords
from ..findings.log_stories import FailedFirst
from .candidate import First
from .scene import Scene

_ENOUGH = 3  # ranks: two show no odd one
_GAVE_UP = late(r"\btime[d ]?[ -]?out|\bafter \d|\bwait(?:ed|ing)\b|\bgave up\b", re.IGNORECASE)
_WORD = late(r"[A-Za-z0-9_.-]{2,80}")
_LETTER = late(r"[A-Za-z]")


def told_apart(scene: Scene, found: First) -> First | None:
    """The rank whose error says another word than those of all others, which say the same; None where
    none does, or not every rank has said something.
    """
    finding = found.finding
    if not isinstance(finding.story, FailedFirst) or finding.kind != "error":
        return None
    raised = {f.rank: f for f in reversed(found.facts) if isinstance(f, PythonError)}
    if len(raised) < _ENOUGH or set(raised) != set(scene.everyone) or -1 in raised:
        return None
    if not all(_GAVE_UP.search(f"{f.error}: {f.message}") for f in raised.values()):
        return None
    words = {rank: _words(scene, fact) for rank, fact in raised.items()}
    odd = _odd_one(words)
    return None if odd is None else _first(scene, found, raised, *odd)


def _words(scene: Scene, fact: PythonError) -> list[str]:
    """Of a message, without what names its own rank or node."""
    own = {fact.node, *(f.node for f in scene.facts if f.node)}
    text = re.sub(rf"(?i)\brank[ :=]*{fact.rank}\b", "rank", fact.message)
    return ["" if word in own else word for word in _WORD.findall(text)]


def _odd_one(words: dict[int, list[str]]) -> tuple[int, str, str] | None:
    """(rank, its word, that of the others) where the messages are alike but for one rank's words."""
    if len({len(some) for some in words.values()}) != 1:
        return None
    apart: list[tuple[int, str, str]] = []
    for column in zip(*words.values(), strict=True):
        counts = Counter(column).most_common()
        if len(counts) != 2 or counts[1][1] > 1 or len(column) < _ENOUGH:
            continue
        odd = next(rank for rank, word in zip(words, column, strict=True) if word == counts[1][0])
        apart.append((odd, counts[1][0], counts[0][0]))
    named = [one for one in apart if _LETTER.search(one[1]) and _LETTER.search(one[2])]
    ranks = {rank for rank, _, _ in apart}
    # Rank 0 often has a part of its own in a wait by hand, under another name.
    return named[0] if named and len(ranks) == 1 and 0 not in ranks else None


def _first(
    scene: Scene, found: First, raised: dict[int, PythonError], rank: int, mine: str, theirs: str
) -> First:
    others: Sequence[int] = sorted(set(raised) - {rank})
    finding = Finding(
        kind="mismatch",
        ranks=[rank],
        story=OtherWords(mine, theirs, tuple(others)),
        confidence=sure(Ground.LOG_OTHER_WORDS),
        nodes=scene.nodes([rank]),
        frame=raised[rank].frame,
    )
    finding.where.frame = found.finding.where.frame
    return First(finding, [raised[rank], *(raised[r] for r in others)], True)
