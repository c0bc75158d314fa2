"""Stacks for other people's viewers: folded lines (flame graphs) and speedscope's JSON.

Folded: https://github.com/brendangregg/FlameGraph; speedscope:
https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..model.capture import Frame, JobCapture, ThreadSample
from ..model.diagnosis import Diagnosis
from ..text.plain import visible
from ..text.ranges import format_ranks

_EACH = 256  # ranks up to which speedscope gets a profile of each beside the merged one

Stack = tuple[str, tuple[tuple[str, str, int], ...]]  # thread, frames outermost first


def folded(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """``ranks 0-2,4;MainThread;main (train.py:9);step (train.py:4) 4``: one line a stack, counted
    in ranks.
    """
    return _lines(
        (f"{'rank' if len(r) == 1 else 'ranks'} {format_ranks(r)}", s, len(r))
        for s, r in _merged(capture).items()
    )


def folded_by_rank(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """``rank 3;MainThread;main (train.py:9) 1``: the stacks of each rank by themselves."""
    merged = _merged(capture).items()
    every = sorted(
        ((rank, stack) for stack, ranks in merged for rank in ranks), key=lambda pair: pair[0]
    )
    return _lines((f"rank {rank}", stack, 1) for rank, stack in every)


def _lines(stacks: Iterable[tuple[str, Stack, int]]) -> bytes:
    lines = []
    for who, (thread, frames), count in stacks:
        words = [
            who,
            thread,
            *(f"{name} ({file}:{line})" if line else name for name, file, line in frames),
        ]
        lines.append(";".join(visible(w.replace(";", ",")) for w in words) + f" {count}\n")
    return "".join(lines).encode()


def speedscope(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """One profile of all ranks together, then one of each: a stack weighs as many ranks as are in
    it.
    """
    frames: dict[tuple[str, str, int], int] = {}
    merged = _merged(capture)
    profiles = [
        _profile("all ranks", [(stack, len(ranks)) for stack, ranks in merged.items()], frames)
    ]
    by_rank: dict[int, list[tuple[Stack, int]]] = {}
    for stack, ranks in merged.items():
        for rank in ranks:
            by_rank.setdefault(rank, []).append((stack, 1))
    if len(by_rank) <= _EACH:
        profiles += [_profile(f"rank {rank}", by_rank[rank], frames) for rank in sorted(by_rank)]
    listed = [
        {"name": name} | ({"file": file, "line": line} if line else {})
        for name, file, line in frames
    ]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": "hangdoctor",
            "name": capture.job,
            "activeProfileIndex": 0,
            "shared": {"frames": listed},
            "profiles": profiles,
        }
    ).encode()


def _profile(
    name: str, stacks: list[tuple[Stack, int]], frames: dict[tuple[str, str, int], int]
) -> dict[str, object]:
    samples = [
        [frames.setdefault(f, len(frames)) for f in ((thread, "", 0), *inner)]
        for (thread, inner), _ in stacks
    ]
    weights = [weight for _, weight in stacks]
    return {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _merged(capture: JobCapture) -> dict[Stack, list[int]]:
    """Stack -> the ranks that are in it (a rank once for each of its threads), the most frequent
    first.
    """
    found: dict[Stack, list[int]] = {}
    for rank in capture.ranks():
        threads = next(
            (s.threads for s in reversed(rank.samples) if any(t.frames for t in s.threads)), []
        )
        for thread in threads:
            if thread.frames:
                found.setdefault(
                    (_name(thread), tuple(map(_frame, reversed(thread.frames)))), []
                ).append(rank.rank)
    sizes = Counter({stack: len(ranks) for stack, ranks in found.items()})
    return {stack: found[stack] for stack, _ in sizes.most_common()}


def _name(thread: ThreadSample) -> str:
    return thread.name or "thread"


def _frame(frame: Frame) -> tuple[str, str, int]:
    return frame.name, frame.file, frame.line
