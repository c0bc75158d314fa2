"""The failures that a log tells in words which no rule knows: of each speaker the one line that says
most of why, as a person finds it who does not know the program.

Lines of one speaker that follow one another are one block: its cause is the innermost line of an error
stack, or the first line that says what failed. A speaker that goes on with other lines has survived.
"""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct, structs

from ...model.log_facts import UnreadFailure
from ...text.late import late
from . import unread
from .failure_words import NUMBERS, Words, is_clean_end, is_end, is_frame, judged
from .named_in_line import Named, named
from .numbered_lines import numbered
from .on_one_node import PLACE
from .prefix import Said, Speaker

_MOST = 64  # speakers of one file
_BLOCK = 24  # lines of a block that are kept
_APART = 8  # ordinary lines between two blocks
_WENT_ON = 40  # ordinary lines of a speaker after which it is said to have gone on
_CAUSED = late(r"(?:[^:]{1,40}: ?)?\W{0,20}(?:caused by|reason|cause)\b", re.I)
_OF_STACK = late(r"\s{0,10}[A-Za-z_]\w{2,80}\(\d{1,7}\)\s?[.:]{1,80}\s{0,8}")  # MPICH's
_SIGNS = late(r"#[#:]{0,80}")
_BOX = late(r"\s{0,8}(?:-{20,}|={20,}|\*{20,})\s{0,8}$")
# Of progress, without an end of its line
_BAR = late(r"^.{0,250}?\d{1,12}/\d{1,12} \[[^\]]{0,80}\]")
_GLUED = late(r"[-=*]{10,400}$")  # a frame, behind a line without an end of its own
_CLUSTER = 3  # lines between two that belong together
_IN_BOX = 4  # lines of a framed message that say what happened; the rest is advice
_LIKENESSES = 4
_ERROR_NAME = late(
    r"\b[A-Z]{2,12}_(?:ERROR|ERR|STATUS)_[A-Z_]{3,60}\b|\b(?:[A-Z]{2,20}_){2,6}(?:ERROR|FAILURE)\b|\b(?:cuda|hip)Error[A-Z]\w{2,60}"
)
Who = tuple[int, int, int, int, str, str]
_NOBODY: Who = (-1, -1, 0, -1, "", "")
_NCCL_GOES_ON = late(r"NCCL INFO (?!.{0,120}(?: -> \d|[Aa]bort|[Dd]estroy|[Cc]losed|failed|error))")
# Rows of HDF5's stack, whose heading is known
_OF_HDF5 = late(r"\s{2,8}(?:#\d{3}: \S{1,300} line \d{1,7} in |major: |minor: )")
_ASSERTED = late(r"\b[Aa]ssert(?:ion)?\b.{0,200}?\bfail(?:ed|ure)\b")
_HOST_KEY = late(
    r"^\s{1,8}(?:Local host|Host(?:name)?|Node):\s{1,16}([A-Za-z][\w.-]{0,120})\s{0,8}$"
)
_REASON_KEY = late(r"^\s{1,8}(?:Error|Reason):\s{1,16}(\S.{1,100})$")
_PLACE = late(rf"{PLACE}\s{{1,12}}(?=\S)")
_ON = 2  # steps of the job after a failure, before it is said to have gone on


class _Line(Struct):
    number: int
    says: str
    text: str  # without its prefixes
    words: Words
    who: Named
    at: float
    inherited: bool
    attempt: int


class _Speaker(Struct):
    said: Said
    lines: list[_Line]
    after: int = 0  # ordinary lines since the last of them
    clean: bool = False  # it came to its end after it
    stack: bool = False  # the block has an error stack
    steps: int = 0  # further steps of the job since it
    times: dict[str, int] = {}  # its lines by their likeness, also those that are not kept


