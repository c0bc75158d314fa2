"""Text and JSON that people collected with `py-spy dump`: many processes a file, errors in between.

    srun --jobid=J --overlap --gres=gpu:0 --output=trace-%N.out \\
        sh -c '... xargs -I {} py-spy dump --pid {}' || echo failed

Which of the processes are ranks is said by `pyspy_ranks`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import json as msgjson

from ..errors import BadInput
from ..files import open_regular, read_regular
from ..model.capture import Frame, ThreadSample
from ..text.plain import readable
from ..text.ranges import number_in
from .pyspy import MAX_NAME, parse_json

# Each of these is linear in the line: there are no two repetitions that can share what they match.
_PROCESS = re.compile(r"^Process ([0-9]{1,18}): ?(.*)$")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]{1,16}|[0-9]{1,18}) \(([^)]*)\)(?:: "(.*)")?$')
_ERRORS = ("Error: ", "srun: error: ", "Reason: ", "Permission Denied")
_PDSH = re.compile(r"^([A-Za-z][\w.-]*): (?=Process \d|Thread |Python v| {4}|Error|\s*$)")
_NODE_FILE = re.compile(
    r"^(?:trace|stacks?|pyspy|py-spy|dump)[-_.](.+?)(?:\.(?:out|txt|log|json|err))*$"
)
_BESIDE_PID = re.compile(
    r"(?:^|[-_.])(?:(?:traces?|stacks?|py-?spy|dump|pid|proc|process|rank\d*)(?=[-_.]|$)[-_.]?)+",
    re.I,
)
MAX_FILE = 256 << 20
_HEAD = 80_000


class TextProcess(Struct):
    """One process of a text dump."""

    pid: int
    command: str
    node: str
    threads: list[ThreadSample] = []


class TextFile(Struct):
    """What one file held."""

    processes: list[TextProcess] = []
    errors: list[str] = []


def is_dump(path: Path) -> bool:
    """Whether a file is py-spy's output, as far as its beginning shows."""
    try:
        fd = open_regular(path)
        with os.fdopen(fd, "rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
    except (OSError, BadInput):
        return False
    text = re.search(r"^(?:[\w.-]+: )?(?:Process \d+: |Thread \S+ \()", head, re.M)
    return text is not None or _is_json(head)


def _is_json(head: str) -> bool:
    return head.lstrip().startswith("[") and '"frames"' in head and '"thread' in head


def node_of(path: Path) -> str:
    """The node that a file is from: ``trace-r7i6n0.out`` -> ``r7i6n0``."""
    match = _NODE_FILE.match(path.name)
    return readable(match[1] if match else path.stem)


def _without_pid(node: str, pid: int) -> str:
    """The node's name without the process id that a person put into the file's name; "" where
    nothing else is in it.
    """
    rest, found = re.subn(rf"(?:^|(?<=[-_.])){pid}(?:[-_.]|$)", "", node)
    return _BESIDE_PID.sub("", rest).strip("-_.") if found else node


def parse_text(text: str, node: str) -> TextFile:
    """Processes of py-spy's text output; what is neither theirs nor an error is passed over."""
    out = TextFile()
    current: dict[str, TextProcess] = {}
    threads: dict[str, ThreadSample] = {}
    for raw in text.splitlines():
        line, host = raw.rstrip("\r"), node
        prefix = _PDSH.match(line)
        if prefix is not None:
            host, line = prefix[1], line[prefix.end() :]
        if (match := _PROCESS.match(line)) is not None:
            current[host] = TextProcess(int(match[1]), match[2], host)
            out.processes.append(current[host])
            threads.pop(host, None)
        elif (match := _THREAD.match(line.rstrip())) is not None and host in current:
            threads[host] = _thread(match)
            current[host].threads.append(threads[host])
        elif host in threads and (frame := frame_of(line)) is not None:
            threads[host].frames.append(frame)
        elif (said := line.strip()) == "failed" or said.startswith(_ERRORS):
            out.errors.append(said[:200])
    return out


def frame_of(line: str) -> Frame | None:
    """``    step (train.py:40)``, where the name itself may hold brackets and the place may lack
    its line; None for other lines.
    """
    text = line.rstrip()
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
    status = match[2]
    return ThreadSample(
        tid=int(match[1], 16 if match[1].startswith("0x") else 10),
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
    if not found.processes and not found.errors:
        raise BadInput(f"{path} is not the output of py-spy dump")
    for process in found.processes:
        process.node = _without_pid(node, process.pid) if process.node == node else process.node
    return found
