"""Text and JSON that people collected with `py-spy dump`: many processes a file, errors in between.

    srun --jobid=J --overlap --gres=gpu:0 --output=trace-%N.out \\
        sh -c '... xargs -I {} py-spy dump --pid {}' || echo failed

Which of the processes are ranks is said by `pyspy_ranks`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import json as msgjson

from ..errors import BadInput
from ..files import open_regular, read_regular
from ..model.capture import Frame, ThreadSample
from ..text.late import late
from ..text.plain import readable
from ..text.ranges import number_in, parse_ranks
from . import bare_stacks
from .bare_stacks import Heading, group_label, heading_of
from .host_groups import parts
from .pyspy_frames import MAX_NAME, parse_json

# Each of these is linear in the line: there are no two repetitions that can share what they match.
_PROCESS = late(r"^Process ([0-9]{1,18}): ?(.*)$")
_PARENT = late(r"^ *Parent Process ([0-9]{1,18}):")  # with --subprocesses
# A person may drop its number
_THREAD = late(
    r'^Thread (?:(0x[0-9A-Fa-f]{1,16}|[0-9]{1,18})(?:\.{2,3}|…)? )?\(([^)]*)\)(?::? "(.*)")?$'
)
_ERRORS = ("Error: ", "srun: error: ", "Reason: ", "Permission Denied")
# py-spy's own words where it reaches a process and cannot stop it, as in uninterruptible I/O.
UNREADABLE = ("Error: Failed to suspend process", "Error: Timed out", "Error: EPERM")
NO_OUTPUT = "Error: Timed out, or py-spy was ended: its file is empty"
_PID_LINE = late(
    r"^=+ (?:([A-Za-z][\w.-]{0,60}) )?PID ([0-9]{1,18}) =+(?:\s{1,40}\((.{1,160})\))?\s*$"
)
_WHOSE = late(r"\branks? {0,2}[:=]? ?(\d{1,7}(?:(?:, ?| ?- ?)\d{1,7}){0,500})(?![\d.])", re.I)
_REMARK = late(r"(?<=\))\s{1,40}(?:<-|#|//|←).{0,200}$")  # a person's own, behind a frame
# ray stack of older Ray: a line of ps, then py-spy's threads
_PS_LINE = late(r"^Stack dump for \S{1,60} {1,12}([0-9]{1,18}) .{0,120}?[0-9]:[0-9]{2} (\S.*)$")
_PDSH = late(r"^([A-Za-z][\w.-]*): (?=Process \d|Thread |Python v| {4}|Error|\s*$)")
# A person's own way to the node whose output follows
_SSH = late(
    r"^(?:[^#$>]{0,80}[#$>] )?ssh (?:-[A-Za-z]\S{0,40} ){0,8}(?:[\w.-]{1,64}@)?([A-Za-z][\w.-]{0,100})\s*$"
)
_NODE_FILE = late(r"^(?:trace|stacks?|pyspy|py-spy|dump)[-_.](.+?)(?:\.(?:out|txt|log|json|err))*$")
_NO_NAME = late(
    r"(?:traces?|stacks?|py-?spy|dumps?|out(?:put)?|log|report|backtraces?|threads?|ranks?[-_.]?\d{0,7}|txt|json|err"
    r"|(?:schedulers|engines|workers|processes|procs|servers|nodes)[-_.]?\d{0,7})",
    re.I,
)
_BESIDE_PID = late(
    r"(?:^|[-_.])(?:(?:traces?|stacks?|py-?spy|dump|pid|proc|process|rank\d*)(?=[-_.]|$)[-_.]?)+",
    re.I,
)
_HIGHEST_PID = 1 << 22  # what is higher is the address of a thread
MAX_FILE = 256 << 20
_HEAD = 80_000


class TextProcess(Struct):
    """One process of a text dump."""

    pid: int
    command: str
    node: str
    threads: list[ThreadSample] = []
    error: str = ""  # why py-spy could not read it
    earlier: list[ThreadSample] = []  # of the same process, where it was dumped before
    parent: int = 0  # process id, where py-spy printed it
    rank: int = -1  # where a heading or the file's name shows it
    signal: int = 0  # that ended it, where the stack is of a crash; -1: it called MPI_Abort
    number: int = -1  # in a heading that does not say what it counts: "Process 1"
    label: str = ""  # of several that a tool or a person has merged: "a group of 14 processes"
    many: int = 1  # of how many processes it is


class TextFile(Struct):
    """What one file held."""

    processes: list[TextProcess] = []
    errors: list[str] = []
    nameless: list[str] = []  # errors about a process that nothing else is printed of
    host: str = ""  # on which a shell was, by the lines that a person typed
    native: bool = False  # of a debugger, without any frame of Python
    world_size: int = 0  # of the job, where the text has the launcher's command line


def is_dump(path: Path) -> bool:
    """Whether a file is py-spy's output, as far as its beginning shows."""
    try:
        fd = open_regular(path)
        with os.fdopen(fd, "rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
    except (OSError, BadInput):
        return False
    text = re.search(r"^(?:[\w.-]+: )?(?:Process \d+: |Thread \S+ \()", head, re.M)
    return text is not None or _is_json(head) or bool(bare_stacks.read(head))


def _is_json(head: str) -> bool:
    return head.lstrip().startswith("[") and '"frames"' in head and '"thread' in head


def node_of(path: Path) -> str:
    """The node that a file is from: ``trace-r7i6n0.out`` -> ``r7i6n0``; "" where its name only says
    what is in it, as ``stack.txt``.
    """
    match = _NODE_FILE.match(path.name)
    name = match[1] if match else path.stem
    bare_number = match is None and name.isdigit()
    return "" if bare_number or _NO_NAME.fullmatch(name) else readable(name)


def without_pid(node: str, pid: int) -> str:
    """The node's name without the process id that a person put into the file's name; "" where
    nothing else is in it.
    """
    rest, found = re.subn(rf"(?:^|(?<=[-_.])){pid}(?:[-_.]|$)", "", node)
    return _BESIDE_PID.sub("", rest).strip("-_.") if found else node


def parse_text(text: str, node: str) -> TextFile:
    """Processes of py-spy's text output; what is neither theirs nor an error is passed over."""
    parser = _Parser(node)
    for host, own in parts(text) or [(node, text)]:
        parser.node = host
        for raw in own.splitlines():
            parser.line(raw.rstrip("\r"))
    return parser.finished()


class _Parser:
    """What the lines so far have been about, by node."""

    def __init__(self, node: str) -> None:
        self.out = TextFile()
        self.node = node
        self.current: dict[str, TextProcess] = {}
        self.threads: dict[str, ThreadSample] = {}
        self.headless: list[TextProcess] = []  # of files without lines "Process N:"
        self.heading = Heading()  # a person's own, above a stack
        self.several: dict[int, tuple[int, ...]] = {}  # ranks with one stack, by its place in `out`

    def line(self, line: str) -> None:
        host = self.node
        prefix = _PDSH.match(line)
        if prefix is not None:
            host, line = prefix[1], line[prefix.end() :]
        if (match := _SSH.match(line)) is not None:
            self.node = self.out.host = match[1]
        elif (match := _PROCESS.match(line)) is not None:
            self._process(host, TextProcess(int(match[1]), match[2], host))
        elif (match := _PID_LINE.match(line)) is not None:
            self._process_of_remark(match, host)
        elif (match := _PS_LINE.match(line)) is not None:
            self._process(host, TextProcess(int(match[1]), match[2], host))
        elif (match := _PARENT.match(line)) is not None and host in self.current:
            self.current[host].parent = int(match[1])
        elif (match := _THREAD.match(line.rstrip())) is not None:
            self._thread(host, _thread(match))
        elif host in self.threads and (frame := frame_of(line)) is not None:
            self.threads[host].frames.append(frame)
        elif (said := line.strip()) == "failed" or said.startswith(_ERRORS):
            self._error(host, said[:200])
        elif (heading := heading_of(said[:200])) is not None:
            self.heading = heading
            self.current.pop(host, None)
            self.threads.pop(host, None)

    def _process(self, host: str, process: TextProcess) -> None:
        before = self.current.get(host)
        if before is not None and before.pid == process.pid and not before.threads:
            before.command = process.command or before.command  # a heading above py-spy's own
        else:
            self.current[host] = process
            self.out.processes.append(process)
        self.threads.pop(host, None)

    def _process_of_remark(self, match: re.Match[str], host: str) -> None:
        """A person's heading above a stack, and the ranks that are said to have it."""
        named = _WHOSE.search(match[3] or "")
        ranks = parse_ranks(named[1].replace(" ", "")) if named is not None else []
        one = TextProcess(int(match[2]), "", match[1] or host, rank=ranks[0] if ranks else -1)
        self._process(host, one)
        if len(ranks) > 1:
            self.several[len(self.out.processes) - 1] = tuple(ranks[1:])

    def _thread(self, host: str, thread: ThreadSample) -> None:
        own = self.current.get(host)
        again = own is not None and any(t.name == "MainThread" for t in own.threads)
        if own is None or own in self.headless or (again and thread.name == "MainThread"):
            if thread.name == "MainThread":  # its number is the process's
                own = TextProcess(thread.tid if thread.tid < _HIGHEST_PID else 0, "", host)
                self._head(own)
                self.current[host] = own
                self.headless.append(own)
                self.out.processes.append(own)
            elif own is None:
                return
        self.threads[host] = thread
        own.threads.append(thread)

    def _head(self, own: TextProcess) -> None:
        """What the heading above a stack says of it; of several ranks all have it."""
        heading, self.heading = self.heading, Heading()
        own.rank = heading.ranks[0] if heading.ranks else -1
        own.many = max(1, heading.many)
        own.label = group_label(heading.many) if heading.many else ""
        if len(heading.ranks) > 1:
            self.several[len(self.out.processes)] = heading.ranks[1:]

    def _error(self, host: str, said: str) -> None:
        self.out.errors.append(said)
        own = self.current.get(host)
        if own is None or any(thread.frames for thread in own.threads):
            # py-spy prints no number where it cannot suspend a process.
            self.current.pop(host, None)
            if said.startswith(UNREADABLE):
                self.out.nameless.append(said)
        elif not own.error:
            own.error = said

    def finished(self) -> TextFile:
        """Heads above one stack, as people fold equal ones, all have that stack."""
        for process in self.out.processes:
            _name_main(process.threads)
        below: list[Frame] = []
        for process in reversed(self.headless):
            frames = process.threads[0].frames if process.threads else []
            if not frames:
                process.threads[0].frames = list(below)
            below = frames or below
        for place, ranks in self.several.items():
            one = self.out.processes[place]
            self.out.processes += [
                TextProcess(0, "", one.node, one.threads, rank=rank) for rank in ranks
            ]
        return self.out


def _name_main(threads: Sequence[ThreadSample]) -> None:
    """The only thread that began in a module, of a process whose threads have no names."""
    begun = [t for t in threads if t.frames and t.frames[-1].name == "<module>"]
    if len(begun) == 1 and not any(thread.name for thread in threads):
        begun[0].name = "MainThread"


def frame_of(line: str) -> Frame | None:
    """``    step (train.py:40)``, where the name itself may hold brackets and the place may lack
    its line; None for other lines.
    """
    text = _REMARK.sub("", line.rstrip())
    if text.startswith("\t "):  # of older Ray
        text = text.replace("\t ", "    ", 1)
    if not text.startswith("    ") or text[4:5] == " " or not text.endswith(")"):
        return None
    at = text.rfind(" (", 5)
    while at > 0 and text[at - 1].isspace():
        at = text.rfind(" (", 5, at)
    if at < 0:
        return None
    place = text[at + 2 : -1]
    file, colon, line_number = place.rpartition(":")
    number = number_in(line_number) if colon else -1
    return Frame(text[4:at][:MAX_NAME], (file if number >= 0 else place)[:MAX_NAME], max(0, number))


def _thread(match: re.Match[str]) -> ThreadSample:
    number, status = match[1] or "0", match[2]
    return ThreadSample(
        tid=int(number, 16 if number.startswith("0x") else 10),
        name=(match[3] or "")[:MAX_NAME],
        gil="gil" in status,
        active="active" in status,
    )


def parse_json_stream(text: str, node: str) -> TextFile:
    """One or many concatenated outputs of `py-spy dump --json`."""
    out = TextFile()
    decoder, at = json.JSONDecoder(parse_int=_whole), 0
    while True:
        at = text.find("[", at)
        if at < 0:
            return out
        try:
            value, end = decoder.raw_decode(text, at)
            threads = parse_json(msgjson.encode(value))
            pid, command = _process_of(value)
        except (json.JSONDecodeError, BadInput, *_NO_THREADS) as error:
            out.errors.append(f"damaged JSON at character {at}: {error}"[:200])
            at += 1
            following = text.find("\n[", at)
            at = following + 1 if following >= 0 else len(text)
            continue
        out.processes.append(TextProcess(pid, command, node, threads))
        at = end


def _without_head(text: str, node: str) -> list[TextProcess]:
    """The stacks of a text that has no line of a thread."""
    found: list[TextProcess] = []
    for bare in bare_stacks.read(text):
        thread = ThreadSample(tid=0, name="MainThread", frames=bare.frames)
        many = bare.heading.many
        label = group_label(many) if many else ""
        for rank in bare.heading.ranks or (-1,):
            one = TextProcess(0, "", node, [thread], rank=rank, label=label, many=max(1, many))
            found.append(one)
    return found


_NO_THREADS = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    OverflowError,
)


