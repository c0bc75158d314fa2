"""Open MPI's words on a call that failed, some lines of each process, which may be mixed with others'.

[n1:4711] *** An error occurred in MPI_Recv
[n1:4711] *** reported by process [3456789,3]        the rank; older versions do not say it
[n1:4711] *** on communicator MPI_COMM_WORLD
[n1:4711] *** MPI_ERR_TRUNCATE: message truncated
[n1:4711] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,

With that handler it ends the job: whoever crashes afterwards does so while the job is ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from msgspec import Struct

from ...model.log_ends import CRASHES
from ...model.log_facts import AnyFact, Ended, KnownError, PeerClosed
from ...text.late import late

_STARS = late(
    r"^\s*(?:\[(?P<node>[A-Za-z0-9][\w.-]{0,127}):(?P<pid>\d{1,9})\] ?)?\*\*\* {0,4}(?P<words>\S.{0,200})"
)
_CALL = late(r"An error occurred in (?P<call>[\w ]{3,60})")
_REPORTED = late(r"reported by process \[\d{1,20},\s?(\d{1,7})\]")
_ERROR = late(r"(MPI_ERR_(?!ORS_)(\w{1,40})(?:: [\w ,()'/-]{1,60})?)")
# By the class of the error; the argument classes are many
_WRONG = frozenset(
    "ARG BUFFER COMM COUNT DIMS GROUP OP RANK REQUEST ROOT TAG TOPOLOGY TYPE WIN KEYVAL INFO_KEY INFO_VALUE"
    " INFO DISP SIZE ASSERT LOCKTYPE RMA_CONFLICT RMA_SYNC RMA_RANGE RMA_ATTACH RMA_SHARED RMA_FLAVOR BASE"
    " AMODE NOT_SAME UNSUPPORTED_DATAREP UNSUPPORTED_OPERATION ERRHANDLER SESSION SERVICE PORT NAME".split()
)
_OF_FILES = frozenset(
    "ACCESS BAD_FILE FILE FILE_EXISTS FILE_IN_USE IO NO_SPACE NO_SUCH_FILE QUOTA READ_ONLY".split()
)
_RULES = {"TRUNCATE": "mpi_err_truncate", "INTERN": "mpi_err_intern", "NO_MEM": "mpi_err_memory"}
_OWN = frozenset(
    {"mpi_err_wrong", "mpi_err_io", "mpi_err_memory", "mpi_err_intern", "mpi_err_truncate"}
)
_OUTSIDE, _START_ABORTED = "mpi_outside", "mpi_init_aborted"
_HANDLER = "signal handler"  # who says that a process aborted
_Process = tuple[str, int]


class _Block(Struct):
    rank: int = -1
    call: str = ""


class OpenMpiErrors:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._blocks: dict[_Process, _Block] = {}

    def feed(self, text: str) -> KnownError | None:
        """The error of a call, once its class was read, where the lines above it tell whose it is."""
        match = _STARS.match(text.replace("**\\*", "***"))  # as web pages show the stars
        if match is None:
            return None
        process = (match["node"] or "", int(match["pid"] or 0))
        words = match["words"]
        block = self._blocks.setdefault(process, _Block())
        if (call := _CALL.search(words)) is not None:
            self._blocks[process] = _Block(call=call["call"].strip())
        elif (reported := _REPORTED.search(words)) is not None:
            block.rank = int(reported[1])
        elif (error := _ERROR.search(words)) is not None:
            self._blocks.pop(process, None)
            return _of_class(block, process, says=error[1], name=error[2])
        elif words.startswith("Unknown error"):
            self._blocks.pop(process, None)
            return _of_class(block, process, says="unknown error", name="UNKNOWN")
        return None


def _of_class(block: _Block, process: _Process, says: str, name: str) -> KnownError | None:
    node, pid = process
    if block.rank < 0 and not pid and not block.call:
        return None
    rule = _RULES.get(name, "mpi_err_other")
    if name in _WRONG:
        rule = "mpi_err_wrong"
    if name in _OF_FILES:
        rule = "mpi_err_io"
    values = {"why": says.strip()}
    if block.call:
        values["call"] = f"in {block.call}" if name != "TRUNCATE" else f"({block.call})"
    role = "cause" if rule in _OWN else "consequence"
    return KnownError(rule=rule, role=role, rank=block.rank, node=node, pid=pid, values=values)  # type: ignore[arg-type]


def settled(facts: Sequence[AnyFact]) -> list[AnyFact]:
    """The facts without a rule's own word on a line whose process or call the lines above it told, and without
    blame for who crashed while the job was ended.
    """
    named = {(f.file, f.line, f.rule) for f in facts if _is_named(f)}
    kept = [f for f in facts if _is_named(f) or (f.file, f.line, _rule(f)) not in named]
    _excuse_crashes(kept)
    _tell_early_calls(kept)
    return kept


def _tell_early_calls(facts: Iterable[AnyFact]) -> None:
    """Its last line before MPI_Init is that of a call which came too early, where the log has such a call."""
    known = [f for f in facts if isinstance(f, KnownError)]
    early = {f.file for f in known if f.rule == _OUTSIDE and "call" in f.values}
    for fact in known:
        if fact.rule == _START_ABORTED and fact.file in early:
            fact.rule = _OUTSIDE


def _rule(fact: AnyFact) -> str:
    return fact.rule if isinstance(fact, KnownError) else ""


def _is_named(fact: AnyFact) -> TypeGuard[KnownError]:
    if not isinstance(fact, KnownError) or not fact.rule.startswith("mpi_err_"):
        return False
    return fact.rank >= 0 or fact.pid > 0 or "call" in fact.values


def _excuse_crashes(facts: Iterable[AnyFact]) -> None:
    """Crashes after a fatal error of another process: the library was ending them by then."""
    ended: dict[int, KnownError] = {}
    lost: set[int] = set()
    aborted: set[tuple[int, str, int]] = set()
    for fact in facts:
        if isinstance(fact, Ended) and fact.by == _HANDLER:
            aborted.add((fact.file, fact.node, fact.pid))
        if isinstance(fact, PeerClosed):
            lost.add(fact.file)
        if not isinstance(fact, KnownError):
            continue
        if fact.rule == "mpi_err_intern" and fact.file in lost:
            fact.role = "consequence"  # it came of the lost connection
        if fact.rule in CRASHES and (fact.file, fact.node, fact.pid) in aborted:
            fact.role = "consequence"  # its handler, or what ran at its end, failed in turn
        first = ended.get(fact.file)
        if fact.rule in _OWN and fact.role == "cause":
            ended.setdefault(fact.file, fact)
        elif first is not None and fact.rule in CRASHES and _is_another(first, fact):
            fact.role = "consequence"


def _is_another(first: KnownError, fact: KnownError) -> bool:
    """Whether a line is later, and not of the process that had the error."""
    same = (first.node, first.pid) == (fact.node, fact.pid)
    return fact.line > first.line and fact.pid > 0 and not same
