"""The text of `ncclras -v`, made for people, read line by line.

It has a table of groups of like communicators, then sections whose titles name a communicator
("#<group>-<number> (<hash>) MISMATCH") and whose lines name counts and outlying ranks. A majority
is known by its number only; where all other ranks of a communicator are named, the rest is the
majority.
"""

from __future__ import annotations

import re

from ..model.ras_report import RasCommunicator, RasCounts, RasProcess, RasRank, RasReport, op_name
from ..text.late import late
from ..text.ranges import MAX_RANKS

_VERSION = late(r"^NCCL version (\S+)")
_GROUP_ROW = late(
    r"^\s*([0-9]{1,18})\s+([0-9]{1,18})\s+[0-9]+\s+[0-9-]+\s+([0-9]{1,18})\s+[0-9]+\s+[\w,]+\s+[\w,]+\s*$"
)
_TOTALS = late(r"^\(total\).*\(total\)$")
_NUMBERS = late(r"^\s*(?:[0-9]{1,18}\s+)+([0-9]{1,18})$")
_TITLE = late(r"^#([0-9]{1,18})-([0-9]{1,18}) \(([0-9a-f]+)\) ([A-Z]+)$")
_PROCESS = late(r"^Process ([0-9]{1,18}) on node (\S+) managing GPUs? (.+)$")
_RANK = late(r"^Rank ([0-9]{1,9})(?: has (?P<has>.+)| reported (?P<error>.+))?$")
_ON_NODE = late(r" managed by process ([0-9]{1,18}) on node (\S+)$")
_NO_PROCESS = "[process information not found]"
_BUCKET = late(
    r"^([0-9]{1,18}) ranks have (?:launched up to operation ([0-9]{1,18})|(not launched any operations))$"
)
_STATUS = late(r"^(?:([0-9]{1,18}) ranks have )?status (\w+)$")
_DIFFERENT = late(r"^Communicator ranks have different (\w+) operation counts$")
_REPORTED = late(r"^[0-9]+ ranks reported (.+)$")
_TIMEOUTS = late(r"Encountered ([0-9]{1,18}) communication timeouts?")
_ONE_MISSING = late(r"^The missing ranks?: ([0-9, -]+)$")


