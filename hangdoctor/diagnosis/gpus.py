"""Pass: what the drivers say of the ranks' GPUs.

An error that stops a GPU names its rank where nothing says more than that all wait. One device that
is idle while all others are busy, or busy while all others are idle, is evidence: the ranks that
wait for a collective keep their devices busy with it.
"""

from __future__ import annotations

from ..model.diagnosis import Where
from ..model.gpu import Gpu, Xid
from .case import Case, nodes_of, waiters, where_held
from .confidence import Ground, agreed, sure
from .draft import Draft, ranks_blamed
from .findings import Clue, Finding, GpuFailed, GpuStandsOut, GpuState
from .ops.evidence import Note, Remark
from .rank_gpus import of_ranks

_IDLE, _BUSY = 10, 90  # per cent, at most and at least
_FEWEST = 4  # ranks, of which one can stand out
_SHOWN = 8  # ranks of a cause whose GPUs are told
# Errors after which nothing runs on the GPU, or in the process that they are for.
_STOPS = frozenset(
    {13, 31, 48, 62, 64, 69, 74, 79, 94, 95, 109, 119, 120, 140, 143, 144, 145, 149, 154}
)
_BEYOND_HOSTS = frozenset({"in_communication", "device_wait"})


def run(case: Case, draft: Draft) -> None:
    """Add the GPUs' evidence, where the capture has any."""
    devices = of_ranks(case.capture)
    if not devices:
        return
    failed = {rank: xid for rank, gpu in devices.items() if (xid := _stopping(gpu)) is not None}
    if failed:
        _name_failed(case, draft, failed, devices)
    if len(devices) >= _FEWEST:
        _add_outlier(draft, devices)
    for finding in draft.findings:
        _add_state(finding, devices)


def _stopping(gpu: Gpu) -> Xid | None:
    return next((xid for xid in gpu.xids if xid.number in _STOPS), None)


def _name_failed(case: Case, draft: Draft, failed: dict[int, Xid], devices: dict[int, Gpu]) -> None:
    """The ranks whose GPUs have failed, in place of all that wait for one another; else a note."""
    named = ranks_blamed(draft.findings)
    vague = all(finding.kind in _BEYOND_HOSTS for finding in draft.findings)
    others_wait = any(view.rank not in failed for view in case.waiting)
    concerned = failed.keys() <= named or not draft.findings
    if vague and concerned and others_wait and draft.status in (None, "hang", "unknown"):
        ranks = sorted(failed)
        draft.findings = [_failure(case, rank, failed[rank], devices[rank]) for rank in ranks]
        draft.status = "hang"
        return
    for rank in sorted(failed.keys() - named):
        op = f"Xid {failed[rank].number}"
        draft.notes.append(Note(Remark.GPU_ERROR, (rank,), op=op))


def _failure(case: Case, rank: int, xid: Xid, gpu: Gpu) -> Finding:
    views = [view for view in case.views if view.rank == rank]
    held = case.held_up([rank])
    return Finding(
        kind="error",
        ranks=[rank],
        story=GpuFailed(gpu.index, xid.number, xid.says),
        confidence=sure(Ground.GPU_FAILED),
        nodes=nodes_of(views),
        where=where_held(case, held, views[0]) if views else Where(),
        waiters=waiters(case, [rank]),
    )


def _add_outlier(draft: Draft, devices: dict[int, Gpu]) -> None:
    known = {rank: gpu.busy for rank, gpu in devices.items() if gpu.busy >= 0}
    shares = sorted(known.values())
    if len(shares) < _FEWEST:
        return
    if shares[0] <= _IDLE and shares[1] >= _BUSY:
        share, others = shares[0], shares[1:]
    elif shares[-1] >= _BUSY and shares[-2] <= _IDLE:
        share, others = shares[-1], shares[:-1]
    else:
        return
    [rank] = [r for r, value in known.items() if value == share]
    fact = GpuStandsOut(share, others[0], others[-1], len(others))
    for finding in draft.findings:
        if rank in finding.ranks:
            finding.clues.append(Clue("gpu", (rank,), fact))
            if finding.ranks == [rank]:
                finding.confidence = agreed(finding.confidence, finding.confidence)
            return
    note = Note(Remark.GPU_STANDS_OUT, (rank,), number=share, blamed=ranks_but(known, rank))
    draft.notes.append(note)


def ranks_but(known: dict[int, int], rank: int) -> tuple[int, ...]:
    """The ranks that are compared with this one."""
    return tuple(sorted(known.keys() - {rank}))


def _add_state(finding: Finding, devices: dict[int, Gpu]) -> None:
    """What the driver says of the culprits' GPUs; of many ranks, only where something is wrong."""
    for rank in finding.ranks:
        gpu = devices.get(rank)
        if gpu is not None and (len(finding.ranks) <= _SHOWN or _conspicuous(gpu)):
            finding.clues.append(Clue("gpu", (rank,), GpuState(gpu)))


def _conspicuous(gpu: Gpu) -> bool:
    return bool(gpu.xids or gpu.slowed or gpu.uncorrected > 0 or gpu.link_errors > 0)
