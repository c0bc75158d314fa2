"""Logs, dumps and RAS answers of the job whose bundle or incident is there: one capture of all."""

from __future__ import annotations

from ..model.capture import JobCapture, NodeCapture, RankCapture
from ..text.ranges import format_ranks
from .offline import join_logs


def join(bundle: JobCapture, files: JobCapture) -> JobCapture:
    """The bundle's capture with what the files add to it; what does not fit is noted."""
    bundle.notes += [note for note in files.notes if note not in bundle.notes]
    _add_logs(bundle, files)
    bundle.nodes += [node for node in files.nodes if node.ras is not None and not node.ranks]
    ranks = files.ranks()
    if not ranks:
        return bundle
    if files.numbered:
        bundle.notes.append("py-spy's text does not show ranks: it is not joined to the bundle")
    elif files.world_size != bundle.world_size:
        worlds = f"{files.world_size} ranks, the bundle's {bundle.world_size}"
        bundle.notes.append(f"the dumps or boxes are of another job: it has {worlds}")
    else:
        _add_operations(bundle, ranks)
    return bundle


def _add_logs(bundle: JobCapture, files: JobCapture) -> None:
    if files.logs is None:
        return
    if bundle.logs is not None:
        join_logs(files.logs, bundle.logs)
    bundle.logs = files.logs


def _add_operations(bundle: JobCapture, ranks: list[RankCapture]) -> None:
    """Records of ranks that the bundle has none of: those of two sources do not count alike."""
    known = {rank.rank: rank for rank in bundle.ranks()}
    counted = [rank.rank for rank in known.values() if rank.ops is not None]
    if counted:
        which = format_ranks(counted)
        own = f"the bundle has records of ranks {which}"
        bundle.notes.append(f"{own}: those of the files are not read")
        return
    for rank in ranks:
        if rank.rank in known:
            known[rank.rank].ops = rank.ops
        else:
            bundle.nodes.append(NodeCapture(rank.node, "files", [rank]))