def _whole(digits: str) -> int:
    number = number_in(digits.removeprefix("-"))
    if number < 0:
        raise ValueError("a number has more digits than any thread, line or process id")
    return -number if digits.startswith("-") else number


def _process_of(threads: list[dict[str, Any]]) -> tuple[int, str]:
    """(pid, command line), as each thread has them."""
    pid, info = threads[0]["pid"], threads[0].get("process_info") or {}
    command = info.get("command_line", "")
    if not isinstance(pid, int) or not isinstance(command, str):
        raise TypeError("a process has no number")
    return pid, command


def read_file(path: Path) -> TextFile:
    """The processes and errors of one file.

    Raises:
        BadInput: it cannot be read, is empty, or is nothing of py-spy's.
    """
    try:
        data = read_regular(path, MAX_FILE)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise BadInput(f"{path} is empty")
    node = node_of(path)
    found = parse_json_stream(text, node) if _is_json(text[:20_000]) else parse_text(text, node)
    if not any(thread.frames for process in found.processes for thread in process.threads):
        found.processes += _without_head(text, node)
    if not found.processes and not found.errors:
        raise BadInput(f"{path} is not the output of py-spy dump")
    for process in found.processes:
        process.node = without_pid(node, process.pid) if process.node == node else process.node
    return found
