"""Captures of ranks by their stacks, for the passes that read nothing else."""

from __future__ import annotations

from typing import Any

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    ProcessSample,
    RankCapture,
    SilentNode,
    ThreadSample,
)
from hangdoctor.model.diagnosis import Diagnosis

C10D = "/site-packages/torch/distributed/distributed_c10d.py"


def stack(*frames: tuple[str, str, int], code: str = "") -> list[Frame]:
    return [
        Frame(name, file, line, code if n == 0 else "")
        for n, (name, file, line) in enumerate(frames)
    ]


MAIN = ("main", "/app/train.py", 5)
WAIT = stack(("all_reduce", C10D, 9), ("step", "/app/train.py", 31), MAIN)
LOAD = stack(("load_batch", "/app/data.py", 40), MAIN)


def thread(frames: list[Frame], **more: Any) -> ThreadSample:
    return ThreadSample(
        **({"tid": 9, "name": "MainThread", "state": "S", "switches": 1, "frames": frames} | more)
    )


def sample(at: float, *threads: ThreadSample, state: str = "S", **more: Any) -> ProcessSample:
    return ProcessSample(at, state=state, threads=list(threads), **more)


def still(rank: int, frames: list[Frame], state: str = "S", **more: Any) -> RankCapture:
    """A rank whose main thread did not run between the samples."""
    samples = [sample(at, thread(frames, state=state), state=state) for at in (0.0, 1.0)]
    return captured(rank, samples, **more)


def captured(rank: int, samples: list[ProcessSample], **more: Any) -> RankCapture:
    of = {"pid": 9 + rank, "rank": rank, "node": "n1", "world_size": 4, "samples": samples}
    return RankCapture(**(of | more))


def judged(*ranks: RankCapture, silent: list[SilentNode] | None = None, **more: Any) -> Diagnosis:
    return diagnose(
        JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], silent or [], 4, taken=1.0, **more)
    )


def causes(of: Diagnosis) -> list[tuple[str, list[int]]]:
    return [(c.kind, c.ranks) for c in of.causes]
