"""Text and JSON that people collected with `py-spy dump`: many processes a file, errors in between.

    srun --jobid=J --overlap --gres=gpu:0 --output=trace-%N.out sh -c '... xargs -I {} py-spy dump --pid {}' || echo failed

The text has no ranks. They come from a local rank on the command line where there is one; otherwise
processes are numbered by node and process id, and the capture says so (`JobCapture.numbered`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import json as msgjson

from ..errors import BadInput
from ..files import open_regular, read_regular
from ..model.capture import Frame, JobCapture, NodeCapture, ProcessSample, RankCapture, ThreadSample
from ..model.layout import guess_layout
from ..text.plain import readable
from ..text.ranges import number_in
from .discover import is_launcher
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
_LOCAL_RANK = re.compile(r"--local[-_]rank[= ]([0-9]{1,9})")
_NODE_RANK = re.compile(r"--node[-_]rank[= ]([0-9]{1,9})")
_WORKER = re.compile(
    r"torch/utils/data/_utils/(worker|pin_memory)\.py|multiprocessing/(spawn|popen_\w+|resource_tracker|forkserver)\.py"
)
MAX_FILE = 256 << 20
_HEAD = 80_000
_MAX_COMMAND = 16 << 10


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


def looks_like_dump(text: str) -> bool:
    """True for py-spy's text or JSON, also where only its errors are left."""
    head = text[:20_000]
    return bool(
        re.search(r"^(?:[\w.-]+: )?(?:Process \d+: |Thread \S+ \()", head, re.M)
    ) or _is_json(head)


def is_dump(path: Path) -> bool:
    """Whether a file is py-spy's output, as far as its beginning shows."""
    try:
        fd = open_regular(path)
        with os.fdopen(fd, "rb") as file:
            return looks_like_dump(file.read(_HEAD).decode("utf-8", "replace"))
    except (OSError, BadInput):
        return False


def _is_json(head: str) -> bool:
    return head.lstrip().startswith("[") and '"frames"' in head and '"thread' in head


def node_of(path: Path) -> str:
    """The node that a file tells of: ``trace-r7i6n0.out`` -> ``r7i6n0``."""
    match = _NODE_FILE.match(path.name)
    return readable(match[1] if match else path.stem)


def _without_pid(node: str, pid: int) -> str:
    """The node's name without the process id that a person put into the file's name; "" where nothing else is in it."""
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
    """``    step (train.py:40)``, where the name itself may hold brackets and the place may lack its line; None for other lines."""
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
        raise ValueError("a number of more digits than any thread, line or process has")
    return -number if digits.startswith("-") else number


def _process_of(threads: list[dict[str, Any]]) -> tuple[int, str]:
    """(pid, command line), as each thread has them."""
    pid, info = threads[0]["pid"], threads[0].get("process_info") or {}
    command = info.get("command_line", "")
    if not isinstance(pid, int) or not isinstance(command, str):
        raise TypeError("a process without a number")
    return pid, command


def read_files(paths: Sequence[Path]) -> JobCapture:
    """All processes of some files as one capture.

    Raises:
        BadInput: none of the files holds the stack of a process.
    """
    processes: list[TextProcess] = []
    notes: list[str] = []
    errors = 0
    for path in paths:
        try:
            found = _read(path)
        except BadInput as error:
            notes.append(f"skipped: {error}")
            continue
        errors += len(found.errors)
        processes += [p for p in found.processes if any(t.frames for t in p.threads)]
        empty = [p.pid for p in found.processes if not any(t.frames for t in p.threads)]
        if empty:
            notes.append(
                f"{path.name}: no stack of {len(empty)} processes ({', '.join(map(str, empty[:8]))})"
            )
        if found.errors:
            notes.append(
                f"{path.name}: {len(found.errors)} error lines, for example: {found.errors[0]}"
            )
    if not processes:
        raise BadInput(
            "no stack of any process in " + ", ".join(str(p) for p in paths[:5]),
            "\n  ".join(notes[:10]),
        )
    return _join(processes, notes, errors)


