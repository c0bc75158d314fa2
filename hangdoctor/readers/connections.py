"""TCP connections of processes, as /proc shows them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

_ESTABLISHED = "01"
_LISTENING = "0A"
_ASKING = "02"  # SYN_SENT
_LOCAL = ("0100007F", "0" * 24 + "01000000")  # 127.0.0.1, also as IPv6, and ::1


class Socket(Struct, frozen=True):
    """One end of a connection, or a port that is listened on."""

    port: int
    peer: str  # address as /proc writes it
    peer_port: int
    own: str = ""  # address of this end, in the same form
    listens: bool = False
    asks: bool = False  # for a connection that the other side has not answered


Table = Mapping[str, Socket]  # by inode


def between(pids: Sequence[int]) -> set[int]:
    """Those that hold a TCP connection of which another one of them has the other end."""
    ends: dict[tuple[int, int], set[int]] = defaultdict(set)  # (own port, peer's port): holders
    tables: dict[str, Table] = {}  # by network namespace
    for pid in pids:
        for socket in sockets(pid, tables):
            if not socket.listens:
                ends[socket.port, socket.peer_port].add(pid)
    found: set[int] = set()
    for (own, peer), holders in ends.items():
        # What a process has forked holds the same ends as itself.
        others = ends.get((peer, own), set())
        if holders - others and others - holders:
            found |= holders ^ others
    return found


def only_serves(pid: int, others: Sequence[int]) -> bool:
    """Whether these reach a process at one port that it listens on, and in no other way: it serves
    a store, where a rank has connections of its group, too.
    """
    tables: dict[str, Table] = {}
    theirs = {(s.peer_port, s.port) for other in others for s in sockets(other, tables)}
    held = sockets(pid, tables)
    listening = {s.port for s in held if s.listens}
    used = {s.port for s in held if not s.listens and (s.port, s.peer_port) in theirs}
    return len(used) == 1 and used <= listening


def meet_here(pids: Sequence[int]) -> bool:
    """Whether one of these processes is connected by a loopback address to a port that another one
    listens on: no process of another host can meet them there.
    """
    tables: dict[str, Table] = {}
    held = {pid: sockets(pid, tables) for pid in pids}
    served = {s.port: pid for pid, own in held.items() for s in own if s.listens}
    return any(
        s.peer.endswith(_LOCAL) and served.get(s.peer_port, pid) != pid
        for pid, own in held.items()
        for s in own
        if not s.listens
    )


def guests(pid: int) -> dict[int, set[str]]:
    """{port that a process listens on: who is connected to it}, without the process itself.

    A guest of this host is known by its connection, one of another host by its address.
    """
    held = sockets(pid, {})
    own = {(s.port, s.peer_port) for s in held if not s.listens}
    found: dict[int, set[str]] = {s.port: set() for s in held if s.listens}
    for socket in held:
        to_itself = (socket.peer_port, socket.port) in own
        if socket.listens or socket.port not in found or to_itself:
            continue
        local = socket.peer.endswith(_LOCAL)
        guest = f"{socket.peer}:{socket.peer_port}" if local else socket.peer
        found[socket.port].add(guest)
    return found


def sockets(pid: int, tables: dict[str, Table], asking: bool = False) -> list[Socket]:
    """The TCP sockets that a process has open, with `asking` also those whose connection is not
    answered; `tables` keeps what was read, by namespace.
    """
    table = table_of(pid, tables)
    held = [table[inode] for inode in inodes_of(pid) if inode in table]
    return [socket for socket in held if asking or not socket.asks]


def table_of(pid: int, tables: dict[str, Table]) -> Table:
    """The TCP sockets of the network namespace of a process, which may belong to any process."""
    try:
        space = str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return {}
    if space not in tables:
        tables[space] = _read_table(pid)
    return tables[space]


def _read_table(pid: int) -> Table:
    found: dict[str, Socket] = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] in (_ESTABLISHED, _LISTENING, _ASKING):
                own, _, port = words[1].rpartition(":")
                peer, _, peer_port = words[2].rpartition(":")
                found[words[9]] = Socket(
                    int(port, 16),
                    peer,
                    int(peer_port, 16),
                    own=own,
                    listens=words[3] == _LISTENING,
                    asks=words[3] == _ASKING,
                )
    return found


def inodes_of(pid: int) -> list[str]:
    """The inodes of the sockets that a process has open."""
    found = []
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    target = str(Path(entry.path).readlink())
                except OSError:
                    continue
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    except OSError:
        pass
    return found
