"""How far the job came in one file, where it began again, and which errors it survived."""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from ...model.log_facts import KnownError, Progress, PythonError
from .rules import OF_A_RANK

# Lines of a rank after an error that it caught: more than a traceback and what is logged of an end
_SPOKE_ON = 100
_ALL_SPOKE_ON = 500  # the same of all, where nothing shows whose it was
_MOST = 1000  # errors that may yet turn out to be survived
_ON = 2  # iterations after an error, before the job is said to have gone on
_EVERYONE = -1
_HABIT = 4  # times that an error was caught before
_BETWEEN = 8  # lines between two of them
_LONG = 100  # lines between the first and the last
_THRICE, _FAR = 3, 20  # so many, with so many lines between any two
Way = tuple[int, int]  # of counting: which pattern, and up to what; only the same are compared


class _Failed(Struct):
    """An error, and how far the job and its own rank had come."""

    fact: PythonError | KnownError
    reached: dict[Way, int]
    of_rank: dict[Way, int]
    finished: int
    who: int  # whose lines are counted after it
    spoken: int  # until then
    all_spoken: int  # lines of all until then


def _who(rank: int, local: int) -> int:
    """A number for the rank, else for the local rank, else for everyone."""
    if rank >= 0:
        return rank
    return _EVERYONE - 1 - local if local >= 0 else _EVERYONE


def _is_habit(lines: list[int]) -> bool:
    """By how many lines had been spoken at each: several ranks say one thing at once, at the end of
    a job.
    """
    apart = sum(later - earlier >= _BETWEEN for earlier, later in pairwise(lines))
    return apart >= _HABIT or (len(lines) > _HABIT and lines[-1] - lines[0] >= _LONG)


def _came_again(failed: list[_Failed]) -> bool:
    """Whether a few of one kind came far apart, while the job went on: ranks that fail together
    print their stacks one below the other.
    """
    if len(failed) < _THRICE:
        return False
    return all(
        later.all_spoken - earlier.all_spoken >= _FAR
        and (_is_inside(later.fact) or later.reached != earlier.reached)
        for earlier, later in pairwise(failed)
    )


def _is_inside(fact: PythonError | KnownError) -> bool:
    """Whether it was caught where it was raised, as its traceback shows."""
    return isinstance(fact, PythonError) and (fact.logged or fact.inside)


def _habit(fact: PythonError | KnownError) -> object:
    """What is the same of an error that comes again: its kind, its place, and who says it. Fifty
    processes that crash alike are no habit of one.
    """
    who = fact.rank, fact.local, fact.node, fact.pid
    if isinstance(fact, KnownError):
        return fact.rule, who
    return fact.error, str(fact.frame), who


def _is_caught(fact: PythonError | KnownError) -> bool:
    """Whether nothing shows that it left the program, as C++ shows it of what it could not catch."""
    if isinstance(fact, KnownError):
        return not fact.says.lstrip().startswith("what(): ")
    return fact.logged or fact.inside


