"""Threads and frames out of what `py-spy dump --json` prints, with what the source around each line says of it."""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec

from ..errors import BadInput
from ..model.capture import Frame, ThreadSample
from ..stacks import root_names
from ..stacks.amounts import amounts, of_pipeline
from ..stacks.call_peers import begun_by, peer_names, peers, root
from ..stacks.loop_counts import COUNTERS, PEER, ROOT_OF, SETTER
from ..stacks.user_code import TORCH, is_standard, is_users
from ..text import redaction
from ..text.late import late
from ..text.ranges import number_in
from . import (
    asked_keys,
    group_lists,
    handle_origins,
    loop_texts,
    rank_conditions,
    retry_loops,
    start_arguments,
)
from . import source_lines as sources

MAX_NAME = 4096  # characters of a name or path that are kept
# The rules for places know the same calls.
_OF_MPI = late(r"\.(?:[sbr]?send|recv|m?probe|sendrecv\w*)\(", re.I)
_ROOTED = late(r"\broot\s*=")
_WITH_HANDLE = late(r"\bi(?:send|recv)\(")
_CODE_FRAMES = 24  # source lines are read for this many frames of a stack, from the innermost
_CODE = 240  # characters of the call that a frame makes


def parse_json(data: bytes) -> list[ThreadSample]:
    """Threads out of `py-spy dump --json` output.

    Raises:
        BadInput: it is something else.
    """
    try:
        threads = msgspec.json.decode(data)
        return [thread_of(t) for t in threads]
    except (
        msgspec.DecodeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise BadInput(f"not the output of py-spy dump --json: {str(error)[:200]}") from error


def thread_of(thread: dict[str, Any]) -> ThreadSample:
    """One thread as py-spy writes it, with what the source around its lines says.

    Raises:
        KeyError, TypeError, ValueError: it is no such thread.
    """
    numbers_of = [_numbers(f) for f in thread["frames"]]
    frames = [_frame(f, n) for f, n in zip(thread["frames"], numbers_of, strict=True)]
    for place, frame in enumerate(frames[:_CODE_FRAMES]):
        numbers = numbers_of[place]
        frame.code = source_line(frame.file, frame.line)
        polled = polled_call(frame.file, frame.line) if place == 0 and is_users(frame) else ""
        frame.code = polled or frame.code
        if place == 0:
            frame.values |= _of_call(frame.code, bool(polled), numbers)
        if frame.code and is_users(frame):
            _read_around(frame, polled, numbers)
            if place == 0 and frame.handle:
                frame.values |= _of_handle(frame, numbers)
        frame.turns = loops_around(frame)
    _mark_texts(frames, thread["frames"])
    if any(frame.lists for frame in frames):
        _mark_loops(frames)
    start_arguments.mark(frames, [_shown(f.get("locals") or []) for f in thread["frames"]])
    return ThreadSample(
        tid=_number(thread.get("os_thread_id") or thread["thread_id"]),
        name=_text(thread.get("thread_name") or ""),
        gil=bool(thread.get("owns_gil")),
        active=bool(thread.get("active")),
        held=_held(thread["frames"]),
        frames=frames,
    )


def loops_around(frame: Frame) -> list[int]:
    """`Frame.turns`, by the source; of torch and Python they are of no use."""
    if TORCH.search(frame.file) or is_standard(frame):
        return []
    return retry_loops.begins(sources.lines(frame.file), frame.line)


def _held(shown: list[dict[str, Any]]) -> int:
    """A checksum of 32 bits of all variables: which objects they are, and how these look."""
    told = [
        (v.get("name"), v.get("addr"), v.get("repr")) for f in shown for v in f.get("locals") or []
    ]
    return zlib.crc32(repr(told).encode(errors="replace")) or 1 if told else 0


def _of_call(code: str, polled: bool, numbers: dict[str, int]) -> dict[str, int]:
    """What the innermost line says of its call: the peer of a transfer, or the root of a collective."""
    if polled or _OF_MPI.search(code):
        return peers(code, numbers)
    if _WITH_HANDLE.search(code):
        return {n: numbers[n] for n in peer_names(code) if n in numbers}
    return root(code, numbers) if _ROOTED.search(code) else {}


def _of_handle(frame: Frame, numbers: dict[str, int]) -> dict[str, int]:
    """The peer of the one transfer whose handle a line waits for."""
    begun = handle_origins.begun(sources.lines(frame.file), frame.line)
    found = list(peers(begun, numbers).values())
    return {PEER: found[0]} if found else {}


def _read_around(frame: Frame, polled: str, numbers: dict[str, int]) -> None:
    """What the source around a line of the user's says: loops, conditions, handles, roots."""
    lines = sources.lines(frame.file)
    frame.catches = retry_loops.caught(lines, frame.line)
    frame.counts = retry_loops.counted(lines, frame.line)
    frame.past = retry_loops.ended(lines, frame.line) if frame.values else ""
    frame.only = redaction.code(rank_conditions.condition(lines, frame.line))
    frame.handle = handle_origins.origin(lines, frame.line) or begun_by(polled)
    chosen = root_names.names(lines, frame.line)
    frame.values |= {ROOT_OF + name: numbers[name] for name in chosen if name in numbers}
    frame.values |= amounts(numbers, lines, frame.line)


def _mark_texts(frames: list[Frame], shown: list[dict[str, Any]]) -> None:
    """What the user's innermost function waits for, in a loop or in the store."""
    own = next((n for n, f in enumerate(frames[:_CODE_FRAMES]) if f.code and is_users(f)), None)
    if own is None:
        return
    variables = _shown(shown[own].get("locals") or [])
    lines = sources.lines(frames[own].file)
    key, setter = asked_keys.asked(lines, frames[own].line, frames[own].code, variables)
    frames[own].key = key
    if setter >= 0:
        frames[own].values[SETTER] = setter
    frames[own].texts = loop_texts.checksums(lines, frames[own].line, variables)


def _mark_loops(frames: list[Frame]) -> None:
    """Of groups made in a loop, ranks may be at different turns."""
    for frame in frames[:_CODE_FRAMES]:
        if frame.code and is_users(frame):
            lines = sources.lines(frame.file)
            frame.loops = retry_loops.is_repeated(lines, frame.line, frame.code)


def _numbers(frame: dict[str, Any]) -> dict[str, int]:
    """The whole numbers among a function's variables."""
    found: dict[str, int] = {}
    for local in frame.get("locals") or []:
        shown = _text(local.get("repr") or "")
        number = number_in(shown.removeprefix("-"))
        if number >= 0:
            found[_text(local["name"])] = -number if shown.startswith("-") else number
    return found


def _frame(frame: dict[str, Any], numbers: dict[str, int]) -> Frame:
    values = {name: number for name, number in numbers.items() if name in COUNTERS}
    group = ""
    name = _text(frame["name"])
    file = _text(frame["filename"])
    if file.endswith("torch/distributed/c10d_logger.py"):
        group = _group_of(frame.get("locals") or [])
    found = Frame(name=name, file=file, line=_number(frame["line"]), values=values, group=group)
    if "torch/distributed/" in file:
        found.lists = group_lists.lists(name, file, _shown(frame.get("locals") or []))
    if "pipelin" in file:
        found.values |= of_pipeline(file, name, _shown(frame.get("locals") or []))
    return found


def _shown(local_values: list[dict[str, Any]]) -> dict[str, str]:
    """A function's variables, as py-spy writes them."""
    return {_text(v["name"]): _text(v.get("repr") or "") for v in local_values}


def _text(value: object) -> str:
    """Names as py-spy writes them; a path has at most 4,096 characters, and no text costs more
    later.
    """
    if not isinstance(value, str):
        raise TypeError(f"a name is {type(value).__name__}")
    return value[:MAX_NAME]


def _number(value: object) -> int:
    """A whole number of 64 bits.

    Raises:
        TypeError, ValueError: it is none.
    """
    if not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("a thread or line has no number")
    return value


def _group_of(local_values: list[dict[str, Any]]) -> str:
    """torch's logging wrapper still holds the call's own arguments: no process group among them
    means the world.
    """
    shown = _shown(local_values)
    if "args" not in shown or "kwargs" not in shown:
        return ""
    both = shown["args"] + shown["kwargs"]
    if "ProcessGroup" in both:
        return "sub"
    return "" if "..." in both else "world"


def polled_call(file: str, line: int) -> str:
    """The send or receive whose handle the loop around a line asks about, as it is made; "" of others."""
    if not _is_program(file):
        return ""
    return redaction.code(handle_origins.polled(sources.lines(file), line)[:_CODE])


def source_line(file: str, line: int) -> str:
    """The call that a frame makes, as one line, cut; empty where the file is not readable here."""
    if not _is_program(file):
        return ""
    return redaction.code(sources.call(file, line)[:_CODE])


def _is_program(file: str) -> bool:
    return file.endswith(".py") and file.startswith("/")
