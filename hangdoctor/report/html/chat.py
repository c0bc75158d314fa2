"""The verdict as a few lines of plain text, to paste into a chat or a ticket."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..._version import __version__
from ...model.capture import JobCapture
from ...model.diagnosis import Cause, Diagnosis
from ...text.job_names import short_job
from ...text.plain import visible
from ...text.ranges import format_hosts, format_ranks
from .safe_text import cut, cut_list, plural

_EVIDENCE, _ALSO = 4, 4


def text(diagnosis: Diagnosis, capture: JobCapture) -> str:
    """Short lines, names cut: a chat has no room for 10,000 characters."""
    return "\n".join(visible(line) for line in _lines(diagnosis, capture)) + "\n"


def _lines(diagnosis: Diagnosis, capture: JobCapture) -> Iterator[str]:
    job = diagnosis.job
    layout = f", dp {job.layout.dp} x pp {job.layout.pp} x tp {job.layout.tp}" if job.layout else ""
    at = time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(capture.taken)) if capture.taken else ""
    yield f"{diagnosis.status.upper()}: job {cut(short_job(job.id), 80)} ({plural(job.world_size, 'rank')}{layout}){at}"
    yield cut(diagnosis.summary, 700)
    for cause in diagnosis.causes[:1]:
        yield from _first(cause)
    for cause in diagnosis.causes[1 : 1 + _ALSO]:
        yield f"Also: {cut(cause.summary, 300)} ({cause.kind}, {cause.confidence:.0%})"
    if len(diagnosis.causes) > 1 + _ALSO:
        yield f"Also: {len(diagnosis.causes) - 1 - _ALSO} more causes"
    for missing in diagnosis.missing[:3]:
        at = f" on {missing.node}" if missing.node else ""
        yield f"Missing: {missing.what} of ranks {cut_list(format_ranks(missing.ranks), 60) or 'unknown'}{cut(at, 80)}: {cut(missing.why, 200)}"
    yield f"(hangdoctor {__version__})"


def _first(cause: Cause) -> Iterator[str]:
    yield f"{cause.kind}, confidence {cause.confidence:.0%}" + (
        f", nodes {cut(format_hosts(cause.nodes), 100)}" if cause.nodes else ""
    )
    if cause.advice:
        yield f"Do: {cut(cause.advice, 500)}"
    for evidence in cause.evidence[:_EVIDENCE]:
        yield f"- {evidence.source}, ranks {cut_list(format_ranks(evidence.ranks), 60)}: {cut(evidence.says, 300)}"
