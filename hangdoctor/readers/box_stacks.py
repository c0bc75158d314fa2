"""The stacks of all threads of an ended rank, from the file beside its box (`probe.last_stacks`):
what its training waits for in another thread, and how many rounds its functions mean to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from ..errors import BadInput
from ..model.capture import Frame, ThreadSample
from ..probe import format as fmt
from ..stacks.amounts import AMOUNT
from ..text.ranges import number_in
from . import beside_boxes
from . import source_lines as sources
from .pyspy_frames import thread_of

_MOST = 1 << 20  # bytes
_LONGEST = 512  # elements of a list, of which the length alone is kept
_OURS = "hangdoctor/probe/"


class KeptStacks(Struct):
    """Its threads when it had been idle for some seconds; `at_s` by its wall clock."""

    at_s: float
    threads: list[ThreadSample]
    still: frozenset[int] = frozenset()  # those whose stacks were the same some seconds before


def stacks_beside(box: Path, began_s: float) -> KeptStacks | None:
    """None where there is no such file, it was cut, or a program in it was changed since the rank
    began.
    """
    try:
        data = beside_boxes.content(box, fmt.STACKS_SUFFIX, fmt.STACKS_MAGIC, _MOST)
        return _read(data.decode("utf-8", "replace"), began_s) if data is not None else None
    except (OSError, BadInput, ValueError, TypeError, KeyError):
        return None


def _read(text: str, began_s: float) -> KeptStacks | None:
    at, names, threads, still = 0, dict[str, str](), list[dict[str, Any]](), set[int]()
    for line in text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if line.startswith("\t\t(at)="):
            at = int(words["(at)"])
        elif line.startswith("\t\t(name)="):
            tid, _, name = line.removeprefix("\t\t(name)=").partition("\t")
            names[tid] = name
        elif line.startswith("\t\t(thread)="):
            tid = words["(thread)"]
            threads.append({"os_thread_id": int(tid), "thread_name": names.get(tid), "frames": []})
            if 0 < int(words["(since)"]) < at:
                still.add(int(tid))
        elif line.startswith("\t\t"):
            threads[-1]["frames"][-1]["locals"] = [
                {"name": name, "repr": _shown(value)} for name, value in words.items()
            ]
        else:
            name, file, number = line.split("\t")
            frame = {"name": name, "filename": file, "line": int(number), "locals": []}
            threads[-1]["frames"].append(frame)
    for thread in threads:
        thread["frames"] = [f for f in thread["frames"] if _OURS not in f["filename"]]
    if not at or any(_was_changed(f, began_s) for thread in threads for f in thread["frames"]):
        return None
    found = [thread_of(thread) for thread in threads]
    return KeptStacks(at / 1e9, found, frozenset(still))


def _shown(value: str) -> str:
    """As py-spy would show it; of a list only the length is known."""
    if not value.startswith("["):
        return value
    return f"[{', '.join('0' * min(_LONGEST, max(0, number_in(value[1:-1]))))}]"


def _was_changed(frame: dict[str, Any], began_s: float) -> bool:
    file, line = frame["filename"], frame["line"]
    return bool(sources.call(file, line)) and not sources.call_as_of(file, line, began_s)


def whole(place: Sequence[Frame], kept: KeptStacks, tid: int) -> list[Frame]:
    """The frames of a place, innermost first, with those around them that the box had no room for,
    the numbers of rounds, and the conditions on the rank (`_told`); as they are where the thread
    has moved since.
    """
    every = next((t.frames for t in kept.threads if t.tid == tid), [])
    left = list(place)
    found: list[Frame] = []
    for frame in every:
        if left and (frame.file, frame.line) == (left[0].file, left[0].line):
            own = left.pop(0)
            found.append(_told(own, frame))
        else:
            found.append(_told(Frame(frame.name, frame.file, frame.line), frame))
    return found if not left else list(place)


def _told(own: Frame, seen: Frame) -> Frame:
    """With how many rounds the function means to go, in which round of its loop it is, and under
    which condition on the rank.
    """
    rounds = {n: v for n, v in seen.values.items() if n.startswith(AMOUNT) or n == seen.counts}
    return structs.replace(own, values=own.values | rounds, only=seen.only, counts=seen.counts)


def others(kept: KeptStacks, tid: int) -> list[ThreadSample]:
    """The other threads, as far as each stood where it had been before; of no CPU and without a
    run.
    """
    beside = [t for t in kept.threads if t.tid in kept.still and t.tid != tid]
    return [structs.replace(thread, switches=0) for thread in beside]
