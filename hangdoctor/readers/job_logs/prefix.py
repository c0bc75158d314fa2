"""What launchers and loggers put before a line: stripped again and again, the first rank wins.

    12: [default3]:[rank11]:[E709 17:05:38.162 ProcessGroupNCCL.cpp:632] [PG 0 Rank 3] text
    srun  torchrun  torch   stamp                                          group

`12: ` and `host: ` look like many other things: they are taken where most lines of a file have
them (`Habits`).
"""

from __future__ import annotations

import re
from pathlib import PurePath

import msgspec
from msgspec import Struct

from ...text.late import late
from . import workers
from .file_names import NamedFile, of_name
from .habits import ANSI, GREP, HOST, LOGGER, PIPED, Found, Habits, is_host
from .stamps import Clock

_RANK = late(r"\s*\[(?:rank|RANK|Rank)(?:_| {0,8})(\d{1,7})\[?\]:\s?")
# Several ranks that say the same, as a person sums them up
_RANKS = late(r"\s*\[[Rr](?:ank|ANK)s?[ _=]?(\d{1,7}(?: ?[/,] ?\d{1,7}){1,64})\]:?\s?")
_SPOKEN = late(r"\s*\[rank(?:[ _=]|: )?(\d{1,7})\]:?\s?")
# A notebook's: seconds, and mostly the number of the line
_TABBED = late(r"\d{1,9}(?:\.\d{1,9})?s(?:\t\d{1,12}\t|\s{1,4}(?=\[))")
_MPI = late(
    r"\s*\[(?:\d+,)?(?:mpirank:)?(\d{1,7})(?:,[\w.-]{1,80})?\](?:\[[^\]]{1,80}\])?<std(?:err|out)>: ?"
)
_LOCAL = late(r"\s*\[(?!cli_\d)([A-Za-z][A-Za-z_-]{0,40})(\d{1,5})\]:\s?")
_WORKER = late(
    r"\s*\((\w+(?: \w+)?)(?:\([^()]{1,60}\))?[^()]{0,80}?\bpid=(\d{1,9})(?:, ip=([\w.:-]{1,64}))?[^()]{0,40}\)\s?"
)
_PROCESS = late(r"\s*\(pid=(\d{1,9})(?:, ip=([\w.:-]{1,64}))?\)\s?")  # older Ray's
_NAMED_BY_RANK = late(r"[Rr]ank[ _-]?(\d{1,7})$")  # "Rank5": an actor's name
_PLAIN_RANK = late(r"\s?(?:global[ _-]?)?[Rr]ank[ _-]?(\d{1,7}): (?=\S| )")
_WORKER_RANK = late(r"\brank=(\d{1,7})")
_POD = late(r"\s*\[pod/([^/\]]{1,128})/[^\]]{1,128}\]\s?")
_STREAM = late(r"([A-Za-z][\w.-]{0,127}) \[std(?:err|out)\] ")
# Of a parent that repeats what its child prints
_PIPE = late(r"(?:<std(?:err|out|diag)>|stdout|stderr): ?")
_TORN_RANK = late(r"rank(\d{1,7})\]:(?=\[[EWF]\d{0,4})")  # the paste begins behind its bracket
_NCCL = late(r"\s*([A-Za-z0-9][\w.-]{0,127}):(\d{1,9}):\d{1,9} (?:\[(-?\d{1,4})\] )?")
_TAG = late(r"\s*\[[EWIF] [\w./-]{1,120}:\d{1,6}\]\s*")
_GROUP = late(r"\s*\[PG (?P<group>[^\[\]]{0,200}?) ?Rank (?P<rank>\d{1,7})\]:?\s*")
_GROUP_RANK = late(r"\s*\[Rank (\d{1,7})\]:?\s*")
_SOURCE = late(r"\s*(?:(\d{1,9}) )?[\w./-]{1,120}\.(?:cpp|hpp|cc|py):\d{1,6}\]\s*")
_ZONE = late(r"^(?:Z| ?[+-]\d\d:?\d\d(?=[\] ,:]|$))?\]?[ ,:]*")
_QUOTED = late(r"(?:> ?)+")  # as mail and forums put it before what another one has written
_LINK = late(r"\[([^\[\]\s]{1,200})\]\(https?://[^()\s]{1,300}\)")
_GUID = late(r"^(?:ID \d+ PG GUID )?(\S+?)\s*(?:\(([^)]*)\))?$")
# Where a second record begins in one line: two ranks wrote at once, or a progress bar has no end.
_RECORD = late(
    r"(?=\[rank\d{1,7}\[?\]:)|(?<!\]:)(?<!\]: )(?=\[[EWF](?:\d{3,4} [\d:.]{8,20})? ?ProcessGroup)"
)
# A screen's, whose line ends are gone: each record is filled up with blanks, and the next one is dated alike
_DATE = r"\[?20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
_BEGINS_DATED = late(rf"\s{{0,4}}{_DATE}")
_FILLED = late(rf"(?<!\s)\s{{4,}}(?={_DATE})")
_ELASTIC = late(r"(?<=\S)(?=(?:ERROR|WARNING):torch\.distributed\.elastic)")
_ONE_PREFIX = late(
    r"\s+|[A-Za-z][\w.-]{0,100}\d[\w.-]{0,20}: |\[[^\[\]]{0,160}\]:?|\([^()]{0,160}\)|\d[\d:.,T_-]{0,40}s?"
)
_LEVELLED = late(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) \[?[\w./-]{1,120}:\d{1,6}\] ?"
)
_DATED = late(  # Horovod's, and Open MPI's with --timestamp-output
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d(?=(?:\[(?:\d{1,7},)?\d{1,7}\])?<std(?:err|out|diag)>)"
)
_MINUTE = late(r"\s?20\d\d-\d\d-\d\d \d\d:\d\d (?=\S)")  # whose clock need not be the ranks' own
_THREAD = late(r"[: ]{0,2}rank(\d{1,7})\[\d{1,9}\]\[\w{1,60}\]: ?")  # MosaicML's
_EACH_TAG = late(r"\[\d{1,7},\d{1,7}\]<stderr>:")
_TAGGED = 1  # in one line
_LONG = 400  # characters: no prefixes are longer
Speaker = tuple[int, int, int, str, int, str]


