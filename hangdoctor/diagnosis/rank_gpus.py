"""Which GPU is whose: what the driver tells of processes, and the ranks' own environment."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.capture import JobCapture
from ..model.gpu import Gpu


def of_ranks(capture: JobCapture) -> dict[int, Gpu]:
    """The GPU of each rank: by its process, by an error that was for it, else by its environment."""
    found: dict[int, Gpu] = {}
    for node in capture.nodes:
        by_process, by_name = _by_process(node.gpus), _by_name(node.gpus)
        for rank in node.ranks:
            pids = [rank.pid, *(child.pid for child in rank.children)]
            used = [by_process[pid] for pid in pids if pid in by_process]
            gpu = used[0] if used else by_name.get(rank.gpu)
            if gpu is not None:
                found[rank.rank] = gpu
    return found


def _by_process(gpus: Iterable[Gpu]) -> dict[int, Gpu]:
    found = {xid.pid: gpu for gpu in gpus for xid in gpu.xids if xid.pid}
    return found | {pid: gpu for gpu in gpus for pid in gpu.pids}


def _by_name(gpus: Iterable[Gpu]) -> dict[str, Gpu]:
    """By number and by UUID, as the environment of a rank may have either."""
    found = {str(gpu.index): gpu for gpu in gpus if gpu.index >= 0}
    return found | {gpu.uuid: gpu for gpu in gpus if gpu.uuid}
