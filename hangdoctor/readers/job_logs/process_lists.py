"""Lists of processes as ps and top print them: those of a parent that have ended, are stopped, or sleep
without a way to interrupt them, while others like them go on.

    PID STAT COMMAND                    6454  \\_ python
   6472 Z    [python] <defunct>         6472      \\_ python <defunct>
   6473 Sl   python train.py            6473      \\_ python

One that is alone says nothing: a parent leaves its ended helpers behind, too.
"""

from __future__ import annotations

from msgspec import Struct

from ...model.log_facts import Listed
from ...text.late import late

_HEAD = late(r"^\s*(?=.*\bPID\b).*\b(?:COMMAND|CMD)\s*$")
_BARE = late(r"^\s*(\d{1,9})\s+(\S.{0,2000})$")
_TREE = "\\_ "
_DEFUNCT = "<defunct>"
_STATES = {"Z": "Z", "X": "Z", "T": "T", "t": "T", "D": "D"}
_HELPERS = frozenset(
    "bash cat dash dbus-daemon git grep ls ps sh sleep ssh sshd sudo systemd tail top zsh".split()
)
_MOST = 20_000  # rows of a list
_FEW = 2  # processes of a kind


class _Row(Struct):
    pid: int
    parent: int  # -1: not told
    name: str
    state: str
    column: int  # where its command begins


class _Columns(Struct):
    pid: int
    parent: int
    state: int
    command: int


class ProcessLists:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._columns: _Columns | None = None
        self._marked = 0  # rows that only such a list has

    def feed(self, text: str) -> list[Listed]:
        """What a list says that this line ends."""
        if "PID" in text and _HEAD.match(text) is not None:
            found = self.rest()
            self._columns = _columns(text.split())
            return found
        if not self._rows and self._columns is None and not text[:12].strip()[:1].isdigit():
            return []
        row = self._row(text)
        if row is None or len(self._rows) >= _MOST:
            return self.rest()
        self._rows.append(row)
        self._marked += _TREE in text or _DEFUNCT in text or self._columns is not None
        return []

    def rest(self) -> list[Listed]:
        """What a list says that the end of the file has ended."""
        rows, known = self._rows, self._marked
        self._rows, self._columns, self._marked = [], None, 0
        return _told(rows) if known >= _FEW else []

    def _row(self, text: str) -> _Row | None:
        columns = self._columns
        if columns is None:
            match = _BARE.match(text)
            return _row(text, int(match[1]), -1, state="", command=match[2]) if match else None
        words = text.split()
        if len(words) <= columns.command or not words[columns.pid].isdigit():
            return None
        parent = words[columns.parent] if columns.parent >= 0 else ""
        state = words[columns.state] if columns.state >= 0 else ""
        command = " ".join(words[columns.command :])
        above = int(parent) if parent.isdigit() else -1
        return _row(text, int(words[columns.pid]), above, state=state, command=command)


def _columns(words: list[str]) -> _Columns:
    def at(*names: str) -> int:
        return next((words.index(name) for name in names if name in words), -1)

    return _Columns(at("PID"), at("PPID"), at("STAT", "S"), len(words) - 1)


def _row(text: str, pid: int, parent: int, *, state: str, command: str) -> _Row:
    begin = text.find(_TREE)
    if begin >= 0:
        command = text[begin + len(_TREE) :]
    plain = command.replace(_DEFUNCT, "").strip().strip("[]")
    name = plain.split()[0].rsplit("/", 1)[-1] if plain.split() else ""
    kernel = command.startswith("[") and _DEFUNCT not in command
    name = "" if kernel or name in _HELPERS else name
    letter = "Z" if _DEFUNCT in command else _STATES.get(state[:1], "")
    return _Row(pid, parent, name, letter, begin if begin >= 0 else -1)


def _told(rows: list[_Row]) -> list[Listed]:
    """Of the largest family with such processes: those of one state, and the others."""
    _find_parents(rows)
    ended = {row.pid for row in rows if row.state == "Z"}
    families: dict[tuple[int, str], list[_Row]] = {}
    for row in rows:
        if row.name and row.parent not in ended:
            families.setdefault((row.parent, row.name), []).append(row)
    odd = [f for f in families.values() if len(f) >= _FEW and any(row.state for row in f)]
    if not odd:
        return []
    family = max(odd, key=len)
    found = []
    for state in ("Z", "T", "D"):
        pids = [row.pid for row in family if row.state == state]
        others = [row.pid for row in family if not row.state]
        if pids and (state != "D" or 2 * len(pids) < len(family)):
            kin = family[0].parent >= 0
            name = family[0].name
            found.append(Listed(state=state, pids=pids, others=others, name=name, kin=kin))
    return found[:1]


def _find_parents(rows: list[_Row]) -> None:
    """By the branches of a tree, where a list has them."""
    if not any(row.column >= 0 for row in rows):
        return
    above: list[_Row] = []
    for row in rows:
        while above and above[-1].column >= row.column:
            above.pop()
        if row.parent < 0:
            row.parent = above[-1].pid if above else 0
        above.append(row)
