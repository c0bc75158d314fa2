"""Prefixes that a file has on most of its lines, learned from its first ones.

    > text                        a mail, or a post that quotes another one
    r3: text   [3/16] text   [3] text   3| text   [GPU3] text     a program's own, or a launcher's
    2026-07-09 17:05:08 | INFO | train:main:9 - [rank3] text      a logger's, with the rank in words
    llama-worker-2 pytorch text   [llama-worker-2] text           stern, Kubeflow: the pod
    x1c0.example 12: text   [n4:12] text                          PALS, mpiexec: the host and the rank

Each of them looks like something else in another file: a step, a line's number, the text itself. So
they are taken where most lines have them, and numbers where they come again and again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from ...text.late import late

ANSI = late(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9])")
TASK = late(r"\s{0,8}(\d{1,6}):(?: |\s{0,4}$)")  # longer numbers are those of jobs and processes
# The same without a blank behind it, as poe and some mpiexec print it; no clock
TIGHT = late(r"\s{0,8}(\d{1,6}):(?!\d\d:|\d{1,9}:\s|/)")
# A row of Horovod's list, of a rank and the operations that it lacks, which is no task's line
_LISTED = late(
    r"\s{0,8}\d{1,7}: \[[\w./:-]{1,200}(?:, [\w./:-]{1,200}){0,400}(?:,? ?\.\.\.)?\]\s*$"
)
HOST = late(r"([A-Za-z][\w.-]{0,127}|(?:\d{1,3}\.){3}\d{1,3}): ")
# `trainer-1  | `: docker compose; `t=114.6 | stderr | `: a notebook's
PIPED = late(r"([\w.=:@/-]{1,60}) {0,40}\|{1,2} ?(?:std(?:err|out) ?\| ?)?")
# `INFO - train - `, `INFO: train: `, `INFO     | __main__:main:41 - `: Python's loggers, behind a stamp
LOGGER = late(
    r"[\s|:-]{0,4}(?:\[[\w.-]{1,40}\] )?(?:[\w.]{1,60} - )?(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{0,9}[:|-] ?"
    r"(?:[\w.:<>]{1,120} ?[:-] )?"
)

# As grep prints it before a line that it found in one of several files
GREP = late(
    r"(?P<file>(?:\.?/)?(?:[\w.@+-]{1,100}/){0,20}(?:[\w.@+-]{1,100}\.(?:txt|log|out|err)(?:\.\d{1,4})?|rsl\.(?:error|out)\.\d{4,7}))"
    r":(?:\d{1,9}:)?(?=\S)"
)
_WORD = r"(?<![A-Za-z_])(?<![Ll]ocal )(?:[Gg]lobal[ _]?|mpi)?[Rr](?:ank|ANK)[ _=:#]{0,2}(\d{1,7})(?![\d.])"
_IN_BRACKET = late(r"[\[(<{][^\[\](){}<>]{0,60}?" + _WORD + r"[^\[\](){}<>]{0,60}[\])>}]")
# Not before another line's time, where two were written into one
_BARE = late(_WORD + r"(?=[\s:|\],-])(?!:\d\d:\d\d\b)")
_BEHIND = late(r"(?: ?\|\|?| ?[:-])? ?")
_LETTER = late(r"\s?(?:\[r(\d{1,5})\]:?|\(r(\d{1,5})\):?|r(\d{1,5})(?::| ?\|)) ?", re.I)
_FRACTION = late(r"\s?\[(\d{1,5})/(\d{1,5})\]:? ?")
_NUMBER = late(r"\s?\[(\d{1,5})\]:? ?")
_NAMED_NUMBER = late(r"\s?<[A-Za-z][\w-]{0,20}[:#](\d{1,5})>:? ?")  # <train:2> text
_NUMBER_PIPED = late(r"(\d{1,5}) ?\| ?")
_GPU = late(r"\s?(?:\[GPU[ :_]?(\d{1,3})\]:?|GPU[ _]?(\d{1,3}):) ?")
_POD_NAME = late(r"\s?\[([a-z][a-z0-9.-]{1,90}\d)\] ")
# mpiexec -l of PALS: the host, and the rank on it or in the job
_HOST_AND_RANK = late(r"(?=[\w.-]{0,100}\d)([A-Za-z][\w.-]{2,120}) (\d{1,7}): ")
# mpiexec's, with the host and the rank: a number of a process is never 0
_HOST_RANK = late(r"\s?\[([A-Za-z][\w.-]{0,120}):(\d{1,5})\] ?")
_STERN = late(r"([a-z0-9][a-z0-9.]{0,60}-[a-z0-9.-]{1,60}) ([a-z][a-z0-9-]{0,40}) ")

# A stamp before the rank: `2026-07-09 17:05:08,381 [2] train:15 INFO text`,
# `1795760084.32 r2 it=7 loss 0.3`
_STAMP = late(
    r"\s?\[?(?:20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|1\d{9}\.\d{1,9})\]?:? {1,2}"
)
_LETTER_BLANK = late(r"[rR](\d{1,5}) (?=\S)")
_OF_EXCEPTION = late(r"[\w.]{0,80}(?:Error|Exception|Warning)\b")
_OF_TEST = late(
    r"\s{0,8}\d{1,6}: (?:=+ [\w ,.()]{1,120} =+\s*$|Test (?:command|timeout computed to be): "
    r"|_+ \w[\w.:\[\] -]{0,200} _+\s*$)"
)
_EACH = 4  # lines of each task
_SAMPLE = 200  # lines that show a file's habits
_LONG = 160  # characters: a prefix of words is no longer
_TOKENS = 10  # words before the rank
_DENSE = 4  # ranks of a file lie closer than this to one another, on average
_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "root"})
_ERRORS = ("Error", "Exception", "Warning", "Exit", "Interrupt")
_OF_STACK = ("  ", "Traceback (most")  # lines that no logger begins
_OF_GROUPS = ("ProcessGroup", "PG ")  # their "Rank 3" is the number in a group


class Found(Struct, frozen=True):
    """What a learned prefix tells, and where it ends."""

    end: int
    rank: int = -1
    local: int = -1
    node: str = ""
    world: int = 0


Mark = Callable[[str], Found | None]


class Habits(Struct):
    """Prefixes that a file has on most of its lines."""

    tasks: bool = False
    tested: bool = False  # the number before each line is that of a test, as ctest prints it
    tight: bool = False  # the number of a task is before the text, without a blank
    hosts: bool = False
    pipes: bool = False
    services: bool = False  # what stands before the pipe tells containers apart
    quoted: bool = False
    grep: bool = False  # the file that grep found the line in
    logger: bool = False  # a logger's prefix also stands before the frames of a stack
    first: Mark | None = None  # taken before all others
    last: Mark | None = None  # a rank in words, behind what else is known
    world: int = 0  # that the prefix tells

    def of_task(self, text: str) -> re.Match[str] | None:
        """The number of a task before a line, where the file has it there."""
        if self.tasks:
            return TASK.match(text)
        return TIGHT.match(text) if self.tight else None


def habits(sample: Iterable[str]) -> Habits:
    """What the first lines of a file begin with."""
    lines = _lines(sample)
    seen = len(lines)
    quoted = 2 * sum(line.startswith(("> ", ">\n")) or line == ">" for line in lines) > seen
    if quoted:
        lines = [line.removeprefix(">").removeprefix(" ") for line in lines]
    of_stacks = sum(line.startswith(_OF_STACK) for line in lines)
    hosts = Counter(m[1] for m in map(HOST.match, lines) if m is not None)
    pipes = Counter(m[1] for m in map(PIPED.match, lines) if m is not None)
    named = [name for name in hosts if is_host(name)]
    services = [name for name in pipes if name[0].isalpha() and "=" not in name]
    first, world = _first_mark(lines, _MARKS)
    if first is None:
        first, world = _first_mark(_without_stacks(lines), _BEHIND_STAMPS)
    worded = sum(in_words(line) is not None for line in lines)
    tasks = first is None and 2 * sum(map(_is_tasks, lines)) > seen
    return Habits(
        tasks=tasks,
        tested=tasks and _is_one_test(lines),
        tight=first is None and not tasks and _is_tight(lines),
        hosts=first is None and 2 * sum(hosts[name] for name in named) > seen,
        pipes=2 * pipes.total() > seen,
        services=len(services) > 1,
        quoted=quoted,
        grep=2 * sum(GREP.match(line) is not None for line in lines) > seen,
        logger=_is_on_frames(lines),
        first=first,
        last=in_words if 2 * worded > seen - of_stacks else None,
        world=world,
    )


def _is_one_test(lines: Sequence[str]) -> bool:
    """Whether ctest put one test's number before each line: what runs in it has ranks of its own."""
    numbers = {match[1] for match in map(TASK.match, lines) if match is not None}
    return len(numbers) == 1 and any(_OF_TEST.match(line) is not None for line in lines)


