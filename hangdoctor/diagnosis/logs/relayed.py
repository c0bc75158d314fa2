"""An engine's error that only repeats what one of its workers reported: the worker failed, and which one the
engine's line does not say.

RuntimeError: Worker failed with error 'NPU out of memory. Tried to allocate ...', please check the stack trace
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, PythonError
from ...text.late import late

_REPEATS = late(
    r"^(?:An? |One |The )?(?:[Ww]orker|[Rr]ank)(?: process)? failed with (?:the |an )?(?:following )?(?:error|exception):? ?"
    r"(?P<inner>\S.{0,300})"
)
_ADVICE = late(r"['\"]?,? (?:please )?(?:check|see) the stack trace\b.*$")


def relayed(fact: AnyFact) -> str:
    """What the worker had said; "" where an error is its speaker's own."""
    match = _REPEATS.match(fact.message) if isinstance(fact, PythonError) else None
    return _ADVICE.sub("", match["inner"]).strip().strip("'\"") if match is not None else ""
