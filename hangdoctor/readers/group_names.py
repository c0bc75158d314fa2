"""Files whose names say that one stack stands for several processes: ``six_ranks.txt``, ``3-procs.txt``.

The name of such a file does not say which processes these are, so that none of them is called by a rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..text.late import late
from .bare_stacks import group_label
from .pyspy_text import TextProcess

_WORDS = "two three four five six seven eight nine ten eleven twelve".split()
_NUMBER = {word: number for number, word in enumerate(_WORDS, start=2)}
_MANY = r"(?:ranks|process(?:es)?|procs|workers|tasks|gpus)"
_COUNTED = late(
    rf"(?:^|[-_. ])(\d{{1,5}}|{'|'.join(_WORDS)})[-_. ]?(?:other[-_. ]|more[-_. ])?{_MANY}(?=[-_. ]|$)",
    re.I,
)
_OTHERS = late(rf"(?:^|[-_. ])(?:other|all|most|remaining)[-_. ]{_MANY}(?=[-_. ]|$)", re.I)


def name_groups(by_file: Mapping[Path, Sequence[TextProcess]]) -> None:
    """Give the one stack of each file that stands for several processes a name for them together."""
    for path, processes in by_file.items():
        if len(processes) != 1 or processes[0].rank >= 0 or processes[0].label:
            continue
        many = _many(path.stem)
        if many > 1:
            processes[0].label, processes[0].many = f"{group_label(many)} ({path.name})", many
            processes[0].node = ""  # which was made of the name of the file
        elif many and len(by_file) > 1:
            processes[0].label = f"the group of {path.name}"
            processes[0].node = ""


def _many(stem: str) -> int:
    """How many processes a name speaks of: 1 of several without their number, 0 of none."""
    match = _COUNTED.search(stem)
    if match is None:
        return 1 if _OTHERS.search(stem) is not None else 0
    word = match[1].lower()
    number = _NUMBER[word] if word in _NUMBER else int(word)
    return number if number > 1 else 0