class Said(Struct):
    """Who says a line, when, and what is left of it."""

    text: str = ""
    at: float = 0.0
    rank: int = -1
    also: tuple[int, ...] = ()  # further ranks that say the same
    local: int = -1
    task: int = -1
    node: str = ""
    pid: int = 0
    agent: int = 0  # the process of the launcher that wrote the line
    group: str = ""
    group_rank: int = -1
    piped: bool = False
    worker: str = ""  # its name, where it is not named by rank: "DP0 TP3"
    level: str = ""  # of the logger that wrote the line
    marked: bool = False  # the file's own prefix has been taken
    by_torch: bool = (
        False  # with ``[rank3]: `` before it, as torch prints what a rank did not catch
    )

    def speaker(self) -> Speaker:
        """What tells the streams in one file apart."""
        return self.rank, self.local, self.task, self.node, self.pid, self.worker

    def own_rank(self) -> int:
        """Its rank, also by its number in a group that is the whole job's; -1 unknown."""
        whole = not self.group or self.group.startswith("0")
        return self.group_rank if self.rank < 0 and whole else self.rank


def records(line: str) -> list[str]:
    """The pieces of a line in which several were written."""
    if "\x1b" in line:
        line = ANSI.sub("", line)
    if line.count("<stderr>:") > _TAGGED:
        line = _once_tagged(line)
    if "](http" in line:  # a forum has made a link of an address or a file's name
        line = _LINK.sub(r"\1", line)
    if "    " in line and _BEGINS_DATED.match(line) is not None:
        screen = _FILLED.split(line)
        return [record for row in screen for record in _of_row(row)]
    return _of_row(line)


def _once_tagged(line: str) -> str:
    """Without mpirun's tag where it was put before each word of a line, as it comes out of a pipe
    without a buffer.
    """
    tags = {match[0] for match in _EACH_TAG.finditer(line)}
    if len(tags) != 1:
        return line
    [tag] = tags
    before, _, rest = line.partition(tag)
    return before + tag + rest.replace(tag, "")


def _of_row(line: str) -> list[str]:
    if "[" not in line and "ERROR:torch" not in line:
        return [line]
    whole: list[str] = []
    held = ""
    for piece in (part for record in _RECORD.split(line) for part in _ELASTIC.split(record)):
        held += piece
        if len(held) > _LONG or (held.strip() and not _only_prefixes(held)):
            whole.append(held)
            held = ""
    return whole or [line]


