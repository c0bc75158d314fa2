"""Where histories come from: a bundle's capture, or black boxes as they lie."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import structs

from ..errors import BadInput, NoRanksFound
from ..model.capture import JobCapture
from ..model.operations import Group, RankOps
from ..readers import blackbox, boxes_of_job, calls
from ..storage import bundle
from .model import RankTrace, Trace


def load(place: Path | None, job: str = "") -> Trace:
    """The histories in a bundle or in a folder of black boxes; None looks where boxes of this user
    lie.

    Raises:
        BadInput: neither a bundle nor a folder with boxes.
        NoRanksFound: nothing there recorded operations.
    """
    if place is not None and bundle.is_bundle(place):
        return from_capture(bundle.load(place))
    if place is not None and not place.is_dir():
        raise BadInput(
            f"{place} is not a folder" if place.exists() else f"{place} does not exist",
            "Pass a bundle, or the folder of a job's black boxes (HANGDOCTOR_DIR).",
        )
    return from_boxes(place, job)


def from_capture(capture: JobCapture) -> Trace:
    """The operations that a capture holds.

    Raises:
        NoRanksFound: no rank recorded any.
    """
    ranks = []
    for node in capture.nodes:
        for rank in node.ranks:
            ops = _timed(rank.ops)
            if ops is None:
                continue
            names = {t.tid: t.name for sample in rank.samples for t in sample.threads if t.name}
            where = rank.node or node.node
            # Dumps that someone collected do not say where they are from: each may be of a clock of
            # its own.
            clock = ops.clock or where or f"rank {rank.rank}"
            ranks.append(
                RankTrace(
                    rank.rank, ops, where, rank.pid, clock=clock, threads=names, calls=rank.calls
                )
            )
    if not ranks:
        raise NoRanksFound(
            "the bundle has no recorded operations, so there is no timeline",
            "Start the job with: hangdoctor run -- CMD",
        )
    notes = [*capture.notes, *(f"{s.node} did not answer: {s.why}" for s in capture.silent)]
    return Trace(_sorted(ranks), _groups(ranks), capture.job, capture.taken, notes=notes)


def from_boxes(folder: Path | None, job: str = "") -> Trace:
    """The whole rings of a job's black boxes; of several jobs the newest, which a note says.

    Raises:
        NoRanksFound: no box that can be read.
        UsageError: `job` is the script of several.
    """
    where = f"in {folder}" if folder else "in the folders of this user"
    here = [b for b in blackbox.find_boxes(folder) if b.rank >= 0]
    boxes = [b for of in boxes_of_job.named(job, here).values() for b in of]
    if here and not boxes:
        raise NoRanksFound(
            f"no job '{job}' {where}",
            f"Jobs with black boxes: {', '.join(sorted({b.job for b in here}))}.",
        )
    boxes.sort(key=lambda b: b.created_s)
    newest = {b.rank: b for b in boxes if b.job == boxes[-1].job}
    notes: list[str] = []
    jobs = {b.job for b in boxes}
    if len(jobs) > 1:
        notes.append(
            f"found {len(jobs)} jobs; using the newest, {boxes[-1].job} (choose with --job)"
        )
    ranks = []
    for box in newest.values():
        try:
            ranks.append(_from_box(box))
        except BadInput as error:
            notes.append(str(error))
    if not ranks:
        raise NoRanksFound(
            f"no black boxes {where}",
            "Start the job with: hangdoctor run -- CMD. "
            "If HANGDOCTOR_DIR was set, pass that folder; or pass a bundle.",
        )
    return Trace(_sorted(ranks), _groups(ranks), boxes[-1].job, 0.0, notes=notes)


def _from_box(box: blackbox.BlackBox) -> RankTrace:
    contents = blackbox.read_box(box.path, owners={box.owner})
    return RankTrace(
        box.rank,
        contents.ops,
        box.host,
        box.pid,
        clock=contents.ops.clock,
        threads={t.tid: t.name for t in contents.threads if t.name},
        calls=None,
        calls_path=str(calls.calls_path(box.path)),
    )


def _timed(ops: RankOps | None) -> RankOps | None:
    """Without operations whose time is not known (dumps of some recorders); None where nothing
    remains.
    """
    if ops is None:
        return None
    if any(op.entered_s <= 0 for op in ops.operations):
        ops = structs.replace(ops, operations=[op for op in ops.operations if op.entered_s > 0])
    return ops if ops.operations or ops.marks else None


def _sorted(ranks: Iterable[RankTrace]) -> list[RankTrace]:
    return sorted(ranks, key=lambda r: r.rank)


def _groups(ranks: Iterable[RankTrace]) -> dict[str, Group]:
    """Each group once, with its members: a capture of many nodes names them at one rank only."""
    found: dict[str, Group] = {}
    for trace in ranks:
        for group in trace.ops.groups:
            known = found.setdefault(group.uid, Group(group.uid, group.ranks, group.name))
            known.ranks = known.ranks or group.ranks
            known.name = known.name or group.name
    return found
