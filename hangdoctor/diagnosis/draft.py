"""What the passes have found so far, each adding to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from ..model.diagnosis import CallsParting, Status, Wait
from .case import Case
from .findings import EndedMeanwhile, Finding
from .findings.log_remaining import LogRemaining
from .findings.log_stories import Event
from .ops import OpsVerdict
from .ops.evidence import Note


def ranks_blamed(findings: Iterable[Finding]) -> set[int]:
    """All ranks that these findings name."""
    return {rank for finding in findings for rank in finding.ranks}


class Draft(Struct):
    """A verdict in the making."""

    facts: list[Finding] = []  # about single processes
    by_stacks: list[Finding] = []  # facts included, likeliest first
    excused: set[int] = set()  # ranks that wait for what a finding on another process explains
    ops: OpsVerdict | None = None  # None where no rank has records of operations
    beyond: bool = False  # the operations blame only ranks that were not asked for
    findings: list[Finding] = []  # what the report will say
    status: Status | None = None
    waits: list[Wait] = []
    notes: list[Note] = []
    calls: CallsParting | None = None
    remaining: LogRemaining | None = None  # why job logs name no rank, where they are all there is
    open: list[Finding] = []  # of a hang without findings: between which ranks it is left open
    ended: EndedMeanwhile | None = None  # the job ended while it was captured
    chain: list[Event] = []  # what happened, by the job's logs

    @property
    def blamed(self) -> set[int]:
        """Ranks that the stacks' findings name or explain."""
        return self.excused | ranks_blamed(self.by_stacks)


Pass = Callable[[Case, Draft], None]
Find = Callable[[Case, set[int]], list[Finding]]


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The likeliest first."""
    return sorted(findings, key=lambda f: (-f.confidence, f.ranks))


def add_first(find: Find, case: Case, draft: Draft) -> None:
    """Ask one pass over stacks, where only facts about processes are known yet: the first that
    finds anything ends it.
    """
    if len(draft.by_stacks) > len(draft.facts):
        return
    draft.by_stacks = ordered(draft.facts + find(case, draft.blamed))
