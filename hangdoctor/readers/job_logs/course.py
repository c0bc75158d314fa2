"""How far the job came in one file, where it began again, and which errors it survived."""

from __future__ import annotations

from ...model.log_facts import KnownError, Progress, PythonError

_MOST = 1000  # errors that may yet turn out to be survived
_ON = 2  # iterations after an error, before the job is said to have gone on
Way = tuple[int, int]  # of counting: which pattern, and up to what; only the same are compared


class Course:
    """Iterations and attempts, line by line."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._reached: dict[Way, int] = {}
        self._ending = False
        self._errors: list[tuple[PythonError | KnownError, dict[Way, int]]] = []

    def reach(self, way: Way, fact: Progress) -> None:
        """An iteration: one that was passed before, after an end, is another attempt's."""
        if self._ending and 0 <= fact.iteration < self._reached.get(way, -1):
            self.attempt += 1
            self._ending = False
            self._reached = {}
        self._reached[way] = fact.iteration

    def end(self) -> None:
        """A line told that a process, or the job, has ended."""
        self._ending = True

    def fail(self, fact: PythonError | KnownError) -> None:
        """An error that may be the first."""
        self._errors.append((fact, dict(self._reached)))
        del self._errors[:-_MOST]

    def settle(self) -> None:
        """Mark the errors after which the same attempt went on."""
        for fact, reached in self._errors:
            on = any(n >= max(reached.get(way, 0), 0) + _ON for way, n in self._reached.items())
            if on and fact.attempt == self.attempt:
                fact.survived = True
