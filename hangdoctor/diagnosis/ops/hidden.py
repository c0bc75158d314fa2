"""Recorders that leave sends and receives out: gloo's.

There, a rank that waits for its neighbour stage looks as if it stood outside of every operation. The ranks of one
tensor-parallel group go through the pipeline side by side: where none of them misses another, the whole group waits for
the same neighbour. Such ranks are no culprits while anything else explains the wait.
"""

from __future__ import annotations

from .alone import Sink
from .roles import working_layout
from .scene import Scene


def without_transfers(scene: Scene, alone: list[Sink], others: bool) -> list[Sink]:
    """`alone` without the ranks that most likely wait in a transfer; `others`: something else was found already."""
    if not alone or any(o.source != "flight_recorder" or o.runs_ahead for o in scene.ops.values()):
        return alone
    layout = working_layout(scene)
    if layout is None or layout.pp < 2:
        return alone
    sure = [s for s in alone if _missed_by_neighbour(s, set(layout.group("tp", s.rank)))]
    return sure if sure or others else alone


def _missed_by_neighbour(sink: Sink, neighbours: set[int]) -> bool:
    return any(neighbours & set(i.waiters) for i in sink.instances if len(i.present) + len(i.absent) <= len(neighbours))