class _Reader:
    """What the lines so far have been about."""

    def __init__(self) -> None:
        self.report = RasReport()
        self.sizes: dict[int, int] = {}
        self.comms: dict[str, RasCommunicator] = {}
        self.known: dict[tuple[str, int], RasRank] = {}
        self.comm: RasCommunicator | None = None
        self.section = ""
        self.totals = False  # the line before is the head of the job's totals
        self.op = ""
        self.counting = False
        self.bucket: RasCounts | None = None
        self.state = ""
        self.error = ""

    def line(self, text: str) -> None:
        stripped = text.strip()
        totals, self.totals = self.totals, _TOTALS.match(stripped) is not None
        if totals and (match := _NUMBERS.match(stripped)):
            self.report.gpus = size_of(int(match[1]))
        elif match := _VERSION.match(stripped):
            self.report.version = match[1]
        elif match := _GROUP_ROW.match(text):
            self.sizes[int(match[1])] = size_of(int(match[3]))
            self.report.largest = max(self.sizes.values())
        elif match := _TITLE.match(stripped):
            self._title(match)
        elif stripped in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            self.section, self.comm = stripped, None
        elif match := _TIMEOUTS.search(stripped):
            self.report.timeouts = int(match[1])
        elif match := _PROCESS.match(stripped):
            where = self.report.dead if self.section == "DEAD" else self.report.silent
            where.append(RasProcess(match[2], int(match[1]), match[3]))
        elif self.comm is not None:
            self._about(self.comm, stripped)

    def _title(self, match: re.Match[str]) -> None:
        self.section, self.counting, self.bucket, self.state, self.error = (
            match[4],
            False,
            None,
            "",
            "",
        )
        known = self.comms.get(match[3])
        if known is None:
            known = self.comms[match[3]] = RasCommunicator(
                match[3], self.sizes.get(int(match[1]), 0)
            )
            self.report.communicators.append(known)
        known.problems.append(match[4])
        self.comm = known

    def _about(self, comm: RasCommunicator, line: str) -> None:
        if match := _DIFFERENT.match(line):
            self.op, self.counting, self.bucket = (
                op_name(match[1]) if match[1] != "collective" else "",
                True,
                None,
            )
        elif match := _BUCKET.match(line):
            self.bucket = RasCounts(self.op, int(match[2] or 0), int(match[1]))
            comm.differences.append(self.bucket)
        elif match := _STATUS.match(line.removeprefix("Communicator ranks have different ")):
            self.counting, self.state = False, match[2].lower()
        elif match := _REPORTED.match(line):
            self.error = match[1]
        elif match := _ONE_MISSING.match(line):  # NCCL 2.24's form
            comm.missing += [
                RasRank(int(r), state="missing") for r in re.findall(r"[0-9]{1,9}", match[1])
            ]
        else:
            about, dashes, process = line.rpartition(" -- ")
            match, of = _RANK.match(about), _process_in(process)
            if match and dashes and of is not None:
                self._rank(comm, match, of)

    def _rank(self, comm: RasCommunicator, match: re.Match[str], process: RasProcess) -> None:
        number = int(match[1])
        if self.section == "INCOMPLETE":
            comm.missing.append(RasRank(number, process, state="missing"))
            return
        rank = self.known.get((comm.hash, number))
        if rank is None:
            rank = self.known[comm.hash, number] = RasRank(number, process)
            comm.ranks.append(rank)
        has = match["has"] or ""
        if self.section == "ERROR":
            rank.state, rank.error = "error", match["error"] or self.error
        elif has.startswith("status "):
            rank.state = has.removeprefix("status ").lower()
        elif self.counting:
            self._count(comm, rank, has)
        elif self.state:
            rank.state = self.state

    def _count(self, comm: RasCommunicator, rank: RasRank, has: str) -> None:
        bucket = self.bucket
        if has:
            launched = re.search(r"[0-9]{1,18}", has)
            bucket = RasCounts(self.op, int(launched[0]) if launched else 0, 1)
            comm.differences.append(bucket)
        if bucket is not None:
            bucket.ranks.append(rank.rank)
            rank.launched[self.op] = bucket.launched


def _process_in(text: str) -> RasProcess | None:
    """``GPU 5 managed by process 34 on node 10.1.0.9``; None for anything else."""
    if text == _NO_PROCESS:
        return RasProcess()
    begin = text.rfind(" managed by process ")
    match = _ON_NODE.match(text[begin:]) if begin >= 0 and text.startswith("GPU ") else None
    return RasProcess(match[2], int(match[1]), text[len("GPU ") : begin]) if match else None


def size_of(told: int) -> int:
    """The size of a communicator; 0, not known, where no job has so many ranks."""
    return told if 0 <= told <= MAX_RANKS else 0


def parse_text(text: str) -> RasReport:
    """One answer of RAS in text form; lines that are not known are passed over."""
    reader = _Reader()
    for line in text.splitlines():
        reader.line(line)
    for comm in reader.report.communicators:
        _name_the_rest(comm)
    report = reader.report
    report.name_once()  # processes given up are listed as missing, too
    dead = set(report.dead)
    for comm in report.communicators:
        for rank in comm.missing:
            rank.state = "dead" if rank.process in dead and rank.process.pid else rank.state
    return report


def _name_the_rest(comm: RasCommunicator) -> None:
    """If one count's ranks alone are not named, they are all that remain."""
    for op in dict.fromkeys(c.op for c in comm.differences):
        counts = [c for c in comm.differences if c.op == op]
        unnamed = [c for c in counts if len(c.ranks) < c.number]
        named = {r for c in counts for r in c.ranks} | {m.rank for m in comm.missing}
        inside = sum(0 <= r < comm.size for r in named)
        if len(unnamed) == 1 and comm.size - inside == unnamed[0].number:
            unnamed[0].ranks = [r for r in range(comm.size) if r not in named]
