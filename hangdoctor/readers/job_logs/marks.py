"""What lines tell by the way: iterations, the size of the job, which rank runs where."""

from __future__ import annotations

import re

from ...model.log_facts import Progress
from .course import Way
from .prefix import Said

_LONG = 2000  # characters that are looked through
_BAR = re.compile(r"\|\s{0,4}(\d{1,12})/(\d{1,12}) \[")
# Megatron, DeepSpeed, torchtitan, Lightning, Hugging Face, and what people print themselves.
_PROGRESS = (
    re.compile(r"\biteration:?\s+(\d{1,12})\s?/\s*(\d{1,12})\b"),
    re.compile(
        r"\b(?:[Ss]teps?|[Ii]ter(?:ation)?s?|global[_ ]step|train_step)\s?[:=#]\s{0,8}(\d{1,12})(?:\s?/\s?(\d{1,12}))?\b"
    ),
    re.compile(
        r"\b(?:[Ss]tep|[Ii]ter(?:ation)?)\s{1,8}(\d{1,12})"
        r"(?:\s?/\s?(\d{1,12})|\s?[:|,]|(?=\s*$|\s{1,8}(?:loss|lr|grad|done|took|train)))"
    ),
    _BAR,
    re.compile(r"'epoch': (\d{1,6}(?:\.\d{1,6})?)"),
)
# Also "at step 17": a guard's words where nothing moves.
_NO_PROGRESS = re.compile(
    r"\b(?:no progress|not? mov|stall|stuck|hung\b|hang\b|exiting|abort|giving up)", re.I
)
_WORLD = re.compile(
    r"\b(?:dist_world_size|world[_ ]size|WORLD_SIZE|nranks|DP_SIZE_TOTAL)['\"]?\s?[:=]?\s{0,3}(\d{1,7})\b"
)
_OF = re.compile(r"\brank[_ ]?[=:]? ?(\d{1,7}),? ?(?:/|of|world_size=|nranks) ?(\d{1,7})\b", re.I)
_HOME = re.compile(r"\brank (\d{1,7}) nranks (\d{1,7})\b")
_SPAWNED = re.compile(r"process (\d{1,9}) spawned with command:.{0,4000}?--local[_-]rank=(\d{1,5})")
_INLINE = re.compile(r"\brank[= ](\d{1,7})\]")
_NODES = re.compile(r"nnodes=(\d{1,6}), num_local_procs=(\d{1,5}), node_rank=(\d{1,6})")


class Marks:
    """Collected over one file."""

    def __init__(self) -> None:
        self.world = 0
        self.homes: dict[int, tuple[str, int]] = {}  # rank -> (node, pid)
        self.local_of: dict[int, int] = {}  # pid -> local rank, of DeepSpeed's launcher
        self.rank_of: dict[tuple[str, int, int], int] = {}  # (node, local, task) -> rank
        self.agents: dict[int, list[int]] = {}  # torchelastic's process -> lines of its failures
        self.one_node = False

    def listen(self, said: Said) -> None:
        """Who says a line, where it tells the rank beside another number; also of a stack's line."""
        if said.rank >= 0 and (said.local >= 0 or said.task >= 0):
            self.rank_of[(said.node, said.local, said.task)] = said.rank

    def look(self, said: Said) -> None:
        """Take what a line tells by the way."""
        text = said.text
        if said.rank >= 0 and said.node:
            self.homes.setdefault(said.rank, (said.node, said.pid))
        if "orld" in text or "nranks" in text or "WORLD" in text:
            self._world(said, text)
        if "spawned with" in text and (match := _SPAWNED.search(text)) is not None:
            self.local_of[int(match[1])] = int(match[2])
        if "nnodes=" in text and (match := _NODES.search(text)) is not None:
            self.one_node = match[1] == "1"

    def _world(self, said: Said, text: str) -> None:
        found = [int(m[1]) for m in _WORLD.finditer(text)]
        self.world = max([self.world, *(n for n in found if n <= 1_000_000)])
        home = _HOME.search(text)
        if home is not None and said.node and int(home[2]) >= self.world:
            self.homes[int(home[1])] = (said.node, said.pid)


def progress(text: str) -> tuple[Way, Progress] | None:
    """The iteration that a line tells, if it does, and the way it is counted in."""
    if not any(c.isdigit() for c in text[:200]):
        return None
    for number, pattern in enumerate(_PROGRESS):
        # A bar that was drawn anew in one line stands where it was drawn last.
        match = _last(pattern, text[-_LONG:]) if pattern is _BAR else pattern.search(text[:_LONG])
        if match is not None:
            if _NO_PROGRESS.search(text[:_LONG]) is not None:
                return None
            total = int(match[2]) if match.lastindex == 2 else -1
            return (number, total), Progress(iteration=int(float(match[1])), total=total)
    return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def rank_in(text: str) -> int:
    """A rank that a logger put into its line, ``[INFO][rank=1]``; -1 for none."""
    match = _INLINE.search(text[:120])
    return int(match[1]) if match is not None else -1
