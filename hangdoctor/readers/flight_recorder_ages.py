"""Dumps in one folder that are not of one moment: left by an earlier attempt, or written minutes before.

Files that were copied keep no times, so what the dumps hold decides. A rank whose peers have
completed, long after its own last record, a collective that it has not entered cannot have been at
that place: its dump is older. So is one that has completed a number which its peers reach later.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from .flight_recorder_format import Dump

_APART_NS = 60 * 1_000_000_000  # between the ranks of one dump at most, clocks included
_BY_STATUS = 64  # operations, where counters alone say so: a root's broadcasts end by themselves
_PEERS = 8  # of a group, that a dump is compared with
# One side of these ends without the others.
_ONE_SIDED = frozenset({"send", "recv", "broadcast", "reduce", "gather", "scatter"})


class _Pace(Struct):
    """How far one rank has come in one group, and when."""

    entered: int = 0
    completed: int = 0  # of those that end together only
    completed_ns: int = 0
    last: int = 0  # the newest record
    last_ns: int = 0
    counted: int = 0  # completed by the counters alone


def older(dumps: Mapping[int, Dump]) -> dict[int, int]:
    """{rank whose dump is older than those of the others: a peer that went on with it}."""
    paces = {rank: _paces(dump) for rank, dump in dumps.items()}
    found: dict[int, int] = {}
    for rank, dump in dumps.items():
        for group, own in paces[rank].items():
            members = dump.members.get(group, [])
            known = [r for r in members if r != rank and group in paces.get(r, {})]
            peers = [r for r in known if dumps[r].members.get(group) == members]
            for peer in peers[:: 1 + len(peers) // _PEERS]:
                if _went_on(own, dump, paces[peer][group], dumps[peer]):
                    found[rank] = peer
    return {rank: peer for rank, peer in found.items() if peer not in found}


def _paces(dump: Dump) -> dict[str, _Pace]:
    found: dict[str, _Pace] = {group: _Pace(counted=n) for group, n in dump.completed.items()}
    for entry in dump.entries:
        if entry.p2p:
            continue
        pace = found.setdefault(entry.group, _Pace())
        pace.entered = max(pace.entered, entry.seq)
        if entry.entered_ns >= pace.last_ns:
            pace.last, pace.last_ns = entry.seq, entry.entered_ns
        if entry.state == "done" and entry.op not in _ONE_SIDED and entry.seq > pace.completed:
            pace.completed, pace.completed_ns = entry.seq, entry.left_ns or entry.entered_ns
    return found


def _went_on(own: _Pace, dump: Dump, theirs: _Pace, other: Dump) -> bool:
    """Whether the peer's records are of a time after the rank's own dump."""
    if other.newest_ns < dump.newest_ns + _APART_NS or not dump.newest_ns:
        return False
    entered = max(own.entered, own.counted)
    if theirs.completed > entered and theirs.completed_ns > dump.newest_ns + _APART_NS:
        return True
    if theirs.counted > entered + _BY_STATUS:
        return True
    # Numbers only rise: a smaller one, later, is another attempt's.
    completed = max(own.completed, own.counted - _BY_STATUS)
    return 0 < theirs.last < completed and theirs.last_ns > dump.newest_ns + _APART_NS
