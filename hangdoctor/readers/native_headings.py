"""What stands above a native stack that a person pasted: which thread, process or rank it is of.

People write headings of their own, and paste the commands and the answers of their debugger with the
stacks. A number is a rank's only where the text says rank or task.
"""

from __future__ import annotations

import re
import signal

from msgspec import Struct

from ..text.late import late
from ..text.ranges import MAX_RANKS, number_in

_THREAD = late(
    r"^Thread ([0-9]{1,9}) \((?:.{0,64}\b(?:LWP|process) )?([0-9]{1,18})\b[^\"]{0,8}(?:\"(.{0,64})\")?"
)
_SWITCHED = late(r"^\[Switching to thread ([0-9]{1,9}) \(.{0,64}\b(?:LWP|process) ([0-9]{1,18})\b")
_LLDB_THREAD = late(
    r"^\s*(?:\* )?thread #([0-9]{1,9})(?:[:,]|$)(?:.*\btid = (0x[0-9a-f]{1,16}|[0-9]{1,18}))?"
)
_EU_THREAD = late(r"^TID ([0-9]{1,18})(?: .{0,64})?:$")
# Of Open MPI: mpirun --timeout N --get-stack-traces. The second number is the rank.
_OF_MPIRUN = late(
    r"^STACK TRACE FOR PROC \[\[[0-9]{1,9},[0-9]{1,9}\],([0-9]{1,7})\] \(([^,)]{1,200}), PID ([0-9]{1,18})\)"
)
_ATTACHED = (
    late(r"^Attaching to (?:program: .{0,400}, )?process ([0-9]{1,18})$"),
    late(r"^Process ([0-9]{1,18}) stopped$"),
    late(r"^PID ([0-9]{1,18}) - process"),
    late(r"\bgdb\b.{0,200}?\s(?:-p|--?pid)[ =]*([0-9]{1,18})\b"),
    late(r"(?:^|[\s$#])(?:pstack|gstack) ([0-9]{1,18})\s*$"),
    late(r"\beu-stack\b.{0,80}?\s-p *([0-9]{1,18})\b"),
    late(r"\((?:gdb|lldb)\) (?:process )?attach (?:--pid |-p )?([0-9]{1,18})\s*$"),
    late(r"^[\W_]*pid\s*[:=#]?\s*([0-9]{1,18})\W*$", re.I),
)
_LEFT = (
    late(r"^\[Inferior [0-9]{1,9} \(process ([0-9]{1,18})\) detached\]$"),
    late(r"^Detaching from program: .{0,400}, process ([0-9]{1,18})$"),
    late(r"^Process ([0-9]{1,18}) detached$"),
)
# Of a shell, with the host: `[ada@n3 ~]$ `; lists of mail write "_at_"
_PROMPT = late(
    r"^\[?[\w.-]{1,64}(?:@|_at_)([A-Za-z][\w.-]{0,100}?)(?:[ :][^#$%>]{0,200})?\]?[#$%>] "
)
_CRASH = late(
    r"^(?:Program terminated with|Program received|Thread .{1,80} received) signal (?:(SIG(?:SEGV|ABRT|BUS|FPE|ILL))\b|(4|6|7|8|11), )"
)  # older gdb prints the number
_GOES_ON = late(r"^(?:\((?:gdb|lldb)\) )?(?:c|cont|continue|process continue)$|^Continuing\.$")
_ABOUT = r"(?:mpi|global|world|stacks?|stack-?trace|back-?trace|trace|bt|gdb|pstack|output|of|for|from|on|the)"
_RANKS = late(
    rf"^[\W_]*(?:{_ABOUT}[\W_]+)*(?:ranks?|tasks?)[\s_#:=-]*"
    r"([0-9]{1,7}(?:\s*[-,]\s*[0-9]{1,7}){0,64})(?![0-9.]*[0-9])(.{0,80})$",
    re.I,
)
_MANY = late(
    r"^[\W_]*([0-9]{1,5})(?: (?:of|out of) [0-9]{1,5})?(?: more| other)? "
    r"(?:process(?:es)?|procs?|ranks?|tasks?|workers?)(?:(?: \w{1,12}){0,4} ?:|(?: (?:is|are|wait|stand)(?: in| at| here)?)?)[\W_]*$",
    re.I,
)
# What may follow the number of a rank in a heading; prose that begins with a rank does not end so.
_ENDS = late(r"^[\W_]*$|^\s*[(\[,:]|.*:\s*$|^[\w-]*\.\w{2,6}\b")
_PROCESS = late(r"^[\W_]*proc(?:ess)?[\s_#]*([0-9]{1,18})[\W_]*$", re.I)
_PID = late(r"\bpid[\s:=#]*([0-9]{1,18})\b", re.I)
_LAUNCHER = r"(?:mpirun|mpiexec(?:\.\w+)?|orterun|prterun|srun|aprun|jsrun|orted|prted|hydra_\w+)"
_STARTED = late(rf"\b{_LAUNCHER}\b.{{0,300}}?\s(?:-np?|--ntasks|--np)[= ]*([0-9]{{1,7}})\b")
_LISTED = late(rf"^\s*\S{{0,64}}\s*([0-9]{{1,18}})\s.{{0,200}}?[\s/]{_LAUNCHER}(?:\s|$)")
_LONGEST = 500  # characters of a heading, a command, or a line of ps


