"""One Flight Recorder dump, pickle or JSON, as plain checked data.

Field names and their meaning: torch/csrc/distributed/c10d/FlightRecorder.hpp and
FlightRecorderDetail.hpp of torch 2.13 (dump version 2.10). Versions from 2.0 on differ by added
fields; what a version lacks is left empty here. The JSON form has no stacks, 0 where the pickle
has None, numbers of `pg_status` as text, and no `entries` when there are none.
"""

from __future__ import annotations

import gc
import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from hangdoctor.errors import BadInput

from ..text.ranges import MAX_RANKS, number_in
from . import safe_pickle
from .flight_recorder_entry import UNDESCRIBED, Entry, entry_of, group_of, text_in, whole_number
from .safe_pickle import MAX_BYTES

MAX_ENTRIES = 1_000_000
_ENTRY_BYTES = 32  # of a file, that an entry takes at the least


class Dump(Struct):
    """What one rank's recorder held, oldest first."""

    version: str
    entries: list[Entry]
    members: dict[str, list[int]]  # of the groups whose member set the dump shows
    names: dict[str, str]  # group -> description
    backend: str = ""
    overwritten: bool = False
    unnamed: list[int] = []  # members of a group that the dump does not name (gloo)
    groups_seen: int = 0
    # Group -> sends and recvs after its last record (gloo counts but omits them).
    hidden_p2p: dict[str, int] = {}
    # Without what has completed (torch's `include_only_active`).
    only_active: bool = False
    # Group -> its last completed collective by `pg_status`, 0 before the first.
    completed: dict[str, int] = {}
    # The oldest pending operation of every group is among the entries, as `pg_status` shows.
    pending_whole: bool = False

    @property
    def newest_ns(self) -> int:
        """When the last thing happened that it recorded, by its own wall clock; 0 without any."""
        return max((max(e.entered_ns, e.left_ns) for e in self.entries), default=0)


def parse(data: bytes) -> Dump:
    """Read one dump, pickle or JSON by its first byte.

    Raises:
        BadInput: empty, truncated, damaged, not a dump, of another major version, or not plain
            data.
    """
    # Ten thousands of containers at once make the collector look at all of them again and again,
    # for nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _dump(_load(data), len(data))
    finally:
        if collecting:
            gc.enable()


def of_plain(raw: dict[Any, Any]) -> Dump:
    """One dump that is in no file, and whose reader has limits of its own.

    Raises:
        BadInput: it is damaged.
    """
    return _dump(raw, size=MAX_BYTES)


def _load(data: bytes) -> dict[Any, Any]:
    if not data.strip(b"\0 \n"):
        raise BadInput("the file is empty")
    if data[:1] == b"{":
        try:
            raw: object = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise BadInput(f"damaged or truncated JSON: {e}") from e
    elif data[:1] == b"\x80":
        raw = safe_pickle.loads(data)
    else:
        raise BadInput("neither a pickle nor JSON")
    if (
        not isinstance(raw, dict)
        or "version" not in raw
        or not ({"entries", "pg_config", "pg_status"} & raw.keys())
    ):
        raise BadInput("not a Flight Recorder dump: it has no version or no entries")
    return raw


