"""Queues of messages as Open MPI prints them of a communicator (MPIR's dump, pml_dump): which receives a
rank has posted that nothing has come for.

Communicator MPI_COMM_WORLD [0x7ff7](0) rank 190 recv_seq 1394 num_procs 256 last_probed 70
[Rank 0] expected_seq 39 ompi_proc 0x55f5 send_seq 12
expected specific receives
req 0x55f5 peer 0 tag 32767 addr 0x55f5 count 1 datatype MPI_UNSIGNED [0x7ff7] [ ] req_seq 1393

MPICH lists the requests that are pending when a call has made no progress for long:

1 pending requests in pool 0
    ac000000: MPIDIG_do_irecv: source=0, tag=2, count=192, datatype=4c000831
"""

from __future__ import annotations

from ...model.log_facts import PostedReceive
from ...text.late import late
from .prefix import Said, Speaker

_COMMUNICATOR = late(
    r"\bCommunicator (\S{1,200}(?: \S{1,80}){0,4}?) \[0x[0-9a-f]{1,16}\]\(\d{1,9}\) rank (\d{1,7}) recv_seq \d{1,18} num_procs (\d{1,7})\b"
)
_POSTED = late(r"\b(?:expected )?(?:specific|wild) receives\s*$")
_REQUEST = late(r"\breq 0x[0-9a-f]{1,16} peer (-?\d{1,7}) tag (-?\d{1,10})\b")
_OTHER = late(r"\b(?:unexpected|out of sequence|frags?_cant_match|expected_seq)\b")
_PENDING = late(r"^\s{0,8}\d{1,9} pending requests? in pool \d")
_OF_MPICH = late(
    r"^\s{1,12}[0-9a-f]{6,16}: \w{0,40}recv\w{0,20}: (?:source|src|rank)=(-?\d{1,7}), tag=(-?\d{1,10})\b"
)
BEGIN = "num_procs "  # in the line of a communicator


class MessageQueues:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._rank = self._size = -1
        self._posted = False
        self._listed: Speaker | None = None  # whose pending requests come next
        self.belongs = False  # the last line was one of a dump

    def pending(self, said: Said) -> PostedReceive | None:
        """The receive of MPICH's list that a line shows."""
        if _PENDING.match(said.text) is not None:
            self._listed = said.speaker()
            return None
        request = _OF_MPICH.match(said.text) if self._listed == said.speaker() else None
        if request is None:
            return None
        return PostedReceive(peer=int(request[1]), tag=int(request[2]))

    def feed(self, text: str) -> PostedReceive | None:
        """The receive that a line shows, where it is one."""
        self.belongs = False
        begins = _COMMUNICATOR.search(text) if BEGIN in text else None
        if begins is not None:
            self._rank, self._size, self._posted = int(begins[2]), int(begins[3]), False
            self.belongs = True
            return None
        if self._rank < 0:
            return None
        self.belongs = True
        if _POSTED.search(text) is not None:
            self._posted = True
        elif (request := _REQUEST.search(text)) is not None and self._posted:
            peer, tag = int(request[1]), int(request[2])
            return PostedReceive(rank=self._rank, peer=peer, tag=tag, size=self._size)
        elif _OTHER.search(text) is not None:
            self._posted = False
        else:
            self.belongs = request is not None
        return None
