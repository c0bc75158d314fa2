"""What actions get to know: of the first cause of a diagnosis, or of an event of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..collector.training_events import Said
from ..model.diagnosis import Diagnosis
from ..text.ranges import format_ranks

EVENT = "event"  # the status of an event of the training
Subject = Literal["verdict", "event"]


class Verdict(Struct):
    """The fields of a webhook, and the words of a command."""

    id: str
    job: str
    status: str
    kind: str = ""
    ranks: str = ""
    nodes: list[str] = []
    confidence: float = 0.0
    summary: str = ""
    bundle: str = ""
    pids: dict[str, list[int]] = {}  # node -> processes of the first cause
    iteration: int = -1  # of an event of the training

    @classmethod
    def of(cls, id: str, diagnosis: Diagnosis, bundle: Path) -> Verdict:
        """The first cause of a diagnosis, with the processes of its ranks."""
        verdict = cls(
            id=id,
            job=diagnosis.job.id,
            status=diagnosis.status,
            summary=diagnosis.summary,
            bundle=str(bundle),
        )
        if not diagnosis.causes:
            return verdict
        first = diagnosis.causes[0]
        verdict.kind, verdict.confidence = first.kind, first.confidence
        verdict.ranks, verdict.nodes = format_ranks(first.ranks), first.nodes
        culprits = set(first.ranks)
        for line in diagnosis.ranks:
            if line.rank in culprits and line.pid > 1:
                verdict.pids.setdefault(line.node, []).append(line.pid)
        return verdict

    @classmethod
    def of_event(cls, said: Said) -> Verdict:
        """What the training said of itself, with the process that said it."""
        event = said.event
        return cls(
            id=f"event-{event.rank}-{event.made}-{event.serial}",
            job=said.job,
            status=EVENT,
            kind=event.kind,
            ranks=str(event.rank),
            nodes=[said.node],
            confidence=1.0,
            summary=event.text or event.kind,
            pids={said.node: [event.pid]} if event.pid > 1 else {},
            iteration=event.iteration,
        )

    @property
    def subject(self) -> Subject:
        """Each has a cool-down of its own: a spike must not silence a hang."""
        return "event" if self.status == EVENT else "verdict"
