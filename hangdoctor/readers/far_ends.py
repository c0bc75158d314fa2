"""Who has the other end of the TCP connections and pipes that ranks are blocked on: a server on this
node, or another rank that serves it from a thread; of another node its address alone.
"""

from __future__ import annotations

import ipaddress
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import psutil

from ..model.capture import FarEnd, RankCapture
from ..text.late import late
from ..text.plain import readable
from . import proc
from .connections import Socket, Table, inodes_of, table_of
from .unread_pipes import ends_of

_ON_SOCKET = late(
    r"^(?:read|recvfrom|recvmsg|poll|write|sendto|sendmsg)\(\d+ -> socket:\[(\d+)\]\)$"
)
_ON_PIPE = late(r"^(read|write|writev)\(\d+ -> (pipe:\[\d+\])\)$")
_MAPPED = "0" * 16 + "FFFF0000"  # an IPv4 address in the table of IPv6
_PATIENCE_S = 0.5  # for the processes of this node that are no ranks
_MOST = 256  # ranks of a node


def attach(ranks: Sequence[RankCapture]) -> None:
    """Set `far_ends` of the ranks, as their last sample shows them."""
    own = [rank.pid for rank in ranks]
    own += [child.pid for rank in ranks for child in rank.children]
    _attach_connections(ranks[:_MOST], own)
    _attach_pipes(ranks[:_MOST], own)


def _attach_pipes(ranks: Iterable[RankCapture], own: Iterable[int]) -> None:
    """Of a pipe the one process that has its other end, beside the rank itself."""
    waiting = [(rank, found) for rank in ranks for found in _calls_of(rank, _ON_PIPE)]
    if not waiting:
        return
    ends: dict[tuple[str, bool], set[int]] = defaultdict(set)
    for pid in {*own, *_others()}:
        for end in ends_of(pid):
            ends[end].add(pid)
    for rank, found in waiting:
        holders = ends[found[2], found[1].startswith("write")] - {rank.pid}
        if len(holders) == 1:
            _set_process(rank.far_ends.setdefault(found[2], FarEnd("")), holders.pop())


def _attach_connections(ranks: Iterable[RankCapture], own: Iterable[int]) -> None:
    waiting = [(rank, found[1]) for rank in ranks for found in _calls_of(rank, _ON_SOCKET)]
    tables: dict[str, Table] = {}
    wanted: dict[str, list[FarEnd]] = {}
    for rank, inode in waiting:
        table = table_of(rank.pid, tables)
        socket = table.get(inode)
        if socket is None or socket.asks:
            continue
        far = rank.far_ends[f"socket:[{inode}]"] = FarEnd(address_of(socket))
        other = _other_end(socket, table)
        if other:
            wanted.setdefault(other, []).append(far)
    _set_processes(wanted, own)


def _calls_of(rank: RankCapture, on: re.Pattern[str]) -> list[re.Match[str]]:
    """The calls of this kind that its threads are blocked in."""
    threads = rank.samples[-1].threads if rank.samples else []
    matches = (on.match(thread.syscall) for thread in threads)
    return [match for match in matches if match is not None]


def _other_end(socket: Socket, table: Table) -> str:
    """The inode of the socket at the other end; "" where it is on another host."""
    ends = (_end(socket.peer, socket.peer_port), _end(socket.own, socket.port))
    for inode, other in table.items():
        if other.listens or other.port != socket.peer_port:
            continue
        if (_end(other.own, other.port), _end(other.peer, other.peer_port)) == ends:
            return inode
    return ""


def _end(address: str, port: int) -> tuple[str, int]:
    return address.removeprefix(_MAPPED), port


def address_of(socket: Socket) -> str:
    """Address and port of the other end, as one types them."""
    digits = bytes.fromhex(socket.peer.removeprefix(_MAPPED))
    words = [digits[at : at + 4][::-1] for at in range(0, len(digits), 4)]  # each in host order
    address = ipaddress.ip_address(b"".join(words))
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{socket.peer_port}"


def _set_processes(wanted: dict[str, list[FarEnd]], own: Iterable[int]) -> None:
    """Set the process of the far ends; the oldest where a forked one has the socket, too."""
    rest = dict(wanted)
    for pid in (*own, *_others()):
        if not rest:
            return
        for inode in rest.keys() & set(inodes_of(pid)):
            for far in rest.pop(inode):
                _set_process(far, pid)


def _set_process(far: FarEnd, pid: int) -> None:
    far.pid, far.argv = pid, proc.command_line(pid)
    far.name = readable(proc.status_fields(pid).get("Name", ""))


def _others() -> Iterator[int]:
    """The processes of this node, as far as there is time."""
    until = time.monotonic() + _PATIENCE_S
    for pid in psutil.pids():
        if time.monotonic() > until:
            return
        if pid != os.getpid():
            yield pid