def _only_prefixes(text: str) -> bool:
    """Whether nothing follows the prefixes; one after the other, so that no text costs more."""
    at = 0
    while at < len(text):
        match = _ONE_PREFIX.match(text, at)
        if match is None:
            return False
        at = match.end()
    return True


def strip(line: str, of_file: Said, usual: Habits, clock: Clock) -> Said:
    """The line without its prefixes; what they do not tell is what the file's name tells."""
    if usual.quoted and (mark := _QUOTED.match(line)) is not None:
        line = line[mark.end() :]
    said = msgspec.structs.replace(of_file, text=line)
    for _ in range(12):
        before = said.text
        _strip_one(said, usual, clock)
        if said.text == before and not _strip_words(said, usual, clock):
            break
    return said


def _strip_words(said: Said, usual: Habits, clock: Clock) -> bool:
    """A rank in words, where the file has it and nothing else says it; a logger's prefix."""
    found = usual.last(said.text) if usual.last is not None and said.rank < 0 else None
    if found is not None:
        said.at = said.at or clock.read(said.text.lstrip(" ["))[0]
        _take_found(said, found)
        return True
    match = LOGGER.match(said.text) if usual.logger and not said.level else None
    if match is None:
        return False
    said.level, said.text = match[1], said.text[match.end() :]
    return True


def _take_found(said: Said, found: Found) -> None:
    said.rank = found.rank if said.rank < 0 else said.rank
    said.local = found.local if said.local < 0 else said.local
    said.node = said.node or found.node
    said.text = said.text[found.end :]
    said.marked = True


def _strip_one(said: Said, usual: Habits, clock: Clock) -> None:
    text = said.text
    if usual.first is not None and not said.marked and (found := usual.first(text)) is not None:
        _take_found(said, found)
        return
    if usual.pipes and not said.piped and (match := PIPED.match(text)) is not None:
        said.piped = True
        said.node = match[1] if usual.services and not said.node else said.node
        said.text = text[match.end() :]
        return
    head = text.lstrip()[:1]
    if "s" in text[:24] and (match := _TABBED.match(text)) is not None:
        said.text = text[match.end() :]
        return
    if head == "[":
        if _strip_bracket(said, text):
            return
    elif head == "(":
        match = _WORKER.match(text)
        if match is not None:
            _take_worker(said, match)
            return
        match = _PROCESS.match(text)
        if match is not None:
            said.pid, said.node = int(match[1]), match[2] or said.node
            said.text = text[match.end() :]
            return
    at, length = clock.read(text.lstrip(" [")) if head in "[0123456789EWIFJASOND" else (0.0, 0)
    if length:
        said.at = said.at or at
        rest = text.lstrip(" [")[length:]
        said.text = _ZONE.sub("", rest, count=1)
        _take_place(said, rest)
        source = _SOURCE.match(said.text)
        if source is not None:
            said.agent = int(source[1]) if source[1] else said.agent
            said.text = said.text[source.end() :]
        return
    _strip_plain(said, usual, text, clock)


def _strip_bracket(said: Said, text: str) -> bool:
    for pattern, take in _BRACKETS:
        match = pattern.match(text)
        if match is not None:
            take(said, match)
            said.text = text[match.end() :]
            return True
    place, length = workers.tagged(text)
    if place:
        said.worker, said.text = place, text[length:]
    return bool(place)


def _take_rank(said: Said, match: re.Match[str]) -> None:
    said.rank = said.rank if said.rank >= 0 else int(match[1])


def _take_torchs(said: Said, match: re.Match[str]) -> None:
    _take_rank(said, match)
    said.by_torch = True


def _take_ranks(said: Said, match: re.Match[str]) -> None:
    if said.rank < 0:
        said.rank, *others = map(int, re.findall(r"\d+", match[1]))
        said.also = tuple(others)


def _take_local(said: Said, match: re.Match[str]) -> None:
    said.local = int(match[2])


def _take_pod(said: Said, match: re.Match[str]) -> None:
    said.node = said.node or match[1]


def _take_group(said: Said, match: re.Match[str]) -> None:
    said.group = group_name(match["group"])
    said.group_rank = int(match["rank"])


