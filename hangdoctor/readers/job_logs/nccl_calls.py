"""The calls that NCCL itself prints (NCCL_DEBUG=INFO with COLL): the last ones of each communicator.

n1:71:71 [0] NCCL INFO Broadcast: opCount 3 sendbuff 0x7f recvbuff 0x7f count 53 datatype 4 op 0 root 0 comm 0x5 [nranks=8] stream 0x6

The number is hexadecimal. Sends and receives differ between ranks by right, and are left out.
"""

from __future__ import annotations

from collections import deque

from ...model.log_facts import NcclCall
from ...text.late import late
from .prefix import Said

_CALL = late(
    r"NCCL INFO (?P<op>All(?:Reduce|Gather)|Broadcast|Reduce(?:Scatter)?): opCount (?P<seq>[0-9a-f]{1,12}) "
    r".{0,120}?\bcount (?P<count>\d{1,18}) datatype (?P<dtype>\d{1,3}) op (?P<reduce>\d{1,3}) root (?P<root>\d{1,7}) "
    r"comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<size>\d{1,7})\]"
)
_CUT = late(
    r"NCCL INFO (?P<op>All(?:Reduce|Gather)|Broadcast|Reduce(?:Scatter)?): opCount (?P<seq>[0-9a-f]{1,12}) "
    r".{0,120}?\bcount (?P<count>\d{1,18}) datatype (?P<dtype>\d{1,3})\b"
)
_LAST = 32  # calls of a communicator
_MOST = 4096  # communicators of a file
_Key = tuple[int, int, str, int, str]


class NcclCalls:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._calls: dict[_Key, deque[tuple[NcclCall, Said, int]]] = {}

    def feed(self, said: Said, line: int) -> None:
        """Take a line."""
        if "opCount" not in said.text:
            return
        match = _CALL.search(said.text) or _CUT.search(said.text)
        if match is None:
            return
        told = match.groupdict()
        call = NcclCall(
            op=told["op"],
            seq=int(told["seq"], 16),
            count=int(told["count"]),
            dtype=int(told["dtype"]),
            root=int(told.get("root") or -1),
            size=int(told.get("size") or 0),
            comm=told.get("comm") or "",
        )
        key = (said.rank, said.local, said.node, said.pid, call.comm)
        if key in self._calls or len(self._calls) < _MOST:
            self._calls.setdefault(key, deque(maxlen=_LAST)).append((call, said, line))

    def rest(self) -> list[tuple[NcclCall, Said, int]]:
        """The last calls of all, at the end of the file."""
        return [call for calls in self._calls.values() for call in calls]
