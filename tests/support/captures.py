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
    """Kinds and ranks of the causes, or of what is left open."""
    return [(c.kind, c.ranks) for c in of.causes or of.open]


def told(name: str, of: Diagnosis) -> list[str]:
    """Everything that a diagnosis says, a line for each fact."""
    lines = [f"== {name}: {of.status}", f"  {of.summary}"]
    for cause in of.causes or of.open:
        where = cause.where
        lines.append(
            f"  {cause.kind} {cause.ranks} on {cause.nodes} ({cause.confidence}): {cause.summary}"
        )
        lines.append(
            f"    at {where.op}, {where.group} {where.group_ranks}, {where.iteration}, {where.frame}"
        )
        lines += [f"    {e.source} {e.ranks}: {e.says}" for e in cause.evidence]
        lines += [f"    not {a.kind} {a.ranks}: {a.why_not}" for a in cause.alternatives]
        lines.append(f"    do: {cause.advice}")
    lines += [f"  waits {w.ranks} in {w.on.op} of {w.on.group} for {w.for_}" for w in of.waits]
    lines += [f"  missing {m.what} of {m.ranks} on {m.node}: {m.why}" for m in of.missing]
    lines += [f"  stack of {s.ranks}, {s.thread}: {[f.name for f in s.frames]}" for s in of.stacks]
    lines += [f"  rank {r.rank} {r.state}: {r.place}" for r in of.ranks]
    return lines + [f"  note {n}" for n in of.notes]