def _read(path: Path) -> TextFile:
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


def _join(processes: list[TextProcess], notes: list[str], errors: int) -> JobCapture:
    ranks, left_out = _select(processes)
    if left_out:
        kinds = ", ".join(
            f"{n} {what}" for what, n in sorted(Counter(w for _, w in left_out).items())
        )
        notes.append(f"not ranks, and left out: {kinds}")
    numbered = _number(ranks)
    nodes: dict[str, NodeCapture] = {}
    for rank, process in numbered:
        node = nodes.setdefault(process.node, NodeCapture(process.node, "text"))
        node.ranks.append(_capture(rank, process, len(numbered)))
    by_node = "node, then by " if any(nodes) else ""
    notes.append(
        f"py-spy's text has no ranks: they are numbered by {by_node}local rank or process id"
    )
    if errors:
        notes.append(
            f"{errors} errors stand in these files: processes that py-spy could not read are not in this diagnosis"
        )
    argv = _words(numbered[0][1].command)
    return JobCapture(
        job="text", nodes=list(nodes.values()), world_size=len(numbered), layout=guess_layout(argv, {}, len(numbered)),
        origin="files", numbered=True, notes=notes,
    )  # fmt: skip


def _capture(rank: int, process: TextProcess, world: int) -> RankCapture:
    local = _LOCAL_RANK.search(process.command)
    return RankCapture(
        pid=process.pid, argv=_words(process.command)[:60], rank=rank, node=process.node, world_size=world,
        local_rank=int(local[1]) if local else -1, samples=[ProcessSample(0.0, threads=process.threads)],
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _words(command: str) -> list[str]:
    """The words of a command line, as far as they say which program it is; the time of `shlex` grows with the square of it."""
    try:
        return shlex.split(command[:_MAX_COMMAND])
    except ValueError:
        return command[:_MAX_COMMAND].split()


def _script(process: TextProcess) -> str:
    words = _words(process.command)
    for i, word in enumerate(words):
        if word.endswith(".py"):
            return Path(word).name
        if word == "-m" and i + 1 < len(words):
            return words[i + 1]
    return ""


def _select(
    processes: list[TextProcess],
) -> tuple[list[TextProcess], list[tuple[TextProcess, str]]]:
    """Split into ranks and the rest: launchers, data-loader workers, and programs other than the common one."""
    ranks: list[TextProcess] = []
    rest: list[tuple[TextProcess, str]] = []
    for process in processes:
        if is_launcher(_words(process.command)):
            rest.append((process, "launchers"))
        elif any(
            _WORKER.search(f.file)
            for t in process.threads
            if t.name in ("MainThread", "")
            for f in t.frames
        ):
            rest.append((process, "worker processes"))
        else:
            ranks.append(process)
    scripts = Counter(_script(p) for p in ranks)
    common, n = scripts.most_common(1)[0] if scripts else ("", 0)
    if n * 2 > len(ranks) and common:
        rest += [(p, "other programs") for p in ranks if _script(p) != common]
        ranks = [p for p in ranks if _script(p) == common]
    return (ranks, rest) if ranks else (processes, [])


def _number(ranks: list[TextProcess]) -> list[tuple[int, TextProcess]]:
    """Ranks in order of node and local rank; nodes in order of their node rank, else of the numbers in their names."""
    ordered = sorted(ranks, key=_order)
    return list(enumerate(ordered))


def _order(process: TextProcess) -> tuple[int, list[tuple[int, int, str]], int, int]:
    node_rank = _NODE_RANK.search(process.command)
    local = _LOCAL_RANK.search(process.command)
    return (
        int(node_rank[1]) if node_rank else 0,
        list(_natural(process.node)),
        int(local[1]) if local else 0,
        process.pid,
    )


def _natural(name: str) -> Iterator[tuple[int, int, str]]:
    """``r7i6n10`` sorts after ``r7i6n9``."""
    for part in re.findall(r"[0-9]+|[^0-9]+", name):
        yield (0, number_in(part), "") if number_in(part) >= 0 else (1, 0, part)