def _is_tasks(line: str) -> bool:
    return TASK.match(line) is not None and _LISTED.match(line) is None


def _is_tight(lines: Sequence[str]) -> bool:
    """Whether nearly all lines begin with one of few numbers: those of lines and of steps are many."""
    found = [match[1] for match in map(TIGHT.match, lines) if match is not None]
    few = _EACH * len(set(found)) <= len(found)
    return few and 10 * len(found) >= 9 * len(lines) > 0


def is_host(name: str) -> bool:
    """Whether a name before a colon may be that of a host, and not of an error."""
    numbered = any(c.isdigit() for c in name) or "." in name
    return numbered and not name.endswith(_ERRORS)


def _lines(sample: Iterable[str]) -> list[str]:
    """The lines that are looked at, without colours."""
    lines: list[str] = []
    for line in sample:
        if line.strip():
            lines.append(ANSI.sub("", line).lstrip("\r"))
        if len(lines) >= _SAMPLE:
            break
    return lines


# ---------------------------------------------------------------------- a rank in words


def in_words(text: str) -> Found | None:
    """A rank that stands in words behind a stamp, a level and the like, and where the text begins."""
    for pattern in (_IN_BRACKET, _BARE):
        match = pattern.search(text, 0, _LONG)
        if match is None or any(word in text[: match.end()] for word in _OF_GROUPS):
            continue
        if _is_prefix(text[: match.start()]):
            behind = _BEHIND.match(text, match.end())
            return Found(behind.end() if behind is not None else match.end(), rank=int(match[1]))
    return None


