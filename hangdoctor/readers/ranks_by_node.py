"""Which ranks are behind nodes that have not reported them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def ranks_behind(
    order: Sequence[str], reported: Mapping[str, list[int]], unasked: Sequence[str], world: int
) -> dict[str, list[int]]:
    """The ranks of each node in `unasked`, as far as they can be told.

    What no one reported belongs to the one node that did not answer. Behind several, the numbering
    is taken for Slurm's and mpiexec's block distribution (rank // ranks per node), else for the
    cyclic one (rank % nodes), where the nodes that did report fit it.
    https://slurm.schedmd.com/srun.html, --distribution
    """
    lost = unreported(reported, world)
    if not lost or not unasked:
        return {}
    if len(unasked) == 1:
        return {unasked[0]: lost}
    holders = [n for n in order if n in reported or n in unasked]
    if not holders or world % len(holders):
        return {}
    each = world // len(holders)
    block = {n: range(i * each, (i + 1) * each) for i, n in enumerate(holders)}
    cyclic = {n: range(i, world, len(holders)) for i, n in enumerate(holders)}
    for plan in (block, cyclic):
        if all(set(ranks) <= set(plan[n]) for n, ranks in reported.items() if n in plan):
            return {n: sorted(set(plan[n]).intersection(lost)) for n in unasked}
    return {}


def unreported(reported: Mapping[str, list[int]], world: int) -> list[int]:
    """Ranks of a job of `world` that no node has."""
    seen = {rank for ranks in reported.values() for rank in ranks}
    return [rank for rank in range(world) if rank not in seen]
