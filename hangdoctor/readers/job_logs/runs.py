"""Logs of several runs, one after the other in one file or each in its own: by the numbers of Slurm's jobs and
of Open MPI's, which only one run has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from ...model.log_facts import AnyFact
from ...text.late import late

_SLURM = late(
    r"\b(?:STEP|JOB) (\d{1,10})(?:\.\d{1,6})? ON\b|\bStepId=(\d{1,10})\.|\bjob step (\d{1,10})\.\d"
)
_OPEN_MPI = late(r"reported by process \[(\d{5,12}),\s?\d|(?:Process name|Proc): \[\[(\d{1,9}),\d")
_LOCAL_BITS = 16  # of Open MPI's number of a job, below that of its mpirun
_ALIKE = 16  # numbers that Slurm may give to the parts of one job
_PROMPT = late(r"\s{0,8}(?:\(\w{1,40}\) ?)?(?:\[?[\w.-]{1,40}@[\w.~/: -]{1,80}\]?)?[$#%] ?\S")
_MOST = 64  # runs of one file
_GAPS = 4096


class Run(Struct):
    """The lines of one file that have its number."""

    first: int
    last: int


class RunNumbers:
    """Of one file; the runs of Slurm and of Open MPI are numbered apart."""

    def __init__(self) -> None:
        self.slurm: dict[int, Run] = {}
        self.open_mpi: dict[int, Run] = {}
        # Lines that may stand between two runs
        self.prompts: list[int] = []
        self.blanks: list[int] = []

    def look(self, text: str, line: int) -> None:
        """Take a line."""
        if not text.strip():
            self.blanks.append(line)
            del self.blanks[_GAPS:]
        elif text.lstrip()[:1] in "([$#%" and _PROMPT.match(text) is not None:
            self.prompts.append(line)
            del self.prompts[_GAPS:]
        elif "rocess" in text or "Proc: [" in text:
            match = _OPEN_MPI.search(text)
            if match is not None:
                _add(self.open_mpi, int(match[2] or int(match[1]) >> _LOCAL_BITS), line)
        elif "STEP" in text or "JOB " in text or "tep" in text:
            match = _SLURM.search(text)
            if match is not None:
                _add(self.slurm, int(match[1] or match[2] or match[3]), line)

    def begins(self) -> list[int]:
        """The lines behind which another run begins, where one has ended before the next one is named and
        something stands between them.
        """
        runs = sorted(self.slurm.values() or self.open_mpi.values(), key=lambda run: run.first)
        found = []
        for i, (one, other) in enumerate(pairwise(runs)):
            prompts = [line for line in self.prompts if one.last < line < other.first]
            blanks = [line for line in self.blanks if one.last < line < other.first]
            between = prompts or blanks
            if not between or any(other.first < earlier.last for earlier in runs[: i + 1]):
                return []
            found.append(between[0])
        return found


def _add(runs: dict[int, Run], number: int, line: int) -> None:
    if number in runs:
        runs[number].last = line
    elif len(runs) < _MOST:
        runs[number] = Run(line, line)


def number(facts: Sequence[AnyFact], of_files: Sequence[RunNumbers]) -> int:
    """Number the runs as attempts, those of one file and those of several; how many there are."""
    inside = 1
    for index, numbers in enumerate(of_files):
        begins = numbers.begins()
        for fact in facts:
            if fact.file == index:
                fact.attempt += sum(fact.line > line for line in begins)
        inside = max(inside, len(begins) + 1)
    if inside > 1 or len(of_files) < 2:
        return inside
    order = _of_files(facts, of_files)
    for fact in facts if order else ():
        fact.attempt = order.index(_only(of_files[fact.file]))
    return max(len(order), 1)


def _of_files(facts: Sequence[AnyFact], of_files: Sequence[RunNumbers]) -> list[int]:
    """The numbers of the runs in their order, where each file that tells something has one; else []."""
    telling = sorted({fact.file for fact in facts})
    numbers = {file: _only(of_files[file]) for file in telling}
    distinct = sorted(set(numbers.values()))
    near = any(b - a < _ALIKE for a, b in pairwise(distinct))
    if len(distinct) < 2 or -1 in distinct or near or any(fact.attempt for fact in facts):
        return []
    dated = {n: [f.at for f in facts if numbers[f.file] == n and f.at > 0] for n in distinct}
    if all(dated.values()):
        distinct.sort(key=lambda n: max(dated[n]))
    return distinct


def _only(numbers: RunNumbers) -> int:
    """Slurm's number of the one job of a file; -1 for none, or several."""
    return next(iter(numbers.slurm)) if len(numbers.slurm) == 1 else -1