class UnreadFailures:
    """Of one file."""

    def __init__(self) -> None:
        self._of: dict[Who, _Speaker] = {}
        self._said_by: dict[Speaker, list[_Speaker]] = {}  # the same, by what their prefixes tell
        self._heads: dict[int, tuple[_Speaker, _Line]] = {}  # of tracebacks, by their first line
        self._weak: tuple[_Speaker, _Line] | None = None
        self._last: _Speaker | None = None
        self._boxed = -1  # lines of a framed message that were read; -1 outside of one

    def feed(self, said: Said, text: str, line: int, at: float, attempt: int) -> bool:
        """Take a line that no rule knows; whether it speaks of a failure."""
        if self._in_advice(said.text) or _OF_HDF5.match(said.text) is not None:
            return False
        words = judged(said.text, said.level or text)
        inner = self._inner(said.text)
        of_known = inner is None and _OF_STACK.match(said.text) is not None
        weak = words is None and inner is None
        if of_known or (weak and not _ERROR_NAME.search(said.text)):
            self._ordinary(said)
            return False
        who = _completed(named(said.text), said)
        heard = _Line(
            number=line,
            says=unread.kept(text),
            text=unread.kept(said.text),
            words=words or Words(2, False, False),
            who=who,
            at=said.at or at,
            inherited=said.at <= 0,
            attempt=attempt,
        )
        if weak:  # a warning, say: no failure, unless a cut traceback stands right below
            self._weak = (_Speaker(said, []), heard)
            self._ordinary(said)
            return False
        if inner is not None:
            if len(inner.lines) < _BLOCK:
                inner.lines.append(heard)
            return True
        speaker = self._of.get(_key(who, said))
        if speaker is None:
            if len(self._of) >= _MOST:
                return True
            speaker = self._of[_key(who, said)] = _Speaker(said, [])
            self._said_by.setdefault(said.speaker(), []).append(speaker)
        _add(speaker, heard, said.text)
        self._last = speaker
        return True

    def _inner(self, text: str) -> _Speaker | None:
        """Whose error stack this line goes on in, where it says something."""
        if self._last is None or not self._last.stack:
            return None
        match = _OF_STACK.match(text)
        if match is None:
            self._last = self._last if "error stack" in text else None
            return None
        return self._last if text[match.end() :].strip() else None

    def _in_advice(self, text: str) -> bool:
        """Whether it belongs to the advice of a message that is framed by lines."""
        if _BOX.match(text) is not None:
            self._boxed = -1 if self._boxed >= 0 else 0
            return True
        if self._boxed < 0:
            return False
        self._boxed += 1
        if self._last is not None:
            for line in self._last.lines[-_IN_BOX:]:
                _add_key(line, text)
        if not text.strip() and self._boxed > 1:
            self._boxed = _IN_BOX
        if self._boxed > _MOST:
            self._boxed = -1
        return self._boxed > _IN_BOX

    def known(self) -> None:
        """A line that a rule knows: no other block goes on behind it."""
        self._last = None

    def went_on(self) -> None:
        """The job made progress: plain words before it have not ended it, nor has what names no process, and
        the others count for its other ranks may go on for a while.
        """
        if not self._of:
            return
        for speaker in self._of.values():
            speaker.steps += 1
        self._keep({key: s for key, s in self._of.items() if _outlasts(key, s)})

    def traceback(self, line: int, pid: int) -> None:
        """A traceback of process `pid` begins in this line: the line before is its head, and no failure of its
        own, where no other process says it.
        """
        speaker = self._last
        if self._weak is not None and self._weak[1].number == line - 1:
            self._heads[line] = self._weak
        if speaker is None or speaker.lines[-1].number < line - 1:
            return
        if speaker.said.pid not in (0, pid):
            return
        self._heads[line] = (speaker, speaker.lines.pop())
        self._last = None
        self._keep({key: s for key, s in self._of.items() if s.lines})

    def cut(self, line: int) -> None:
        """The traceback that begins in this line lacks its last one: its head then says the most."""
        speaker, head = self._heads.get(line, (None, None))
        if speaker is None or head is None or not _says_why(head):
            return
        speaker.lines.append(head)
        self._of.setdefault(_key(head.who, speaker.said), speaker)

    def _keep(self, speakers: dict[Who, _Speaker]) -> None:
        """Go on with these."""
        if len(speakers) == len(self._of):
            return
        self._of, self._said_by = speakers, {}
        for speaker in speakers.values():
            self._said_by.setdefault(speaker.said.speaker(), []).append(speaker)

    def _ordinary(self, said: Said) -> None:
        text = said.text
        if not self._of or not text.strip():
            return
        if _OF_STACK.match(text) is not None or is_frame(text):
            return
        if text[:1].isspace() or not any(c.isalpha() for c in text[:80]):
            return
        for speaker in self._said_by.get(said.speaker(), ()):
            speaker.after += 1
            if _NCCL_GOES_ON.match(text) is not None and "NCCL WARN " in speaker.lines[-1].text:
                speaker.after = _WENT_ON + 1  # of a call that failed it prints the way out
        if is_clean_end(text):
            for speaker in self._of.values():
                speaker.clean = True

    def found(self) -> list[UnreadFailure]:
        """One failure a speaker, in the order of their lines."""
        facts = []
        for speaker in self._of.values():
            if _stands(speaker):
                facts += numbered(_fact(speaker), [line.text for line in speaker.lines])
        return sorted(facts, key=lambda fact: fact.line)


def _outlasts(key: Who, speaker: _Speaker) -> bool:
    """Whether its failure may have ended the job, with so many steps of others after it."""
    return _strength(speaker) > 2 and key != _NOBODY and speaker.steps < _ON


def _key(who: Named, said: Said) -> Who:
    return (who.rank, who.task, who.pid, said.local, who.node, who.worker or said.worker)


