"""Lines of native stacks, as gdb, pstack, eu-stack and lldb print them.

#1  0x00007f05 in solve (n=4) at solve.c:12          gdb; frame 0 may lack its address
#2  0x00007f05 in opal_progress () from /usr/lib/libopen-pal.so.40
#3  0x00007f05 poll - /usr/lib64/libc.so.6           eu-stack
  * frame #0: 0x01f2 libmpi.40.dylib`opal_progress + 104 at opal_progress.c:199:5     lldb
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..model.frame import Frame
from ..text.late import late
from .pyspy_frames import MAX_NAME

_ANY = late(r"^#([0-9]{1,4}) +(?:0x[0-9a-fA-F]{1,16} +(?:in +)?)?(\S.*)$")
_LLDB = late(r"^\s*(?:\* )?frame #([0-9]{1,4}): 0x[0-9a-fA-F]{1,16} ([^`]{1,200})`(.+)$")
_LLDB_PLACE = late(r" at ([^\s:]{1,400}):([0-9]{1,9})(?::[0-9]{1,9})?(?: \[[^\]]{1,40}\])?$")
_LLDB_OFFSET = late(r" \+ [0-9]{1,9}$")
_PLACE = late(r"\) +(?:at (\S{1,400}?):([0-9]{1,9})|from (\S{1,400}))$")
_OF_MODULE = late(r" - (/\S{1,400})$")
_SUFFIX = late(
    r"(?:\.(?:part|isra|constprop|cold|localalias|lto_priv)(?:\.[0-9]+)?|@@?[\w.]+){1,8}$"
)
_OPERATOR = late(r"operator *(?:<<=?|>>=?|<=>?|>=?|->\*?|\(\)|[<>])")
_ARGUMENT = late(r"\b(source|dest|dst|src|tag|root)=(-?[0-9]{1,9})\b")
_WORLD = late(r"\bcomm=(?:0x[0-9a-f]+ <ompi_mpi_comm_world>|1140850688\b|0x44000000\b)")
# gdb's `info threads`: a thread, and the innermost of its frames
_ROW = late(
    r"^\*?\s{1,12}(?P<number>[0-9]{1,6})\s{1,8}(?P<thread>Thread 0x[0-9a-f]{1,16} \(LWP [0-9]{1,18}\)"
    r"(?: \"[^\"]{0,64}\")?) (?P<frame>(?:0x[0-9a-f]{1,16} in )?\S{1,200} \(.{0,2000})$"
)
_MOST_LINES = 12  # that one frame is wrapped into
_LONGEST_NAME = 4000  # characters, with the arguments of templates
_LONGEST = 20_000  # characters of one frame: arguments may be long


class NativeFrame(Struct, frozen=True):
    """One frame and its number in its stack."""

    number: int
    frame: Frame


def lists_threads(text: str) -> bool:
    """Whether a text has gdb's list of threads, each with one frame."""
    return sum(_ROW.match(line) is not None for line in text.splitlines()) > 1


def joined(lines: Sequence[str]) -> Iterator[str]:
    """The lines, with a frame that a terminal or gdb wrapped as one."""
    at = 0
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if (row := _ROW.match(line)) is not None:
            yield f"Thread {row['number']} ({row['thread']}):"
            yield f"#0 {row['frame']}"
            continue
        if line.lstrip().startswith("#") and _ANY.match(line.lstrip()):
            taken = 0
            while at < len(lines) and taken < _MOST_LINES and _goes_on(line, lines[at]):
                line = f"{line.rstrip()} {lines[at].strip()}"[:_LONGEST]
                at, taken = at + 1, taken + 1
        yield line


def _goes_on(line: str, following: str) -> bool:
    """Whether a line belongs to the frame before it."""
    text = following.strip()
    if not text or text.startswith(("#", "(gdb)", "Thread ", "(More stack", "---Type", "--Type")):
        return False
    if text.startswith(("at ", "from ")):
        return _PLACE.search(line) is None
    return line.count("(") > line.count(")") or line.endswith((" at", " from"))


def read(line: str) -> NativeFrame | None:
    """The frame of a line; None for any other line."""
    of_lldb = _LLDB.match(line)
    if of_lldb is not None:
        return _of_lldb(of_lldb)
    match = _ANY.match(line.strip())
    if match is None:
        return None
    number, text = int(match[1]), match[2].rstrip()
    name, rest = _split(text)
    if rest:
        return NativeFrame(number, _of_gdb(name, rest))
    module = _OF_MODULE.search(text)
    name = text[: module.start()] if module is not None else text
    if name != "<signal handler called>" and " " in name.strip():
        return None  # prose: "#3 the third attempt"
    return NativeFrame(number, Frame(plain_name(name), module[1] if module is not None else "", 0))


def _of_gdb(name: str, rest: str) -> Frame:
    place = _PLACE.search(rest)
    file = (place[1] or _library(place[3])) if place is not None else ""  # the text may be cut
    line = int(place[2]) if place is not None and place[2] else 0
    frame = Frame(plain_name(name), file[:MAX_NAME], line)
    if _WORLD.search(rest):
        frame.group = "world"
        frame.values = {key: int(number) for key, number in _ARGUMENT.findall(rest)}
    return frame


def _of_lldb(match: re.Match[str]) -> NativeFrame:
    text = match[3].rstrip()
    place = _LLDB_PLACE.search(text)
    text = text[: place.start()] if place is not None else text
    text = re.sub(r" \[[^\]]{1,40}\]$", "", text)
    name, _ = _split(_LLDB_OFFSET.sub("", text).replace("(", " (", 1))
    module = match[2].strip()
    file = place[1] if place is not None else _library(module)
    return NativeFrame(
        int(match[1]), Frame(plain_name(name), file, int(place[2]) if place is not None else 0)
    )


def _library(module: str) -> str:
    """The module, where it is a library and not the program itself."""
    return module if re.search(r"\.(?:dylib|so)\b", module) else ""


def _split(text: str) -> tuple[str, str]:
    """(the function's name, its arguments and what follows); "" for the second where it has none."""
    hidden = _OPERATOR.sub(lambda m: "x" * len(m[0]), text)
    depth = round_depth = 0
    for at, char in enumerate(hidden):
        if char == "<":
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif char == "(":
            if not depth and not round_depth and at and hidden[at - 1] == " ":
                return text[: at - 1].rstrip(), text[at:]
            round_depth += 1
        elif char == ")" and round_depth:
            round_depth -= 1
    return text, ""


def plain_name(name: str) -> str:
    """A function without the arguments of its templates and what the compiler appended."""
    name = _SUFFIX.sub("", name.strip()[:_LONGEST_NAME])
    hidden = _OPERATOR.sub(lambda m: "x" * len(m[0]), name)
    depth, kept = 0, []
    for char, shown in zip(hidden, name, strict=True):
        if char == "<" and not hidden.startswith("<"):
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif not depth:
            kept.append(shown)
    return "".join(kept).strip()[:MAX_NAME] or name[:MAX_NAME]
