"""Pass: the job's output beside stacks of which no rank is known: what it names counts for more."""

from __future__ import annotations

from . import logs, own_ends
from .case import Case
from .draft import Draft


def run(case: Case, draft: Draft) -> None:
    """What the logs name; else what the stacks showed, with the chain of the logs."""
    own = Draft()
    logs.run(case, own)
    draft.chain, draft.notes = own.chain, draft.notes + own.notes
    if own.findings:
        draft.findings, draft.status, draft.waits = own.findings, own.status, own.waits
        own_ends.add_stack(case, own.findings[0])
