"""Tracebacks without a speaker that begin in a function of the program's, as of an exception that
was caught, above the whole one of the only rank that then failed by itself: that rank's own error
is the failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, Ended, PythonError


def settle(facts: Sequence[AnyFact]) -> None:
    """Mark those that were caught."""
    failed = {(f.rank, f.attempt) for f in facts if isinstance(f, Ended) and f.code > 0}
    for attempt in {attempt for _, attempt in failed}:
        ranks = {rank for rank, of in failed if of == attempt}
        errors = [f for f in facts if isinstance(f, PythonError) and f.attempt == attempt]
        own = [f for f in errors if f.rank in ranks and f.role == "cause" and not f.inside]
        if len(ranks) == 1 and own:
            _mark(errors, own[0])


def _mark(errors: Sequence[PythonError], last: PythonError) -> None:
    for error in errors:
        nameless = error.rank < 0 and error.local < 0 and error.inside
        if nameless and error.file == last.file and error.line < last.line:
            error.survived = True
