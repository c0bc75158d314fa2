"""How this process ended, written into its box: the exception with its last frames, or none.

Nothing of the job is changed for it: no signal handler, no excepthook, no faulthandler. What a
process cannot see of its own end (a signal that kills, the code of `sys.exit`) is seen by
`hangdoctor run`, which then takes the box away itself.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path
from types import TracebackType

from . import format as fmt
from .folder import write_own
from .identity import host
from .whose_error import installed, said

_LAST, _OWN = 8, 6  # frames that are kept: the innermost, and the innermost of the job's own code
_DEEPEST = 2000
_MESSAGE = 400  # characters
_PATH = 160
# The first exception of a chain: marked lines, which older readers skip.
_FIRST = "first"
# What ranks sent to one another, as torch's distributed checkpoint does: each raises what some of them met.
_GATHERED = "gathered"
_CHECKPOINT = ("CheckpointException", "torch.distributed.checkpoint")
_ORIGINAL = "Original Traceback (most recent call last):\n"
_MET = 8  # ranks
_CHAIN, _FIRST_OWN, _FIRST_MESSAGE = 20, 3, 200


def of_exception(error: BaseException) -> tuple[int, str]:
    """(kind, text) for the box: the type, what it says, the first exception of the chain where it is
    another one, and frames, the innermost first.
    """
    error = _behind(error)
    message, frames = _of_worker(_message(error))
    lines = [_line(type(error).__name__), _line(message)[:_MESSAGE]]
    lines += _first_of_chain(error)
    lines += _gathered(error)
    lines += [_place(frame) for frame in [*frames, *_frames(error.__traceback__)]]
    return fmt.BY_EXCEPTION, "\n".join(lines)


def _gathered(error: BaseException) -> list[str]:
    """Of a failure that all ranks raise, which of them met it, each with what it met; the frames of
    the first.

    They are numbered in the group that saves, which is mostly that of all ranks. Nothing of many:
    then who was first does not show.
    """
    kind = type(error)
    name, package = _CHECKPOINT
    if kind.__name__ != name or not kind.__module__.startswith(package):
        return []
    found = next((of for of in error.args if type(of) is dict), {})
    failures = [(rank, pair) for rank, pair in found.items() if type(rank) is int and len(pair) > 1]
    if not 0 < len(failures) <= _MET:
        return []
    lines = []
    for rank, (inner, *_) in failures:
        words = _line(_message(inner))[:_FIRST_MESSAGE]
        lines.append(f"\t{_GATHERED}\t{rank}\t{_line(type(inner).__name__)}\t{words}")
    frames = [
        (one.name, one.filename, one.lineno or 0) for one in reversed(failures[0][1][1] or ())
    ]
    return lines + [f"{_place(frame)}\t{_GATHERED}" for frame in frames[:_OWN]]


def _of_worker(message: str) -> tuple[str, list[tuple[str, str, int]]]:
    """What a data loader's worker had raised, and where, the innermost frame first: its rank raises
    it again with that traceback for a message.

    Caught KeyError in DataLoader worker process 0.
    Original Traceback (most recent call last):
      File "/job/data.py", line 30, in __getitem__
    KeyError: 'moth_0117'
    """
    head, begin, trace = message.partition(_ORIGINAL)
    if not begin:
        return message, []
    frames = [
        (parts[2].strip(), parts[0].strip().strip('"'), int(parts[1]))
        for line in trace.splitlines()
        if line.lstrip().startswith('File "')
        and len(parts := line.lstrip()[5:].replace(", in ", ", line ").split(", line ")) == 3
        and parts[1].isdigit()
    ]
    own = [frame for frame in frames if not installed(frame[1])] or frames
    # Caught KeyError in DataLoader worker process 0.
    name, _, where = head.strip().rstrip(".").partition(" in ")
    kind = name.rpartition(" ")[2]
    lines = trace.strip().splitlines()
    ends = [n for n, line in enumerate(lines) if _kind_of(line) == kind]
    said_there = (
        " ".join([lines[ends[-1]].partition(": ")[2], *lines[ends[-1] + 1 :]]) if ends else ""
    )
    return f"{said_there or kind} (caught in {where})", own[-_OWN:][::-1]


def _kind_of(line: str) -> str:
    """Of the last line of a traceback, without the exception's module."""
    return line.partition(":")[0].rpartition(".")[2]


def _first_of_chain(error: BaseException) -> list[str]:
    """The exception that was handled when this one was raised, or that caused it: its type, what it
    says, and the innermost frames of the job's own code.
    """
    first = error
    for _ in range(_CHAIN):
        context = None if first.__suppress_context__ else first.__context__
        before = first.__cause__ or context
        if before is None:
            break
        first = before
    if first is error:
        return []
    said_first = _line(_of_worker(_message(first))[0])[:_FIRST_MESSAGE]
    frames = _frames(first.__traceback__)
    own = [frame for frame in frames if not installed(frame[1])] or frames
    lines = [f"\t{_FIRST}\t{_line(type(first).__name__)}\t{said_first}"]
    return lines + [f"{_place(frame)}\t{_FIRST}" for frame in own[:_FIRST_OWN]]


def _place(frame: tuple[str, str, int]) -> str:
    name, file, number = frame
    return f"{_line(name)[:80]}\t{_line(file)[-_PATH:]}\t{number}"


def _behind(error: BaseException) -> BaseException:
    """The exception that a library answered with an exit, as torch.multiprocessing.spawn does."""
    context = error.__context__
    if not isinstance(error, SystemExit) or context is None:
        return error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    by_library = trace is not None and installed(trace.tb_frame.f_code.co_filename)
    return context if by_library else error


def write(path: Path, made: os.stat_result, kind: int, text: str = "") -> None:
    """Put the end into the box, through its file: the mapping may be what is broken."""
    room = struct.calcsize(fmt.H_END_TEXT[1]) - 1
    raw = text.encode("utf-8", "replace")
    if len(raw) > room:
        raw = raw[:room].rpartition(b"\n")[0]
    write_own(
        path,
        made,
        [
            (fmt.H_END_TEXT[0], raw),
            (fmt.H_END_AT[0], struct.pack("<Q", time.time_ns())),
            (fmt.H_END_KIND[0], struct.pack("<I", kind)),
        ],
    )


def is_watched(folder: Path) -> bool:
    """Whether a `hangdoctor run` on this machine notes how the processes of this folder end."""
    for path in folder.glob(f"{host()}-*{fmt.ENDS_SUFFIX}"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(fd).st_uid == os.getuid():
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            continue
        finally:
            os.close(fd)
    return False


def _message(error: BaseException) -> str:
    parts = said(error).split(": ")[1:]
    # JAX says "Error dispatching computation: " once for each computation on the way.
    kept = [part for i, part in enumerate(parts) if i == 0 or part != parts[i - 1]]
    return ": ".join(kept)


def _line(text: str) -> str:
    """Text that fits into one line of the record."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def _frames(trace: TracebackType | None) -> list[tuple[str, str, int]]:
    every: list[tuple[str, str, int]] = []
    while trace is not None and len(every) < _DEEPEST:
        code = trace.tb_frame.f_code
        every.append((code.co_name, code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    last = len(every) - _LAST
    own = [i for i, frame in enumerate(every) if not installed(frame[1])][-_OWN:]
    kept = [f for i, f in enumerate(every) if i >= last or i in own]
    return kept[::-1]
