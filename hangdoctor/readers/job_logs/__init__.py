"""Job logs: what people have when the job is over.

Lines are taken as they come, from files, packed files or standard input; what is kept of them are
facts (`model.log_facts`), each with file and line, bounded however long the log is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...model.log_facts import AnyFact, JobLogs, LogFile
from ...text.late import late
from . import source
from .source import STDIN, STDIN_NAME

_NAMED = late(
    r"(?:^slurm-\d|\.(?:log|out|err|stdout|stderr)(?:\.\d{1,4})?(?:\.(?:gz|xz|bz2|zst))?$"
    r"|(?:^|[-_.])(?:logs?|out|output|err|errors?|stdout|stderr|console|messages|dmesg)(?:[-_.]\w{1,40})?\.txt$)"
)


def is_log(path: Path) -> bool:
    """Whether a file may be a log: text, packed or not."""
    return path == STDIN or source.is_text(source.head(path))


def is_named_log(path: Path) -> bool:
    """Whether a file's name says that it is a job's output, packed or not, and it holds text."""
    names_one = path == STDIN or path.name == STDIN_NAME or _NAMED.search(path.name) is not None
    return names_one and is_log(path)


def read(paths: Sequence[Path]) -> tuple[JobLogs, list[Path], list[str]]:
    """(what the logs tell, the files that told nothing, notes).

    The modules that do it are imported with the first log: dumps and boxes have none.

    Raises:
        BadInput: the user's rules cannot be read.
    """
    from . import reading

    return reading.read(paths)


def with_account(logs: JobLogs, name: str, says: str, facts: list[AnyFact], at: float) -> JobLogs:
    """The logs with what the scheduler says of the job, as a file of one line."""
    for fact in facts:
        fact.file, fact.line, fact.at, fact.says = len(logs.files), 1, at, says
        fact.attempt = logs.attempts - 1
    logs.files.append(LogFile(name, 1, len(says)))
    logs.facts += facts
    return logs


__all__ = ["STDIN", "STDIN_NAME", "is_log", "is_named_log", "read", "with_account"]
