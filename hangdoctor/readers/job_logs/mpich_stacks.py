"""What the stack of an error of MPICH's tells beyond its first line: with which rank the call was, on which
node, and whether the network below MPI reported it. Cray's and Intel's MPI print the same.

MPICH ERROR [Rank 5] [job id 7.0] [..] [n3] - Abort(1) (rank 5 in comm 0): Fatal error in PMPI_Send: .., error stack:
PMPI_Send(163)..................: MPI_Send(buf=0x7f, count=4, MPI_INT, dest=2, tag=0, MPI_COMM_WORLD) failed
MPIDI_OFI_handle_cq_error(1075).: OFI poll failed (ofi_events.c:1077:..:Input/output error)
"""

from __future__ import annotations

import re

from msgspec import structs

from ...model.log_facts import AnyFact, KnownError
from ...text.late import late
from .prefix import Said

_HEAD = late(
    r"(?:\[(?P<node>[A-Za-z][\w.-]{0,120})\] - )?(?:Abort\(-?\d{1,11}\)(?: on node (?P<world>\d{1,7}))?.{0,40}?)?\(rank (?P<rank>\d{1,7}) in comm \d{1,12}\): "
    r"Fatal error in (?P<call>[\w-]{4,60}): (?:Other MPI error|Unknown error|Internal MPI error), error stack:"
)
_HOST = late(r"^([A-Za-z][\w.-]{2,120}) \d{1,7}: ")  # PALS's prefix, in a short log
_CALL = late(r"(?:^|\s)\w{3,80}\(\d{1,6}\)\.{0,80}:\s?(?P<says>.{0,600})$")
_WITH = late(
    r"^(?P<call>MPI_(?P<way>I?[bsr]?send|I?[Ss]end|I?[Rr]ecv)\w{0,8})\(buf=\w{1,20}, count=\d{1,12}, [^,]{1,80}, "
    r"(?:(?:dest|src|source)=)?(?P<peer>\d{1,7}), .{0,80}\bMPI_COMM_WORLD\b"
)
_NETWORK = late(
    r"(?P<why>(?:OFI|UCX|[Vv]erbs|PSM2?|CXI) [\w ]{1,40} (?:failed|error)|\bPTLTE_\w{1,40}|\bucp_\w{1,40}|ibv_\w{1,40})"
)
_DETAIL = late(r":([A-Z][\w /]{3,40}(?: - \w{2,40})?)\)\s*$")
_TOO_LONG = late(r"Message (?:too long|truncated)|[Tt]runcation error")
# What a network card says of a request of its own process' memory
_LOCAL = late(r"\blocal (?:QP operation|protection|length|access) error", re.I)
_SENT = late(
    r"Message from rank (\d{1,7}) and tag \d{1,12} truncated; (\d{1,18}) bytes received but buffer size is (\d{1,18})"
)
MOST = 24  # lines of a stack


class MpichStacks:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._rank, self._node, self._left = -1, "", 0
        self._call = ""
        self._open: set[str] = set()  # what was not yet told of this error
        self._truncated: KnownError | None = None

    def hold(self, fact: AnyFact) -> None:
        """An error whose stack has the sender of a message that was too long."""
        if isinstance(fact, KnownError) and fact.rule == "mpi_truncated":
            self._truncated = fact

    def feed(self, said: Said) -> KnownError | None:
        """What a line of the stack adds."""
        text = said.text
        if "truncated;" in text and (sent := _SENT.search(text)) is not None:
            self._name_sender(sent)
            return None
        head = _HEAD.search(text) if "in comm" in text else None
        if head is not None:
            self._rank, self._left = int(head["world"] or head["rank"]), MOST
            host = _HOST.match(text)
            self._call = head["call"]
            self._node = head["node"] or said.node or (host[1] if host is not None else "")
            self._open = {"peer", "network"}
            return None
        if self._left <= 0:
            return None
        self._left -= 1
        match = _CALL.search(text)
        if match is None:
            self._left = 0
            return None
        return self._of_call(match["says"].strip())

    def whose(self, said: Said) -> Said:
        """A line of the stack with the rank and the node of its head, which alone has them."""
        if self._left <= 0 or said.rank >= 0:
            return said
        return structs.replace(said, rank=self._rank, node=said.node or self._node)

    def _name_sender(self, sent: re.Match[str]) -> None:
        fact, self._truncated = self._truncated, None
        if fact is not None:
            fact.values["sent"] = f"(rank {sent[1]} sent {sent[2]} bytes, its room is {sent[3]})"

    def _of_call(self, says: str) -> KnownError | None:
        call, network = _WITH.match(says), _NETWORK.search(says)
        if call is not None and "peer" in self._open:
            self._open.discard("peer")
            way = "to" if "end" in call["way"] else "from"
            values = {"call": call["call"], "way": way, "peer": call["peer"], **self._at()}
            return self._error("mpi_call", "consequence", values)
        if network is not None and "network" in self._open:
            self._open.discard("network")
            if "CANCEL" in says:  # by whoever ended the job, or took the connection down
                told = {"call": self._call, **self._at()}
                return self._error("mpi_cancelled", "consequence", told)
            if _TOO_LONG.search(says):
                return self._error("mpi_truncated", "cause", {})
            if "MPI_Init" in self._call:
                return None  # its start has failed, and `mpich_errors.py` has the reason
            detail = _DETAIL.search(says)
            why = f"{network['why']}: {detail[1]}" if detail is not None else network["why"]
            local = _LOCAL.search(says)
            if local is not None:  # no other process can be behind it
                told = {"call": self._call, "why": local[0]}
                return self._error("mpi_local", "cause", told)
            return self._error("mpi_network", "cause", {"why": why})
        return None

    def _at(self) -> dict[str, str]:
        return {"at": f"on {self._node}"} if self._node else {}

    def _error(self, rule: str, role: str, values: dict[str, str]) -> KnownError:
        return KnownError(rule=rule, role=role, rank=self._rank, node=self._node, values=values)  # type: ignore[arg-type]