def _take_group_rank(said: Said, match: re.Match[str]) -> None:
    said.group_rank = int(match[1])


def _take_nothing(said: Said, match: re.Match[str]) -> None:
    """A tag that tells nothing of the speaker."""


_BRACKETS = (
    (_TAG, _take_nothing),
    (_RANK, _take_torchs),
    (_RANKS, _take_ranks),
    (_SPOKEN, _take_rank),
    (_MPI, _take_rank),
    (_LOCAL, _take_local),
    (_POD, _take_pod),
    (_GROUP, _take_group),
    (_GROUP_RANK, _take_group_rank),
)


def _take_worker(said: Said, match: re.Match[str]) -> None:
    said.pid = int(match[2])
    said.node = match[3] or said.node
    rank = _WORKER_RANK.search(match[0])
    if rank is not None:
        said.rank = said.rank if said.rank >= 0 else int(rank[1])
    named = _NAMED_BY_RANK.match(match[1])
    if named is not None:
        said.rank = said.rank if said.rank >= 0 else int(named[1])
    elif not match[1].startswith("EngineCore"):
        said.worker = said.worker or workers.places(match[0])
    said.text = said.text[match.end() :]


def _take_place(said: Said, rest: str) -> None:
    """SGLang's place of a worker behind the stamp, MosaicML's rank."""
    place, length = workers.behind_stamp(rest)
    if place:
        said.worker, said.text = place, rest[length:]
    elif (match := _THREAD.match(rest)) is not None:
        said.rank = said.rank if said.rank >= 0 else int(match[1])
        said.text = rest[match.end() :]


def _take_file(said: Said, named: NamedFile) -> None:
    """The file that grep found the line in."""
    said.rank = named.rank if said.rank < 0 else said.rank
    said.local = named.local if said.local < 0 else said.local
    said.node = said.node or named.node


def _task(said: Said, usual: Habits, text: str) -> re.Match[str] | None:
    """The number before a line, a task's or a test's, where it was not taken yet."""
    taken = said.marked if usual.tested else said.task >= 0
    return None if taken else usual.of_task(text)


def _strip_plain(said: Said, usual: Habits, text: str, clock: Clock) -> None:
    if usual.grep and (match := GREP.match(text)) is not None:
        _take_file(said, of_name(PurePath(match["file"])))
        said.text = text[match.end() :]
    elif (match := _task(said, usual, text)) is not None:
        said.marked |= usual.tested
        said.task = -1 if usual.tested else int(match[1])
        said.text = text[match.end() :]
    elif (match := _LEVELLED.match(text)) is not None:
        said.level = match[1]
        said.at = said.at or clock.read(f"{clock.year}-{match[2]}")[0]
        said.text = text[match.end() :]
    elif said.rank < 0 and (match := _TORN_RANK.match(text)) is not None:
        _take_rank(said, match)
        said.text = text[match.end() :]
    elif (match := _DATED.match(text)) is not None:
        _, month, day, hour, year = match[0].split()
        said.at = said.at or clock.read(f"{year}-{month}-{int(day):02} {hour}")[0]
        said.text = text[match.end() :]
    elif (match := _MINUTE.match(text) or _PIPE.match(text)) is not None:
        said.text = text[match.end() :]
    elif (match := _NCCL.match(text)) is not None:
        said.node, said.pid = said.node or match[1], int(match[2])
        if match[3] and said.local < 0:
            said.local = int(match[3])
        said.text = text[match.end() :]
    elif usual.hosts and (match := _PLAIN_RANK.match(text)) is not None:
        said.rank = said.rank if said.rank >= 0 else int(match[1])
        said.text = text[match.end() :]
    elif (match := _STREAM.match(text)) is not None or (
        usual.hosts
        and not said.node
        and (match := HOST.match(text)) is not None
        and is_host(match[1])
        and _NAMED_BY_RANK.match(match[1]) is None
    ):
        said.node = match[1]
        said.text = text[match.end() :]


def group_name(text: str) -> str:
    """``ID 1 PG GUID 3(mesh_tp)`` -> ``3(mesh_tp)``; ``0 (default_pg)`` -> ``0(default_pg)``."""
    match = _GUID.match(text.strip())
    if match is None:
        return text.strip()
    return f"{match[1]}({match[2]})" if match[2] else match[1]