class Course:
    """Iterations and attempts, line by line."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._reached: dict[int, dict[Way, int]] = {_EVERYONE: {}}  # also of each rank
        self._first: dict[Way, int] = {}  # of this attempt
        self._finished: dict[int, int] = {}  # ends of the program, by rank
        self._ending = False
        self._errors: list[_Failed] = []
        self._spoken: dict[int, int] = {}  # lines of each rank, and of all

    def speak(self, rank: int, local: int) -> None:
        """A line that belongs to no traceback."""
        for who in {_who(rank, local), _EVERYONE}:
            self._spoken[who] = self._spoken.get(who, 0) + 1

    def reach(self, way: Way, fact: Progress, rank: int = -1) -> bool:
        """An iteration: one that was passed before, after an end, is another attempt's; whether it is
        a further one than all before.
        """
        everyone = self._reached[_EVERYONE]
        further = fact.iteration > everyone.get(way, -1)
        if self._ending and 0 <= fact.iteration < everyone.get(way, -1):
            self.attempt += 1
            self._ending = False
            self._reached = {_EVERYONE: {}}
            self._first = {}
        self._reached[_EVERYONE][way] = fact.iteration
        self._first.setdefault(way, fact.iteration)
        if rank >= 0:
            self._reached.setdefault(rank, {})[way] = fact.iteration
        return further

    def end(self) -> None:
        """A line told that a process, or the job, has ended."""
        self._ending = True

    def finish(self, rank: int) -> None:
        """A line that only a clean end prints."""
        self._finished[rank] = self._finished.get(rank, 0) + 1

    def fail(self, fact: PythonError | KnownError) -> None:
        """An error that may be the first."""
        who = _who(fact.rank, fact.local)
        failed = _Failed(
            fact=fact,
            reached=dict(self._reached[_EVERYONE]),
            of_rank=dict(self._reached.get(fact.rank, {})),
            finished=self._finished.get(fact.rank, 0),
            who=who,
            spoken=self._spoken.get(who, 0),
            all_spoken=self._spoken.get(_EVERYONE, 0),
        )
        self._errors.append(failed)
        del self._errors[:-_MOST]

    def settle(self) -> None:
        """Mark the errors after which the same attempt went on; of equal ones the last counts, and
        was caught as those before it were.
        """
        for failed in self._errors:
            fact = failed.fact
            if fact.attempt != self.attempt:
                continue
            before, fact.survived = fact.survived, self._went_on(failed)
            if before and isinstance(fact, PythonError):
                fact.logged = True
            elif before and fact.rule in OF_A_RANK:
                fact.survived = True  # a line of the program's own, which comes again and again
        self._forgive_habits()

    def _forgive_habits(self) -> None:
        """Mark the last ones of errors that were caught at one place again and again, with other
        lines between.
        """
        at: dict[object, list[_Failed]] = {}
        own = [failed for failed in self._errors if failed.fact.attempt == self.attempt]
        for failed in own:
            at.setdefault(_habit(failed.fact), []).append(failed)
        habits = {
            habit
            for habit, some in at.items()
            if _is_habit([failed.all_spoken for failed in some]) or _came_again(some)
        }
        for failed in own:
            fact = failed.fact
            if fact.role == "cause" and _is_caught(fact) and _habit(fact) in habits:
                fact.survived = True

    def _went_on(self, failed: _Failed) -> bool:
        """One that was logged was caught: its rank's next step, or its end, shows that it went on."""
        fact = failed.fact
        if self._spoke_on(failed):
            return True
        own = self._reached.get(fact.rank, {}) if fact.rank >= 0 else {}
        if fact.logged and fact.rank >= 0 and (own or fact.rank in self._finished):
            further = any(n > failed.of_rank.get(way, -1) for way, n in own.items())
            return further or self._finished.get(fact.rank, 0) > failed.finished
        # Of the others a first line alone may say where it begins ("resuming at step 1200").
        began = failed.reached if fact.rank < 0 else self._first | failed.reached
        every = self._reached[_EVERYONE]
        moved = {way: n for way, n in every.items() if not self._is_last_line_alone(way, n)}
        return any(n >= max(began.get(way, 0), 0) + _ON for way, n in moved.items())

    def _spoke_on(self, failed: _Failed) -> bool:
        """Whether who caught it, or logged it as an error in words of its own, printed much more
        after that; a rank that is known printed what no process does that has ended by it.
        """
        fact = failed.fact
        if isinstance(fact, PythonError):
            alive = not fact.thread and failed.who != _EVERYONE
            counts = fact.logged or fact.inside or alive
        else:
            counts = fact.logged or fact.rule in OF_A_RANK
        if not counts:
            return False
        enough = _ALL_SPOKE_ON if failed.who == _EVERYONE else _SPOKE_ON
        return self._spoken.get(failed.who, 0) - failed.spoken >= enough

    def _is_last_line_alone(self, way: Way, reached: int) -> bool:
        """Whether all that was seen of a bar is its end, which any process may have printed late."""
        _, total = way
        return reached == total == self._first.get(way, -1)