def _dump(raw: dict[Any, Any], size: int) -> Dump:
    """Checked; `size` is that of the file: a pickle can name one thing any number of times, for two
    bytes each.
    """
    version = text_in(raw["version"])
    if not re.match(r"^2(\.\d+)?$", version):
        raise BadInput(
            f"Flight Recorder dump of version {version[:20]}; only versions 2.x can be read"
        )
    rows = raw.get("entries") or []
    if not isinstance(rows, list | tuple) or len(rows) > min(
        MAX_ENTRIES, max(16, size // _ENTRY_BYTES)
    ):
        raise BadInput("damaged dump: its entries are not a list, or too many")
    members, names, unnamed = _groups(raw.get("pg_config"), size)
    dump = Dump(version, [], members, names, unnamed=unnamed)
    for row in rows:
        if not isinstance(row, dict):
            raise BadInput("damaged dump: an entry is not a record")
        entry = entry_of(row, names)
        dump.entries.append(entry)
    if rows:
        dump.backend = text_in(rows[-1].get("profiling_name")).partition(":")[0]
        # Numbers start at 0, so that a later first one means that the ring has lost the beginning.
        dump.overwritten = whole_number(rows[0].get("record_id", rows[0].get("id"))) > 0
    seen = {e.group for e in dump.entries}
    status = raw.get("pg_status")
    dump.groups_seen = max(len(seen), len(status) if isinstance(status, dict) else 0)
    if isinstance(status, dict):
        if dump.backend == "gloo":
            dump.hidden_p2p = _hidden_p2p(rows, status)
        else:
            _read_status(dump, rows, status)
    return dump


def _read_status(dump: Dump, rows: list[Any] | tuple[Any, ...], status: dict[Any, Any]) -> None:
    """What `pg_status` adds: how far each group has come, and whether the pending operations are
    all among the entries.
    """
    names = _groups_by_number(dump, rows, status)
    enqueued = {}
    for number, name in names.items():
        of_group = status.get(number)
        if isinstance(of_group, dict):
            dump.completed[name] = max(0, whole_number(of_group.get("last_completed_collective")))
            enqueued[name] = whole_number(of_group.get("last_enqueued_collective"))
    oldest: dict[str, int] = {}
    for e in dump.entries:
        if e.state != "done" and not e.p2p:
            oldest.setdefault(e.group, e.seq)
    pending = {name for name, last in enqueued.items() if last > dump.completed[name]}
    dump.pending_whole = len(names) == len(status) and all(
        name in oldest and oldest[name] <= dump.completed[name] + 1 for name in pending
    )
    done = any(e.state == "done" for e in dump.entries)
    dump.only_active = dump.pending_whole and not done and any(dump.completed.values())


def _groups_by_number(
    dump: Dump, rows: list[Any] | tuple[Any, ...], status: dict[Any, Any]
) -> dict[object, str]:
    """Keys of `pg_status` -> names of groups.

    `pg_status` and `pg_config` name the groups that the process has used, by its own numbers and by
    names that are numbers too, both in the order in which the groups were made. Entries have both.
    """
    certain = {str(row.get("pg_id")): group_of(row)[0] for row in rows}
    numbers = sorted(status, key=whole_number)
    names = sorted(dump.members, key=creation_order)
    found = dict(zip(numbers, names, strict=False)) if len(names) == len(numbers) else {}
    if any(str(n) in certain and certain[str(n)] != name for n, name in found.items()):
        found = {}
    return found or {n: certain[str(n)] for n in numbers if str(n) in certain}


def creation_order(name: str) -> tuple[int, int, str]:
    """A key that sorts names of groups as they were made: torch names them by number."""
    number = number_in(name)
    return (0, number, "") if number >= 0 else (1, 0, name)


def _hidden_p2p(rows: list[Any] | tuple[Any, ...], status: dict[Any, Any]) -> dict[str, int]:
    """gloo's `op_id` and `last_enqueued_collective` count sends and recvs, which have no records."""
    last = {
        group_of(row)[0]: (str(row.get("pg_id")), whole_number(row.get("op_id"))) for row in rows
    }
    out: dict[str, int] = {}
    for group, (number, op_id) in last.items():
        of_group = status.get(number)
        enqueued = (
            whole_number(of_group.get("last_enqueued_collective"))
            if isinstance(of_group, dict)
            else 0
        )
        if enqueued > op_id > 0:
            out[group] = enqueued - op_id
    return out


def _groups(config: object, size: int) -> tuple[dict[str, list[int]], dict[str, str], list[int]]:
    """Member sets and descriptions by group, and the members that gloo shows without a name."""
    members: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    if not isinstance(config, dict):
        return members, names, []
    told: dict[int, list[int]] = {}
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, dict):
            continue
        ranks = value.get("ranks")
        if isinstance(ranks, str):
            members[key] = _ranks(ranks)
        elif isinstance(ranks, list | tuple):
            members[key] = (
                told[id(ranks)]
                if id(ranks) in told
                else told.setdefault(id(ranks), sorted({whole_number(r) for r in ranks}))
            )
        described = text_in(value.get("desc"))
        names[key] = "" if described == UNDESCRIBED else described
    _check_members(members, size)
    unnamed = members.pop("", [])
    names.pop("", None)
    return {k: v for k, v in members.items() if v}, names, unnamed


def _check_members(members: dict[str, list[int]], size: int) -> None:
    """Raises BadInput: more members than the file has bytes for, or a rank that no job has."""
    lists = {id(ranks): ranks for ranks in members.values() if ranks}
    if sum(map(len, lists.values())) > size:
        raise BadInput("damaged dump: its groups have more members than fit into the file")
    highest = max((ranks[-1] for ranks in lists.values()), default=0)
    if highest >= MAX_RANKS or any(ranks[0] < 0 for ranks in lists.values()):
        raise BadInput(
            f"damaged dump: a group has rank {highest}; a job has at most {MAX_RANKS:,} ranks"
        )


@lru_cache(maxsize=1024)
def _ranks(text: str) -> list[int]:
    """ "[0, 1]" -> [0, 1]. All dumps of a job tell the same lists: one object each, which no one
    changes.
    """
    return sorted({int(r) for r in re.findall(r"[0-9]{1,9}", text)})