def _completed(who: Named, said: Said) -> Named:
    """With what the prefix tells, which is worth more."""
    rank = said.own_rank()
    return structs.replace(
        who,
        rank=rank if rank >= 0 else who.rank,
        task=said.task if said.task >= 0 else who.task,
        pid=said.pid or who.pid,
        node=said.node or who.node,
    )


def _add(speaker: _Speaker, heard: _Line, text: str) -> None:
    if speaker.lines and speaker.after > _APART:
        if _strength(speaker) > heard.words.strength:
            return
        speaker.lines, speaker.stack, speaker.clean, speaker.steps = [], False, False, 0
        speaker.times = {}
    like = _likeness(heard)
    if like in speaker.times or len(speaker.times) < _BLOCK:
        speaker.times[like] = speaker.times.get(like, 0) + 1
    if len(speaker.lines) < _BLOCK:
        speaker.lines.append(heard)
        speaker.stack |= "error stack" in text
    speaker.after = 0


def _strength(speaker: _Speaker) -> int:
    return max(line.words.strength for line in speaker.lines)


def _stands(speaker: _Speaker) -> bool:
    """Whether nothing shows that it went on, or ended well."""
    strength = _strength(speaker)
    if speaker.clean or strength < 2:
        return False
    return strength > 2 or speaker.after <= _WENT_ON


def _fact(speaker: _Speaker) -> UnreadFailure:
    best = _cause(speaker)
    first, said = speaker.lines[0], speaker.said
    who = first.who
    fact = UnreadFailure(
        line=best.number,
        at=first.at,
        inherited=first.inherited,
        rank=who.rank,
        local=said.local,
        task=who.task,
        node=who.node,
        pid=who.pid,
        worker=said.worker or who.worker,
        attempt=best.attempt,
        says=best.says,
        strength=_strength(speaker),
        general=_is_vague(best),
        between=best.words.between,
        launcher=who.launcher,
        device=said.local if said.pid and who.device < 0 else who.device,
        peer=next((line.who.peer for line in speaker.lines if line.who.peer), ""),
        text=_bare(best),
        likeness=list(dict.fromkeys(_likeness(line) for line in speaker.lines))[:_LIKENESSES],
        after=speaker.after,
        began=first.number,
        end=is_end(best.text),
        times=speaker.times.get(_likeness(best), 1),
    )
    return fact


def _add_key(line: _Line, text: str) -> None:
    """What a framed message tells by keys, of the line that says what happened: its host, and the reason."""
    host, reason = _HOST_KEY.match(text), _REASON_KEY.match(text)
    if host is not None and not line.who.node:
        line.who.node = host[1]
    if reason is not None and reason[1] not in line.text:
        line.text = f"{line.text.rstrip(' .:')}: {reason[1].strip()}"


def _bare(line: _Line) -> str:
    """Its words, without a bar before it and a frame behind it, and without process and node, which it told."""
    text = _GLUED.sub("", _BAR.sub("", line.text)).strip()
    return _PLACE.sub("", text) if line.who.pid and line.who.node else text


def _cause(speaker: _Speaker) -> _Line:
    """The line that says most of why."""
    lines = [line for line in speaker.lines if not is_end(line.text)] or speaker.lines
    caused = [line for line in lines if _CAUSED.match(line.text)]
    if caused:
        return caused[-1]
    inner = [line for line in lines[1:] if _OF_STACK.match(line.text)]
    if inner and speaker.stack:
        return inner[-1]
    specific = [line for line in lines if not _is_vague(line)]
    chosen = specific or lines
    own = [line for line in chosen if not line.words.between] or chosen
    named = [line for line in own if _says_why(line)]
    asserted = [line for line in own if _ASSERTED.search(line.text) is not None]
    if asserted and asserted[0].number - own[0].number > _CLUSTER and not named:
        # An assertion is the end itself; what was said well before it may have been survived.
        return asserted[0]
    if named:
        return named[0]  # an error by its name, whatever list follows
    if _strength(speaker) > 2 and any(line.words.strength > 2 for line in own):
        return own[0]
    return _of_last_cluster(own)


def _of_last_cluster(lines: list[_Line]) -> _Line:
    """The first of those that were said together last: plain words of a failure may be survived."""
    begin = lines[0]
    for before, line in pairwise(lines):
        if line.number - before.number > _CLUSTER:
            begin = line
    return begin


def _is_vague(line: _Line) -> bool:
    """Whether it does not say what failed, or only by the way."""
    return line.words.general or line.words.strength < 2


def _says_why(line: _Line) -> bool:
    """Whether it has the name of an error, as libraries of C have them: no head of a traceback has."""
    return _ERROR_NAME.search(line.text) is not None and not line.words.general


def _likeness(line: _Line) -> str:
    """Its words without numbers and names that have some, which are the same of all that fail alike."""
    return _SIGNS.sub("#", NUMBERS.sub("#", line.text))[:120]
