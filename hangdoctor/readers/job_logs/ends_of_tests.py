"""The last lines of Python's unittest and of pytest, where all tests went well: an ordinary end.

Ran 2 tests in 95.120s

OK (skipped=1)
"""

from __future__ import annotations

from ...model.log_facts import Finished
from ...text.late import late

_RAN = late(r"^Ran [1-9]\d{0,6} tests? in \d{1,9}(?:\.\d{1,9})?s$")
_OK = late(r"^OK(?: \((?:skipped|expected failures)=\d[^()]{0,80}\))?$")
_PYTEST = late(
    r"^=+ (?:[1-9]\d{0,6} (?:passed|skipped|warnings?|deselected|xfailed)(?:, )?){1,5} in \d"
)
_APART = 2  # lines between them


class EndsOfTests:
    """Takes the lines of one file in order."""

    def __init__(self) -> None:
        self._left = 0

    def feed(self, text: str) -> Finished | None:
        """The end that a line completes."""
        line = text.strip()
        if _RAN.match(line) is not None:
            self._left = _APART
            return None
        if self._left > 0 and _OK.match(line) is not None:
            self._left = 0
            return Finished(says=line, tests=True)
        self._left -= 1
        passed = line.startswith("=") and _PYTEST.match(line) is not None
        return Finished(says=line, tests=True) if passed else None
