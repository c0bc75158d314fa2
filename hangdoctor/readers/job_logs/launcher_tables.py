"""What launchers and libraries other than torch's say over several lines: mpirun, Hydra, Horovod.

Process name: [[29973,1],0]        Open MPI; `[prterun-n1-812@1,0]` from version 5 on
Exit code:    1

=   RANK 3 PID 1234 RUNNING AT n1  MPICH's and Intel's Hydra, a box for each process
=   KILLED BY SIGNAL: 9 (Killed)
  exit status of rank 3: killed by signal 9     MPICH's older mpd

MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD    Open MPI
with errorcode 1.
application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3       MPICH

An MPI communication peer process has unexpectedly disconnected.    Open MPI
  Local host: n1
  Peer host:  n2

unable to complete a TCP connection to another process:             Open MPI
  Local host:    n1
  Remote host:   n7

*** reported by process [3456789,3]                                 Open MPI
*** MPI_ERR_RANK: invalid rank

ORTE has lost communication with a remote daemon.                   Open MPI
  Remote daemon: [[29973,0],3] on node n4

Stalled ranks:                     Horovod: ranks that have not submitted what the others wait for;
                                   older ones: "Missing ranks:"
2: [allreduce.grad_1, ...]
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...model.log_facts import (
    HYDRA,
    MPI_ABORT,
    AnyFact,
    Desync,
    Ended,
    KnownError,
    NodeLost,
    PeerClosed,
)
from ...text.late import late
from . import lost_daemons
from .openmpi_errors import OpenMpiErrors
from .rules import LAST_SIGNAL

_PROCESS = late(r"Process name: \[(?:\[\d{1,9},\d{1,9}\]|[\w.@-]{1,120}@\d{1,9}),\s?(\d{1,7})\]")
# horovodrun's: a slot of a host, or the rank
_SLOT = late(
    r"^\s{0,8}Process name: (?:([A-Za-z][\w.-]{0,120}|\d{1,3}(?:\.\d{1,3}){3})\[(\d{1,5})\]|(\d{1,7}))\s*$"
)
_CODE = late(
    r"\b(?:Exit code:|EXIT CODE:|EXIT STATUS:|[Ww]ith errorcode|Errorcode:) {1,12}(-?\d{1,11})"
)
_RUNNING = late(
    r"=\s+(?:RANK (\d{1,7}) )?PID (\d{1,9}) RUNNING AT (?:[\w.-]{1,60}@)?([\w.-]{1,120})"
)
_SIGNAL = late(r"KILLED BY SIGNAL: (\d{1,3})\b|EXIT STRING: .{1,60}?\(signal (\d{1,3})\)")
_MISSING = late(r"(?:(\S{1,200}) )?\[missing ranks: ?(\d[\d, ]{0,4000})\]")
_READY = late(r"\[ready ranks: ?(\d[\d, ]{0,4000})\]")
_STALLED = late(r"^\s*(\d{1,7}): \[(\S[^\]]{0,4000})")
_STALLED_BEHIND = late(r"(?:[\]>)] |<stderr>:)(\d{1,7}): \[(\S[^\]]{0,4000})")
_SCHEDULER = late(r"\bRank (\d{1,7}) scheduler is dead")
# A duplicate of communicator 0 numbers its ranks as the whole job does.
_ABORTED = late(
    r"MPI_ABORT was invoked on rank (\d{1,7}) in communicator (?:MPI_COMM_WORLD|MPI COMMUNICATOR \d{1,9} DUP FROM 0\b)"
)
_CALLED = late(
    r"application called MPI_Abort\((?:(?P<all>MPI_COMM_WORLD)|comm=0x[0-9a-fA-F]{1,16}), (?P<code>-?\d{1,11})\) - process (?P<number>\d{1,7})"
)
# Of a smaller communicator the number is that in it; these are those in the whole job.
_OF_ALL = late(r"\bAbort\(-?\d{1,11}\) on node (\d{1,7}) \(|\[Rank (\d{1,7})\] \[job id ")
_STATUS = late(
    r"^\s*[Ee]xit status of rank (\d{1,7}): (?:killed by signal (\d{1,3})|return code (\d{1,3}))"
)
# Open MPI prints its words on what several processes did once, and counts the others.
_MORE = late(
    r"\b(\d{1,7}) more process(?:es)? ha(?:s|ve) sent help message \S{1,80} ?/ ?(mpi-abort|mpi_errors_are_fatal)"
)
_DAEMON = late(r"^\s*Remote daemon ?: \[\S{1,120}\] on node ([\w.-]{1,250})")
_LOST = "communication peer process has unexpectedly"
_UNREACHED = "unable to complete a TCP connection"
_HOSTS = late(r"^\s*(Local|Peer|Remote) host: {1,8}([A-Za-z0-9][\w.-]{0,120})\s*$")
_LONG = 24  # lines of Open MPI's words on a peer that went away
_NEAR = 4  # lines in which such a table goes on
BEGINS = (
    lost_daemons.BEGIN,
    "Process name: ",
    "scheduler is dead",
    "MPI_ABORT was invoked",
    *("BAD TERMINATION", "RUNNING AT ", "caused collective abort"),
    *(_LOST, _UNREACHED, "such peer hangups", "lost communication with a remote daemon"),
    *("Stalled ranks", "Missing ranks:"),
    "Stalled ops",
)


class LauncherTables:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._ended: Ended | None = None
        self._left = 0  # lines of the table that may follow
        self._stalled = False
        self._lost: PeerClosed | KnownError | None = None
        self._words = 0  # lines of Open MPI's that may follow
        self._errors = OpenMpiErrors()
        self._daemons = lost_daemons.LostDaemons()
        self._told: dict[str, Ended | KnownError] = {}  # the last one of each such message

    def feed(self, text: str, whole: str = "") -> AnyFact | None:
        """A fact, once its last line was read; `whole`: the line with its prefix, which the number of a row
        may have been taken for.
        """
        if "issing ranks" in text and (match := _MISSING.search(text)) is not None:
            return _late(_numbers(match[2]), [match[1]] if match[1] else [])
        if "eady ranks" in text and (ready := _READY.findall(text)):
            absent = _absent([_numbers(listed) for listed in ready])
            return _late(absent, []) if absent else None
        if self._stalled:
            return self._of_list(text, whole)
        self._stalled = text.rstrip().endswith(("Stalled ranks:", "Missing ranks:"))
        if self._lost is not None or _LOST in text or _UNREACHED in text:
            return self._of_peer(text)
        if "sent help message" in text:
            self._add_more(text)
            return None
        if "**" in text and (error := self._errors.feed(text)) is not None:
            self._told["mpi_errors_are_fatal"] = error
            return error
        if (node := self._daemons.feed(text)) is not None:
            return node
        if "MPI_Abort(" in text and (match := _CALLED.search(text)) is not None:
            return _aborted(_caller(match, text), text, int(match["code"]))
        if "Remote daemon" in text and (match := _DAEMON.match(text)) is not None:
            return NodeLost(nodes=[match[1]], by="Open MPI")
        if "xit status of" in text and (match := _STATUS.match(text)) is not None:
            code = -int(match[2]) if match[2] else int(match[3])
            return Ended(rank=int(match[1]), code=code, by=HYDRA, first=True)
        self._begin(text)
        return self._end(text) if self._ended is not None else None

    def _of_list(self, text: str, whole: str) -> AnyFact | None:
        """A row of Horovod's list; a collector of logs may put empty lines between."""
        if not text.strip():
            return None
        match = _STALLED.match(text) or _STALLED_BEHIND.search(whole)
        self._stalled = match is not None
        return _row(int(match[1]), match[2]) if match is not None else None

    def _add_more(self, text: str) -> None:
        """So many more processes had what the last words on this topic said of one."""
        match = _MORE.search(text)
        if match is None:
            return
        more, fact = int(match[1]), self._told.get(match[2])
        if isinstance(fact, Ended):
            fact.more += more
        elif fact is not None:
            fact.values["more"] = str(int(fact.values.get("more", 0)) + more)

    def _of_peer(self, text: str) -> PeerClosed | KnownError | None:
        """Open MPI's word on the host of a process that it lost, or could not reach."""
        if self._lost is None:
            self._lost, self._words = PeerClosed(library="mpi"), _LONG
            if _UNREACHED in text:
                self._lost = KnownError(rule="mpi_connect")
            return None
        self._words -= 1
        match = _HOSTS.match(text)
        if match is not None and match[1] == "Local":
            self._lost.node = match[2]
        elif match is not None:
            lost, self._lost = self._lost, None
            if isinstance(lost, PeerClosed):
                lost.peer = match[2]
            elif lost is not None:
                lost.values = {"peer": match[2]}
            return lost
        if self._words <= 0:
            self._lost = None
        return None

    def _begin(self, text: str) -> None:
        if "Process name: [" in text and (match := _PROCESS.search(text)) is not None:
            self._ended = Ended(rank=int(match[1]), by="mpirun", first=True)
            self._left = _NEAR
        elif "Process name: " in text and (match := _SLOT.match(text)) is not None:
            node, rank = match[1] or "", int(match[3] or -1)
            worker = f"{node}[{match[2]}]" if node else ""
            self._ended = Ended(rank=rank, node=node, worker=worker, by="horovodrun", first=True)
            self._left = _NEAR
        elif "scheduler is dead" in text and (match := _SCHEDULER.search(text)) is not None:
            self._ended = Ended(rank=int(match[1]), by="sglang", first=True)
            self._left = _NEAR
        elif "MPI_ABORT was" in text and (match := _ABORTED.search(text)) is not None:
            self._ended = _aborted(int(match[1]), text)
            self._left = _NEAR
        elif "BAD TERMINATION" in text:  # older ones say neither rank nor process
            self._ended = Ended(by=HYDRA, first=True)
            self._left = _NEAR
        elif "RUNNING AT" in text and (match := _RUNNING.search(text)) is not None:
            rank = int(match[1]) if match[1] else -1
            self._ended = Ended(rank=rank, pid=int(match[2]), node=match[3], by=HYDRA, first=True)
            self._left = _NEAR

    def _end(self, text: str) -> Ended | None:
        """The end of the process, with its code; Hydra gives a signal as an exit code."""
        self._left -= 1
        if self._left < 0:
            self._ended = None
            return None
        signal, code = _SIGNAL.search(text), _CODE.search(text)
        if signal is None and code is None:
            return None
        ended, self._ended = self._ended, None
        if ended is not None and ended.by == MPI_ABORT:
            ended.given = max(int(code[1]), -1) if code is not None else -1
            ended.code = _status(int(code[1]) if code is not None else 0)
            self._told["mpi-abort"] = ended
        elif ended is not None:
            told = int(code[1]) if code is not None else 0
            number = _signal_of(told, hydra=ended.by == HYDRA)
            if signal is not None:
                number = int(signal[1] or signal[2])
            ended.code = -number if number else told
        return ended


