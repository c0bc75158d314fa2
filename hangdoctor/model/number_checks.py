"""Checks what was decoded: numbers that no job has would be written out as lists by whoever reads
on.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import BadInput
from ..text.ranges import MAX_RANKS
from .capture import JobCapture, NodeCapture, RankCapture
from .layout import Layout
from .log_facts import (
    BarrierMissed,
    Ended,
    Finished,
    GlooTimeout,
    GpuShared,
    JobLogs,
    Mismatch,
    NoBeat,
    OomKill,
    PythonError,
    StoreCount,
)
from .operations import RankOps
from .ras_report import RasReport

# What black boxes and exit codes of a node come to: `readers.ended_ranks`.
_OF_ENDS = (
    BarrierMissed,
    Ended,
    Finished,
    GlooTimeout,
    GpuShared,
    Mismatch,
    NoBeat,
    OomKill,
    PythonError,
    StoreCount,
)


def check_job(capture: JobCapture) -> None:
    """The numbers of a capture that files tell.

    Raises:
        BadInput: a rank or a world beyond `MAX_RANKS`, or a layout without ranks.
    """
    _check_world(capture.world_size, "the job")
    _check_layout(capture.layout)
    for node in capture.nodes:
        check_node(node)


def check_node(capture: NodeCapture) -> None:
    """The same of one node.

    Raises:
        BadInput: as `check_job`.
    """
    _check_layout(capture.layout)
    for rank in capture.ranks:
        _check_rank(rank)
    if capture.ras is not None:
        _check_ras(capture.ras)
    if capture.ended is not None:
        _check_ended(capture.ended)


def check_operations(histories: Iterable[RankOps]) -> None:
    """The same of what ranks recorded.

    Raises:
        BadInput: as `check_job`.
    """
    for ops in histories:
        _check_world(ops.world_size, f"rank {ops.rank}")
        _check_world(ops.rank, f"rank {ops.rank}")
        _check_layout(ops.layout)


def _check_rank(rank: RankCapture) -> None:
    _check_world(rank.world_size, f"rank {rank.rank}")
    _check_world(rank.rank, f"process {rank.pid}")
    histories = (rank.ops, rank.ops_before, rank.recorded, rank.recorded_before)
    check_operations(ops for ops in histories if ops is not None)


def _check_ras(report: RasReport) -> None:
    for communicator in report.communicators:
        _check_world(communicator.size, f"communicator {communicator.hash[:40]}")


def _check_ended(logs: JobLogs) -> None:
    _check_world(logs.world_size, "the job")
    for fact in logs.facts:
        _check_world(fact.rank, "a fact")
        missed = fact.missed_ranks if isinstance(fact, BarrierMissed) else []
        for rank in missed[: MAX_RANKS + 1]:
            _check_world(rank, "a barrier")
        told = isinstance(fact, _OF_ENDS) and len(missed) <= MAX_RANKS
        if not told or not 0 <= fact.file < len(logs.files):
            raise BadInput("what a node says of the end of its ranks is no such fact")


def _check_world(number: int, of: str) -> None:
    if not -1 <= number <= MAX_RANKS:
        raise BadInput(f"{of} has {number} ranks; a job has at most {MAX_RANKS:,}")


def _check_layout(layout: Layout | None) -> None:
    if layout is not None and not (
        min(layout.dp, layout.pp, layout.tp) >= 1 and layout.world_size <= MAX_RANKS
    ):
        raise BadInput(
            f"a layout of dp={layout.dp} pp={layout.pp} tp={layout.tp}; a job has at most {MAX_RANKS:,} ranks"
        )
