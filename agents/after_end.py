"""What is left of ranks of this node whose processes have ended: exit codes, black boxes, what
`hangdoctor run` noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from hangdoctor.errors import BadInput
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.probe.format import ENDS_SUFFIX
from hangdoctor.readers import blackbox, ended_ranks, rank_operations
from hangdoctor.readers.blackbox import Contents


class Remains(Struct):
    """Ranks of one job on this node, whose processes may all have ended."""

    node: str
    job: str = ""
    world_size: int = 0
    pids: dict[int, int] = {}  # rank -> process
    ends: list[ProcessEnd] = []  # as this agent saw them
    folders: list[Path] = []  # of their boxes

    def codes(self) -> Mapping[int, int]:
        """Exit code of each rank that was seen to end."""
        return {end.rank: end.code for end in self.ends}


def capture_remains(remains: Remains, keep_ops: int) -> NodeCapture | None:
    """The node after the end of its ranks; None where nothing says how any of them ended."""
    contents = _contents(remains)
    facts = ended_ranks.facts_of(contents, [*remains.ends, *_noted(remains)])
    if facts is None:
        return None
    capture = NodeCapture(remains.node, remains.job, ended=facts)
    by_rank = {c.ops.rank: c for c in contents}
    codes = remains.codes()
    for rank, pid in sorted(remains.pids.items()):
        found = by_rank.get(rank)
        capture.ranks.append(
            RankCapture(
                pid=pid,
                rank=rank,
                node=remains.node,
                world_size=remains.world_size,
                gone=True,
                exit_code=codes.get(rank),
                ops=rank_operations.trim(found.ops, keep_ops) if found is not None else None,
            )
        )
    return capture


def add_codes(ranks: Sequence[RankCapture], remains: Remains) -> None:
    """Exit codes of ranks that have ended while others of the node still run."""
    codes = remains.codes()
    for rank in ranks:
        if rank.gone and rank.exit_code is None:
            rank.exit_code = codes.get(rank.rank)
            rank.pid = rank.pid or remains.pids.get(rank.rank, 0)


def _contents(remains: Remains) -> list[Contents]:
    """The boxes that these processes have left."""
    found: dict[int, Contents] = {}
    for folder in remains.folders:
        for box in blackbox.find_boxes(folder, pids=remains.pids.values()):
            try:
                contents = blackbox.read_box(box.path)
            except BadInput:
                continue
            if remains.pids.get(contents.ops.rank) == box.pid:
                found[contents.ops.rank] = contents
    return list(found.values())


def _noted(remains: Remains) -> list[ProcessEnd]:
    """What `hangdoctor run` has noted of these processes, as their parent."""
    pids = set(remains.pids.values())
    noted: list[ProcessEnd] = []
    for folder in remains.folders:
        for path in sorted(folder.glob(f"*{ENDS_SUFFIX}")):
            try:
                noted += ended_ranks.read_ends(path)
            except BadInput:
                continue
    return [end for end in noted if end.pid in pids]
