"""MPICH's block of two lines on a call that failed, the first of which has the rank and the second the call.

[cli_3]: aborting job:
Fatal error in MPI_Barrier: Internal MPI error!, error stack:
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, KnownError

_HEAD = "mpi_cli"  # a rule
_NEAR = 2  # lines
_CALL = "call"  # a value that the second line tells


def joined(facts: Sequence[AnyFact]) -> list[AnyFact]:
    """The facts, with the rank of the first line moved to the second, which says more; the first is left out."""
    known = [f for f in facts if isinstance(f, KnownError)]
    heads = [f for f in known if f.rule == _HEAD and f.rank >= 0]
    told: set[int] = set()
    for head in heads:
        below = [f for f in known if f.file == head.file and 0 < f.line - head.line <= _NEAR]
        call = next((f for f in below if f.rank < 0 and _CALL in f.values), None)
        if call is not None:
            call.rank = head.rank
            told.add(id(head))
    return [f for f in facts if id(f) not in told]
