"""What a program says around the line by which a rule knows that it ended itself: the sentence in its box.

Program:     gmx mdrun, version 2023        [4]PETSC ERROR: Argument out of range
MPI rank:    3 (out of 8)       <- the rule  [4]PETSC ERROR: Index 9 beyond 8

Fatal error:
Too many warnings               <- the sentence, up to an empty line

The rule's line has the rank; the sentence below it, of some programs above it, says why.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from ...model.log_facts import AnyFact, KnownError
from ...text.late import late
from .prefix import Said

MOST = 14  # lines below the rule's in which the sentence is looked for
_ABOVE = 10  # lines above it
_LONG = 300  # characters of a line
_WHY = 160  # characters of a sentence
_TAG = late(r"^\s{0,8}(?:\[(\d{1,7})\](?:PETSC ERROR:)? ?|\|(?= ))")
_FRAME = late(r"[\s*|]{1,40}$")
_RULER = late(r"^[\s*|]{0,20}(?:[-=*%_#+.~]{4,}[\s*|]{0,20})?$")
_WORDS = late(
    r"(?:\b[A-Za-z][a-z']{1,20}\b[ ,.:;]{0,3}){2,}|\b[a-z]{4,20}\b.{1,80}\b[a-z]{4,20}\b|^[a-z]{4,20}\b"
)


class _Form(Struct, frozen=True):
    """How a program prints its sentence."""

    begins: re.Pattern[str] | None = None  # the line after which it begins; None: at once
    takes: re.Pattern[str] | None = None  # what a line of it has, group 1; None: the line
    ends: re.Pattern[str] | None = None  # the line after it, beside an empty one
    lines: int = 3  # of the sentence
    above: bool = False  # it stands above the rule's line
    last: bool = False  # the last of all such lines says most
    most: int = MOST  # lines below the rule's
    joint: str = " "  # between its lines
    follows: re.Pattern[str] | None = None  # a sentence of who was asked to end
    within: bool = False  # rulers and empty lines stand before and between its lines


_PLACE = late(r"^\s*(?:From\b|in file\b|file: )")
_FORMS = {
    "gromacs": _Form(begins=late(r"^[A-Z][\w ,/()'-]{3,60}:\s*$"), lines=4),
    "espresso": _Form(),
    "espresso_task": _Form(lines=2),
    "openfoam": _Form(ends=_PLACE),
    "wrf": _Form(lines=1),
    "petsc_box": _Form(
        lines=2,
        joint=": ",
        ends=late(r"^\s*(?:See |Petsc |WARNING! |#\d|\w+\(\) line)"),
        follows=late(r"Signal received"),
    ),
    "hdf5": _Form(
        takes=late(r"^\s*#\d{3}: .{1,200}? in (\w{1,80}\(\): \S.{0,160})"), last=True, most=40
    ),
    "petsc": _Form(lines=1, ends=late(r"^\s*(?:See |Petsc |WARNING! |#\d)")),
    "vasp": _Form(lines=2, within=True),
    "vasp_refused": _Form(lines=3, above=True),
    "cp2k": _Form(
        takes=late(r"^\s*\*[ \\_/|O]{0,8}\s{1,80}(\S.{0,120})$"),
        ends=late(r"\S\.F:\d{1,6}[\s*]{0,80}$"),
        lines=5,
        within=True,
    ),
    "abinit": _Form(begins=late(r"^\s*message:"), ends=late(r"^\.\.\.\s*$")),
    "charm": _Form(takes=late(r"^\s*(?:Reason|Signal): ?(\S.{0,200})"), lines=1),
    "siesta": _Form(lines=1, above=True),
    "specfem": _Form(lines=1, above=True),
    "flash": _Form(takes=late(r"Error message is ?:? ?(\S.{0,200})"), lines=1, above=True),
    "pyxis": _Form(takes=late(r"pyxis:\s{2,12}(\S.{0,160})"), lines=1, above=True),
    "glex": _Form(takes=late(r"CQE:(status=\w.{0,120})"), lines=1),
    "launch_usage": _Form(
        takes=late(r"^\s*((?:Option|Param):\s{1,8}\S.{0,80})"), lines=2, joint=", "
    ),
    "mpi_no_transport": _Form(takes=late(r"^\s*(BTLs attempted: \S.{0,80})"), lines=1),
    "mpi_internal": _Form(
        takes=late(r"Assertion failed in file (?:\S{1,300}/)?(\S{1,100} at line \d.{1,200})"),
        lines=1,
        above=True,
    ),
    "nvhpc": _Form(takes=late(r"^\s*((?:function|line):\s{1,8}\S.{0,80})"), lines=2),
}


class ProgramBoxes:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._before: deque[str] = deque(maxlen=_ABOVE)
        self._error: KnownError | None = None
        self._form = _Form()
        self._tag = ""
        self._told: list[str] = []
        self._left = 0
        self._open = False

    def begin(self, fact: AnyFact, said: Said) -> bool:
        """An error and its line; whether its sentence may come next."""
        if not isinstance(fact, KnownError) or "why" in fact.values:
            return False
        form = _FORMS.get(fact.rule)
        if form is not None and fact.rule == "vasp" and "REFUSE" in said.text:
            form = _FORMS["vasp_refused"]
        if form is None:
            return False
        if form.above:
            before = list(self._before)[:-1]
            self._keep(fact, _last_taken(before, form) or _last_words(before, form.lines))
            return False
        if self._error is not None and self._tag == _tag_of(said):
            return False  # its line belongs to the sentence of the one above
        self._end()
        self._error, self._form, self._left = fact, form, form.most
        self._told, self._open = [], form.begins is None
        self._tag = _tag_of(said)
        return True

    def feed(self, said: Said) -> bool:
        """The next line of the file; whether it belongs to a sentence."""
        line = said.text[:_LONG]
        self._before.append(line)
        if self._error is None:
            return False
        told = len(self._told)
        self._left -= 1
        goes_on = self._left > 0 and self._take(line, _tag_of(said))
        took = len(self._told) > told
        if not goes_on:
            self._end()
        return took

    def _take(self, line: str, tag: str) -> bool:
        """Whether the sentence may go on behind this line."""
        form = self._form
        if tag != self._tag and tag.isdigit():
            return True  # another process prints between
        if not self._open:
            self._open = form.begins is not None and form.begins.match(line) is not None
            return True
        words = _bare(line)
        if form.takes is not None:
            match = form.takes.search(line)
            words = _FRAME.sub("", match[1]) if match is not None else ""
        if form.ends is not None and form.ends.search(_bare(line)) is not None:
            return False
        if not words or _RULER.match(words) is not None:
            return not self._told or form.within or form.takes is not None
        if form.last:
            self._told.clear()
        self._told.append(words)
        return len(self._told) < form.lines

    def _end(self) -> None:
        error, self._error = self._error, None
        if error is None:
            return
        self._keep(error, [self._form.joint.join(self._told)])
        follows = self._form.follows
        if follows is not None and follows.match(error.values.get("why", "")):
            error.role = "consequence"

    def rest(self) -> None:
        """At the end of the file."""
        self._end()

    def _keep(self, error: KnownError, told: Sequence[str]) -> None:
        why = " ".join(" ".join(told).split()).rstrip(" .!:")
        if why:
            error.values["why"] = why[:_WHY]


def _tag_of(said: Said) -> str:
    """Whose line it is, by the number before it; of a framed one its frame."""
    if said.rank >= 0:
        return str(said.rank)
    match = _TAG.match(said.text)
    return (match[1] or "|") if match is not None else ""


def _bare(line: str) -> str:
    """Without the tag, and the frame on both sides."""
    bare = _TAG.sub("", line, count=1)
    while bare.startswith("[") and (tag := _TAG.match(bare)) is not None:
        bare = bare[tag.end() :]  # two processes wrote at once
    return _FRAME.sub("", bare).strip()


def _last_taken(before: Sequence[str], form: _Form) -> list[str]:
    """What the last line that has it says in the program's own form."""
    if form.takes is None:
        return []
    found = [match[1] for line in before if (match := form.takes.search(line)) is not None]
    return found[-1:]


def _last_words(before: Sequence[str], most: int) -> list[str]:
    """The words next above, without rulers, empty lines and letters that are drawn."""
    told: list[str] = []
    for line in reversed(before):
        words = _bare(line)
        said = bool(words) and _WORDS.search(words) is not None
        if told and not said:
            break
        if said:
            told.insert(0, words)
        if len(told) >= most:
            break
    return told
