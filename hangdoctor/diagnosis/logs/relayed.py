"""An engine's error that only repeats what one of its workers reported: the worker failed, and which one the
engine's line does not say.

RuntimeError: Worker failed with error 'NPU out of memory. Tried to allocate ...', please check the stack trace
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...model.log_facts import AnyFact, PythonError

_REPEATS = re.compile(
    r"^(?:An? |One |The )?(?:[Ww]orker|[Rr]ank)(?: process)? failed with (?:the |an )?(?:following )?(?:error|exception):? ?"
    r"(?P<inner>\S.{0,300})"
)
_ADVICE = re.compile(r"['\"]?,? (?:please )?(?:check|see) the stack trace\b.*$")


class Relayed(Struct, frozen=True):
    """What the worker had said."""

    error: str


def relayed(fact: AnyFact) -> Relayed | None:
    """None where an error is its speaker's own."""
    match = _REPEATS.match(fact.message) if isinstance(fact, PythonError) else None
    if match is None:
        return None
    return Relayed(_ADVICE.sub("", match["inner"]).strip().strip("'\""))