class Heading(Struct, frozen=True):
    """A line that begins something: a thread of the same process, or another process."""

    thread: int = 0  # the debugger's number of it; 0: a process begins
    tid: int = 0
    name: str = ""
    ranks: tuple[int, ...] = ()
    pid: int = 0
    node: str = ""
    number: int = -1  # of a process, in its heading: "Process 1"
    left: bool = False  # the debugger leaves the process whose stacks were just printed
    signal: int = 0  # that ended the process whose stack follows
    goes_on: bool = False  # it was let run, so that its next stacks are a later sample


def read(line: str) -> Heading | None:
    """What a line that is no frame begins; None where it begins nothing."""
    text = line.strip()
    if not text or len(text) > _LONGEST:
        return None
    return _thread(text) or _process(text)


def _thread(text: str) -> Heading | None:
    for pattern in (_THREAD, _SWITCHED):
        if (match := pattern.match(text)) is not None:
            name = match[3] if pattern is _THREAD else ""
            return Heading(thread=int(match[1]), tid=int(match[2]), name=name or "")
    if (match := _LLDB_THREAD.match(text)) is not None:
        return Heading(thread=int(match[1]), tid=int(match[2] or "0", 0))
    if (match := _EU_THREAD.match(text)) is not None:
        return Heading(thread=int(match[1]), tid=int(match[1]))
    return None


def _process(text: str) -> Heading | None:
    if (match := _OF_MPIRUN.match(text)) is not None:
        return Heading(ranks=(int(match[1]),), node=match[2], pid=int(match[3]))
    for left, patterns in ((False, _ATTACHED), (True, _LEFT)):
        found = next((m for p in patterns if (m := p.search(text)) is not None), None)
        if found is not None:
            prompt = _PROMPT.match(text)
            node = prompt[1] if prompt is not None else ""
            return Heading(pid=int(found[1]), left=left, node=node)
    crash = _CRASH.search(text)
    if crash is not None:
        number = int(crash[2]) if crash[2] else int(getattr(signal, crash[1]))
        return Heading(signal=number)
    if _GOES_ON.match(text):
        return Heading(goes_on=True)
    ranks = _ranks(text)
    pid = _PID.search(text)
    if ranks:
        return Heading(ranks=ranks, pid=int(pid[1]) if pid is not None else 0)
    match = _PROCESS.match(text)
    return Heading(number=int(match[1])) if match is not None else None


def ranks_of(text: str) -> tuple[int, ...]:
    """The ranks that a heading names: of several, all have the stack below it."""
    return _ranks(text)


def many_of(text: str) -> int:
    """How many processes a heading says have the stack below it, without their ranks; 0 of others."""
    match = _MANY.match(text)
    return int(match[1]) if match is not None else 0


def _ranks(text: str) -> tuple[int, ...]:
    """The ranks that a heading names: of several, all have the stack below it."""
    match = _RANKS.match(text)
    if match is None or not _ENDS.match(match[2]):
        return ()
    found: list[int] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        low = number_in(first.strip())
        high = number_in(last.strip()) if last.strip() else low
        if not 0 <= low <= high < MAX_RANKS or high - low > 4096:
            return ()
        found += range(low, high + 1)
    return tuple(found)


def world_size(text: str) -> int:
    """How many ranks the launcher was to start, where its command line is in the text; 0 else."""
    sizes = {int(size) for size in _STARTED.findall(text)}
    [size] = sizes if len(sizes) == 1 else {0}
    return size if size <= MAX_RANKS else 0


def launchers(text: str) -> set[int]:
    """Processes that a list of `ps` in the text shows to be launchers."""
    lines = [line for line in text.splitlines() if len(line) <= _LONGEST]
    return {int(m[1]) for line in lines if (m := _LISTED.match(line)) is not None}