def _is_prefix(before: str) -> bool:
    """Whether nothing but stamps, levels, names of modules and signs stands there."""
    words = before.split()
    if len(words) > _TOKENS or any(c in before for c in "\"'{}"):
        return False
    return all(_is_of_prefix(word) for word in words)


def _is_of_prefix(word: str) -> bool:
    bare = word.strip("[]():,|-<>")
    if not bare or bare in _LEVELS or any(c.isdigit() for c in bare):
        return True
    return any(c in bare for c in ".:_/") or word[0] == "[" or word[-1] == ":"


# ---------------------------------------------------------------------- numbers and pods


def _without_stacks(lines: Sequence[str]) -> list[str]:
    """The lines that a logger may have begun, behind their stamps: a traceback below one has no
    prefix.
    """
    own = [n for n in lines if not n.startswith(_OF_STACK) and _OF_EXCEPTION.match(n) is None]
    return [n[m.end() :] if (m := _STAMP.match(n)) is not None else n for n in own]


def _first_mark(lines: Sequence[str], marks: Sequence[Mark]) -> tuple[Mark | None, int]:
    """The prefix with a bare number or a pod's name that nearly all lines have, and the world size
    that it tells.
    """
    for mark in marks:
        found = [f for f in map(mark, lines) if f is not None]
        if not found or 5 * len(found) < 4 * len(lines):
            continue
        if mark is _of_host_and_rank:
            # Each process speaks more than once: a name and a number that count something change
            usual = 2 * len({(f.node, f.rank) for f in found}) <= len(found)
        elif mark is _of_bracketed_host:
            ranks = [Found(f.end, rank=f.rank) for f in found]
            usual = _are_ranks(ranks) and min(f.rank for f in found) == 0
        else:
            usual = mark is _of_letter or (bool(found[0].node) and _are_pods(found))
        if usual or _are_ranks(found):
            worlds = {f.world for f in found}
            if len(worlds) == 1:
                return mark, worlds.pop()
    return None, 0


def _are_ranks(found: Sequence[Found]) -> bool:
    """Whether numbers come again and again, as ranks do, and do not count up, as steps do."""
    numbers = [max(f.rank, f.local) for f in found if not f.node]
    several = set(numbers)
    if len(several) < 2 or len(numbers) < 2 * len(several):
        return False
    dense = max(several) - min(several) < _DENSE * len(several)
    back = sum(later < earlier for earlier, later in pairwise(numbers))
    within = all(f.world == 0 or f.rank < f.world for f in found)
    return dense and within and 2 * back >= len(several)


def _are_pods(found: Sequence[Found]) -> bool:
    """Whether few names come again and again, and each has a number or a hash."""
    names = {f.node for f in found}
    return 2 * len(names) <= len(found) and all(any(c.isdigit() for c in name) for name in names)


def _of_letter(text: str) -> Found | None:
    match = _LETTER.match(text)
    return Found(match.end(), rank=int(match[match.lastindex or 1])) if match else None


def _of_letter_blank(text: str) -> Found | None:
    match = _LETTER_BLANK.match(text)
    return Found(match.end(), rank=int(match[1])) if match else None


def _of_fraction(text: str) -> Found | None:
    match = _FRACTION.match(text)
    return Found(match.end(), rank=int(match[1]), world=int(match[2])) if match else None


def _of_number(text: str) -> Found | None:
    match = _NUMBER.match(text) or _NUMBER_PIPED.match(text) or _NAMED_NUMBER.match(text)
    return Found(match.end(), rank=int(match[1])) if match else None


def _of_gpu(text: str) -> Found | None:
    match = _GPU.match(text)
    return Found(match.end(), local=int(match[1] or match[2])) if match else None


def _of_pod(text: str) -> Found | None:
    match = _POD_NAME.match(text) or _STERN.match(text)
    return Found(match.end(), node=match[1]) if match else None


def _of_host_and_rank(text: str) -> Found | None:
    match = _HOST_AND_RANK.match(text)
    return Found(match.end(), rank=int(match[2]), node=match[1]) if match else None


def _of_bracketed_host(text: str) -> Found | None:
    match = _HOST_RANK.match(text)
    return Found(match.end(), rank=int(match[2]), node=match[1]) if match else None


_MARKS: tuple[Mark, ...] = (
    *(_of_letter, _of_fraction, _of_number, _of_gpu),
    *(_of_host_and_rank, _of_bracketed_host, _of_pod),
)
_BEHIND_STAMPS: tuple[Mark, ...] = (_of_letter, _of_fraction, _of_number, _of_letter_blank)


def _is_on_frames(lines: Sequence[str]) -> bool:
    """Whether a logger has put its prefix before each line of a traceback too."""
    frames = [line for line in lines if 'File "' in line and ", line " in line]
    behind = [line[: line.index('File "')] for line in frames]
    return bool(behind) and all(LOGGER.search(text) is not None for text in behind)
