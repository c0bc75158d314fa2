"""Recorders that leave sends and receives out: gloo's.

There, a rank that waits for its neighbour stage looks as if it stood outside of every operation. The ranks of one
tensor-parallel group go through the pipeline side by side: where none of them misses another, the whole group waits for
the same neighbour. Such ranks are no culprits while anything else explains the wait.
"""

from __future__ import annotations

from ...model import Alternative, Cause
from .alone import Sink
from .roles import working_layout
from .scene import Scene
from .waits import Instance
from .words import capital, nodes_of, ranks_text


def transfers_unseen(scene: Scene) -> bool:
    """Whether all that is known are dumps of gloo's recorder."""
    return all(o.source == "flight_recorder" and not o.runs_ahead for o in scene.ops.values())


def one_of_them(scene: Scene, causes: list[Cause]) -> list[Cause]:
    """Several ranks outside of all recorded operations: one may wait for another in a transfer that nobody recorded."""
    idle = [c for c in causes if c.kind == "not_entered"]
    if not idle or not transfers_unseen(scene):
        return causes
    if len({r for c in idle for r in c.ranks}) == 1:
        idle[0].confidence = min(idle[0].confidence, 0.7)
        idle[0].alternatives.append(
            Alternative("p2p_unmatched", idle[0].ranks, "not excluded: gloo's recorder leaves sends and receives out")
        )
        idle[0].advice = "Its stack tells whether it waits for another rank in a send or receive. " + idle[0].advice
        return causes
    named = {r for c in idle for r in c.ranks}
    unheard_of = {r for r in range(scene.world_size) if not scene.known(r)}
    ranks = sorted(named | unheard_of)
    without = f" ({ranks_text(sorted(unheard_of))} left no dump)" if unheard_of else ""
    summary = (
        f"{capital(ranks_text(ranks))} entered none of the operations that their peers wait in{without}, and nothing here tells which of "
        "them holds up the others: gloo's recorder leaves sends and receives out, and one may wait for another in such a transfer."
    )
    joined = Cause("not_entered", ranks, nodes_of(scene, ranks), 0.4, summary, idle[0].where)
    joined.evidence = [e for c in idle for e in c.evidence][:8]
    joined.alternatives = [
        Alternative("p2p_unmatched", ranks, "a send or receive between two of them would not be in the dumps")
    ]
    joined.advice = "Stacks of these ranks (hangdoctor dump, py-spy dump) tell which of them waits in a send or receive."
    return [joined, *(c for c in causes if c.kind != "not_entered")]


def without_transfers(scene: Scene, alone: list[Sink], others: bool) -> list[Sink]:
    """`alone` without the ranks that most likely wait in a transfer; `others`: something else explains the wait already."""
    if not alone or not transfers_unseen(scene):
        return alone
    layout = working_layout(scene)
    if layout is None or layout.pp < 2:
        return alone
    groups = {s.rank: set(layout.group("tp", s.rank)) for s in alone}
    sure = [s for s in alone if _missed_by_neighbour(s, groups[s.rank])]
    if not sure:
        return [] if others else alone
    return [s for s in alone if s in sure or not groups[s.rank] <= groups.keys()]


def unheard(scene: Scene, alone: list[Sink]) -> dict[int, list[Instance]]:
    """Ranks without a dump, with what waits around them: they explain more than a transfer that nobody saw.

    Those that the operations of these sinks lack too, else all: chains of transfers lead anywhere.
    """
    around = list({id(i): i for s in alone for i in s.instances}.values())
    found: dict[int, list[Instance]] = {}
    for instance in around:
        for rank in instance.unknown:
            found.setdefault(rank, []).append(instance)
    return found or {r: around for r in range(scene.world_size) if around and not scene.known(r)}


def _missed_by_neighbour(sink: Sink, neighbours: set[int]) -> bool:
    return any(neighbours & set(i.waiters) for i in sink.instances if len(i.present) + len(i.absent) <= len(neighbours))
