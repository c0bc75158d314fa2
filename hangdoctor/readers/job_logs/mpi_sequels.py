"""Lines of MPI's that only follow from an error right above them.

[unset]: write_line error; fd=-1 buf=:cmd=abort exitcode=1     a process that was started without a launcher
system msg for write_line failure : Bad file descriptor        cannot pass its abort on

*** MPI_ERR_INTERN: internal error                             Open MPI, of processes without a transport
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, KnownError

_LOST = "pmi_lost"  # rules
_INTERNAL = "mpi_err_intern"
_APART = "mpi_no_transport"
_NEAR = 12  # lines


def mark_sequels(facts: Sequence[AnyFact]) -> None:
    """Such lines are no errors of their own."""
    errors = [f for f in facts if isinstance(f, KnownError)]
    causes = [f for f in errors if f.role == "cause" and f.rule.startswith("mpi_")]
    for fact in errors:
        if fact.rule not in (_LOST, _INTERNAL):
            continue
        above = [f for f in causes if f.file == fact.file and f.line < fact.line]
        near = any(fact.line - f.line <= _NEAR and f.rule != _INTERNAL for f in above)
        apart = any(f.rule == _APART for f in above)
        if (fact.rule == _LOST and near) or (fact.rule == _INTERNAL and apart):
            fact.role = "consequence"
