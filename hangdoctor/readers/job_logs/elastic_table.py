"""torchelastic's table of failures: a few lines for each rank, the "root cause" last.

Its first observed failure is the first process that the agent found ended, which is often a victim.
"""

from __future__ import annotations

from ...model.log_facts import CutEnd, Ended
from ...text.late import late
from .stamps import Clock

_ENTRY = late(r"^\s*\[\d{1,7}\]:\s*$")
_FIRST = "Root Cause (first observed failure)"
_FIELD = late(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.{0,400})$")
_RANK = late(r"(\d{1,7}) \(local_rank: ?(\d{1,7})\)")
_CODE = late(r"(-?\d{1,5}) \(pid: ?(\d{1,9})\)")
# A row whose fields stand in one line, as copies from a picture or a web page have it.
_ONE_LINE = late(
    r"\brank ?:? ?(\d{1,7}) \(local[_ ]rank ?: ?(\d{1,7})\)\s{0,8}exit ?code ?: ?(-?\d{1,5}) \(pid ?: ?(\d{1,9})\)"
)
HEADS = ("Failures:", _FIRST)


class Table:
    """Reads the table's lines one by one."""

    def __init__(self) -> None:
        self._first = False
        self._fields: dict[str, str] = {}
        self.open = False
        self._cut = False  # its head is missing, and a rank's field was read

    def feed(self, text: str, clock: Clock) -> Ended | CutEnd | None:
        """A rank's end, once its exit code was read; the stamp is the table's own. Or a row without
        one, once another one begins.
        """
        if text.strip().startswith(HEADS):
            cut = self.rest(clock)
            self._first, self._fields, self.open = text.strip().startswith(_FIRST), {}, True
            return cut
        if _ENTRY.match(text):
            cut = self.rest(clock)
            self._fields = {}
            self.open = True
            return cut
        match = _FIELD.match(text)
        if match is None:
            return self._in_one_line(text)
        if not self.open and match[1] != "exitcode":
            self._keep_of_cut(match[1], match[2])
            return None
        if not (self.open or self._cut):
            return None
        self._fields[match[1]] = match[2].strip()
        return self._end(clock) if match[1] == "exitcode" else None

    def _in_one_line(self, text: str) -> Ended | None:
        match = _ONE_LINE.search(text) if self.open and "exit" in text else None
        if match is None:
            return None
        rank, local, code, pid = (int(number) for number in match.groups())
        return Ended(
            rank=rank, local=local, code=code, pid=pid, by="torchelastic", first=self._first
        )

    def _keep_of_cut(self, name: str, value: str) -> None:
        """A field of an entry whose head is missing: the rank, in the table's own form, tells that it
        is one.
        """
        self._cut = self._cut or (name == "rank" and _RANK.fullmatch(value.strip()) is not None)
        self._fields[name] = value.strip()

    def _end(self, clock: Clock) -> Ended | None:
        self._cut = False
        rank = _RANK.search(self._fields.get("rank", ""))
        code = _CODE.search(self._fields["exitcode"])
        if code is None:
            return None
        at, _ = clock.read(self._fields.get("time", "").replace("_", " "))
        told, self._fields = self._fields, {}
        return Ended(
            rank=int(rank[1]) if rank else -1,
            local=int(rank[2]) if rank else -1,
            node=told.get("host", ""),
            pid=int(code[2]),
            code=int(code[1]),
            at=at,
            by="torchelastic",
            first=self._first,
        )

    def rest(self, clock: Clock) -> CutEnd | None:
        """The row that was begun and has no exit code yet."""
        rank = _RANK.search(self._fields.get("rank", "")) if self.open else None
        if rank is None:
            return None
        at, _ = clock.read(self._fields.get("time", "").replace("_", " "))
        node = self._fields.get("host", "")
        return CutEnd(rank=int(rank[1]), local=int(rank[2]), node=node, at=at, first=self._first)
