"""The tables of one black box, read from two snapshots of its file: what both agree on is whole."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from ..errors import BadInput
from ..model.operations import STORE, Group, unknown_group
from ..probe import format as fmt
from ..text.ranges import MAX_MEMBERS, member_runs
from .box_header import number, parse_header
from .box_records import Record, ThreadRow, record_at, thread_at

_WRITTEN_ONCE = 56  # bytes of a record, before its outcome: that may change between the snapshots
_PLACES = {
    "threads": fmt.H_THREADS,
    "groups": fmt.H_GROUPS,
    "strings": fmt.H_STRINGS,
    "ring": fmt.H_RING,
}
_ENTRY_BYTES = {
    "threads": fmt.THREAD.size,
    "groups": fmt.GROUP.size,
    "strings": 1,
    "ring": fmt.RECORD_BYTES,
}


class Tables:
    """Threads, groups, texts and records of a box."""

    def __init__(self, path: Path, first: bytes, second: bytes) -> None:
        """Raises BadInput: the header is no box's, or a table reaches beyond the end of the file."""
        self.path = path
        self.box = parse_header(path, second)
        self.first, self.second = first, second
        # Since version 2 each record has the uid of its group.
        self.names_groups = number(second, fmt.H_VERSION) >= 2
        self.without_members = 0  # groups whose members no job has room for
        self._regions = self._find_regions()
        self._texts: dict[int, str] = {}
        # Each byte of a sound box belongs to one text, and ends in one. A damaged one could name
        # the same megabytes again and again.
        self._text_room = len(second)
        self._member_room = MAX_MEMBERS
        self._lists: dict[str, list[int]] = {}

    def _find_regions(self) -> dict[str, tuple[int, int, int]]:
        """Name -> (where it begins, its entries, the bytes of one)."""
        size = len(self.second)
        short = size < number(self.second, fmt.H_FILE_BYTES) or len(self.first) != size
        found: dict[str, tuple[int, int, int]] = {}
        for name, (offset, how) in _PLACES.items():
            begin, entries, width = struct.unpack_from(how, self.second, offset)
            beyond = begin + entries * width > size or width < _ENTRY_BYTES[name]
            empty_ring = name == "ring" and not entries
            if short or beyond or empty_ring:
                raise BadInput(
                    f"{self.path}: truncated to {size} bytes; "
                    f"its table of {name} may be incomplete",
                    "Copy the whole file again.",
                )
            found[name] = (begin, entries, width)
        return found

    @property
    def slots(self) -> int:
        """Records that the ring holds."""
        return self._regions["ring"][1]

    def text(self, key: int) -> str:
        """A text by its id; "" where there is none, or it does not lie within its table."""
        found = self._texts.get(key)
        if found is None:
            found = self._texts[key] = self._read_text(key)
        return found

    def _read_text(self, key: int) -> str:
        begin, room, _ = self._regions["strings"]
        at = key * fmt.STRING_UNIT
        if not key or at + fmt.STRING_HEAD.size > room:
            return ""
        (length,) = fmt.STRING_HEAD.unpack_from(self.second, begin + at)
        if at + fmt.STRING_HEAD.size + length > room or length > self._text_room:
            return ""
        self._text_room -= length
        start = begin + at + fmt.STRING_HEAD.size
        return self.second[start : start + length].decode("utf-8", "replace")

    def groups(self) -> tuple[list[Group], list[str]]:
        """(groups with their members and names, uid of each place in the table)."""
        begin, room, width = self._regions["groups"]
        groups: dict[str, Group] = {}
        uids: list[str] = []
        for i in range(min(number(self.second, fmt.H_GROUPS_USED), room)):
            raw, _, members, name, *_, check = fmt.GROUP.unpack_from(self.second, begin + i * width)
            uid = raw.hex()
            uids.append(uid)
            if self.names_groups and check != int.from_bytes(raw[:4], "little"):
                continue  # it passes from one group to another just now
            known = groups.get(uid)
            if known is None or not known.name:
                groups[uid] = Group(uid, self._members(self.text(members)), self.text(name))
        return list(groups.values()), uids

    def _members(self, text: str) -> list[int]:
        """Equal sets are one list. Sets that no job has room for are left out: a few bytes can name
        millions.
        """
        known = self._lists.get(text)
        if known is None:
            runs = member_runs(text) or []
            count = sum(map(len, runs))
            if count > self._member_room:
                self.without_members += 1
                runs, count = [], 0
            self._member_room -= count
            known = self._lists[text] = [rank for run in runs for rank in run]
        return known

    def threads(self) -> list[ThreadRow]:
        """All slots of the table of threads, free ones too."""
        begin, room, width = self._regions["threads"]
        return [thread_at(self.second, begin + i * width) for i in range(room)]

    def records(self) -> Iterator[Record | None]:
        """Whole records; None for one that is torn. Equal in both snapshots and closed means not
        being written.
        """
        begin, room, width = self._regions["ring"]
        empty = bytes(8)
        for i in range(room):
            at = begin + i * width
            if self.second[at : at + 8] == empty:
                continue
            record = record_at(self.second, at)
            closed = record.closed and record.serial % room == i
            if self.names_groups:
                closed = closed and self._uid(at)[:4] == record.uid.to_bytes(4, "little")
            yield record if closed and self._settled(at) else None

    def _settled(self, at: int) -> bool:
        """Whether the record is the same in both snapshots, or came whole between them: then a
        third
        read must find it as the second did.
        """
        once = slice(at, at + _WRITTEN_ONCE)
        if self.first[once] == self.second[once]:
            return True
        try:
            with self.path.open("rb") as file:
                file.seek(at)
                return file.read(_WRITTEN_ONCE) == self.second[once]
        except OSError:  # its rank has ended meanwhile, and taken it away
            return False

    def _place(self, record: Record) -> int:
        begin, room, width = self._regions["ring"]
        return begin + record.serial % room * width

    def _uid(self, at: int) -> bytes:
        return self.second[at + fmt.UID_WORD * 8 : at + fmt.UID_WORD * 8 + 8]

    def inline(self, record: Record) -> str:
        """The text that lies in the record itself."""
        size = fmt.INLINE_BYTES if self.names_groups else fmt.RECORD_BYTES - fmt.INLINE_OFFSET
        begin = self._place(record) + fmt.INLINE_OFFSET
        return self.second[begin : begin + size].split(b"\0")[0].decode("utf-8", "replace")

    def group_of(self, record: Record, uids: list[str]) -> str:
        """Uid of the operation's group, "" where it has none (a wait for the store), or a name that
        no
        other rank has.
        """
        if self.names_groups:
            uid = self._uid(self._place(record))
            return uid.hex() if any(uid) else ""
        if record.group < len(uids):
            return uids[record.group]
        if record.flags & fmt.INLINE_DETAIL or self.is_set_up(record.signature):
            return ""
        return unknown_group(self.box.rank, self.box.pid)

    def is_set_up(self, signature: int) -> bool:
        """Whether a signature is of a call to the store, of set-up or of teardown."""
        return self.text(signature).partition("\t")[0] in STORE