def _caller(match: re.Match[str], text: str) -> int:
    """The rank that called MPI_Abort; -1 where the line has its number in a smaller communicator alone."""
    told = _OF_ALL.search(text)
    if told is not None:
        return int(told[1] or told[2])
    return int(match["number"]) if match["all"] else -1


def _aborted(rank: int, says: str, code: int = 0) -> Ended:
    """A rank that ended the job itself."""
    return Ended(
        rank=rank, code=_status(code), by=MPI_ABORT, first=True, given=max(code, -1), says=says
    )


def _status(code: int) -> int:
    """What a number that a program gives to MPI_Abort, often -1, is as an exit code."""
    return code & 0xFF or 1


def _signal_of(code: int, hydra: bool) -> int:
    if 128 < code <= 128 + LAST_SIGNAL:
        return code - 128
    return code if hydra and code in (4, 6, 7, 8, 9, 11, 15) else 0


def _numbers(listed: str) -> set[int]:
    return {int(n) for n in re.findall(r"\d{1,7}", listed)}


def _absent(ready: list[set[int]]) -> set[int]:
    """Ranks that have not submitted what others have, where Horovod lists the ready ones of each
    operation; none where the operations disagree on who that is.

    Of ranks above the highest of all lists nothing is known: the world size is not in the line.
    """
    known = set(range(max(max(ranks) for ranks in ready) + 1))
    absent = {frozenset(known - ranks) for ranks in ready} - {frozenset()}
    fewest = min(map(len, absent), default=0)
    smallest = [ranks for ranks in absent if len(ranks) == fewest]
    return set(smallest[0]) if len(smallest) == 1 else set()


def _row(rank: int, listed: str) -> Desync:
    """A row of one rank, which Horovod itself ends with dots where it is long."""
    names = [name.strip() for name in listed.split(",")]
    whole = [name for name in names if name and not name.startswith("...")]
    last = whole[-1].partition(" ...")[0] if whole else ""
    cut = len(whole) < len(names) or last != "".join(whole[-1:])
    row = _late([rank], [*whole[:-1], last] if whole else [])
    row.cut = cut
    return row


def _late(ranks: Iterable[int], names: list[str]) -> Desync:
    return Desync(ranks=sorted(set(ranks)), how="not_joined", by="horovod", names=names)
