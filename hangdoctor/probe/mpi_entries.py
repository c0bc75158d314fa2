"""What a call of mpi4py's communicators enters into the box: one record, or two of an exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import format as fmt
from . import mpi_calls, splits
from .group_table import GroupEntry
from .mpi_calls import Names, argument, whole
from .recorder import Recorder, Token

Given = tuple[Any, ...]
Named = dict[str, Any]
Tokens = tuple[Token, ...]
Enter = Callable[[Recorder, GroupEntry, Given, Named], Tokens]


class Entries:
    """Of each method what it enters, made once: its parameters are looked up by place."""

    def __init__(self, module: Any) -> None:
        self.mpi = module
        named = [(name, op) for name, op in vars(module).items() if type(op) is module.Op]
        self._reductions = {id(op): name.lower() for name, op in named}

    def collective(self, name: str, op: str, names: Names) -> Enter:
        """A collective: with root, reduction, and the size on which members must agree."""
        flags = fmt.ASYNC if name in mpi_calls.ASYNC else 0
        sized = mpi_calls.buffers(name, names)
        reduction = argument(names, "op") if "op" in names else None
        root = argument(names, "root", 0) if "root" in names else None
        bare = op, "", "", ""
        vectors = name.lower() in ("alltoallv", "ialltoallv")

        def enter(recorder: Recorder, entry: GroupEntry, args: Given, kwargs: Named) -> Tokens:
            key: tuple[Any, ...] = bare
            if sized or reduction is not None:
                by = "" if reduction is None else self._reduction(reduction(args, kwargs))
                key = (op, *mpi_calls.size_of(sized, args, kwargs), by)
            peer = -1 if root is None else _member(entry, whole(root(args, kwargs)))
            seq = entry.seq = entry.seq + 1
            token = recorder.enter_call(entry, seq, key, peer, flags)
            if vectors and list(entry.members) == sorted(entry.members):  # the reader's order
                recorder.add_detail(token, splits.of_vectors(args, kwargs))
            return (token,)

        return enter

    def _reduction(self, op: Any) -> str:
        return "sum" if op is None else self._reductions.get(id(op), "other")

    def send(self, name: str, names: Names) -> Enter:
        """A send, blocking or not."""
        flags = fmt.SEND | (fmt.ASYNC if name in mpi_calls.ASYNC else 0)
        return self._directed(flags, argument(names, "dest", -1), argument(names, "tag", 0))

    def receive(self, name: str, names: Names) -> Enter:
        """A receive, blocking or not; without a peer where it is from anyone."""
        flags = fmt.RECV | (fmt.ASYNC if name in mpi_calls.ASYNC else 0)
        source = argument(names, "source", self.mpi.ANY_SOURCE)
        return self._directed(flags, source, argument(names, "tag", -1))

    def exchange(self, names: Names) -> Enter:
        """A send and a receive of which either may be done while the call waits for the other."""
        to, out = argument(names, "dest", -1), argument(names, "sendtag", 0)
        source = argument(names, "source", self.mpi.ANY_SOURCE)
        send = self._directed(fmt.SEND | fmt.ASYNC, to, out)
        receive = self._directed(fmt.RECV | fmt.ASYNC, source, argument(names, "recvtag", -1))

        def enter(recorder: Recorder, entry: GroupEntry, args: Given, kwargs: Named) -> Tokens:
            given = recorder, entry, args, kwargs
            tokens = receive(*given) + send(*given)
            if tokens:
                recorder.mark_started(tokens)
                recorder.waiting(tokens)
            return tokens

        return enter

    def _directed(self, flags: int, other: mpi_calls.Argument, tag: mpi_calls.Argument) -> Enter:
        """A send to a rank of the communicator, or a receive from one; nothing for MPI_PROC_NULL."""
        direction = flags & (fmt.SEND | fmt.RECV)
        key = ("send" if direction == fmt.SEND else "recv", "", "", "")
        no_rank = self.mpi.PROC_NULL

        def enter(recorder: Recorder, entry: GroupEntry, args: Given, kwargs: Named) -> Tokens:
            rank, number = whole(other(args, kwargs)), whole(tag(args, kwargs))
            if rank == no_rank:
                return ()
            peer = _member(entry, rank)
            seq = entry.next_directed(peer, direction) if peer >= 0 else 0
            tagged = number + 1 << fmt.TAG_SHIFT if 0 <= number < fmt.TAG_LIMIT else 0
            return (recorder.enter_call(entry, seq, key, peer, flags | tagged),)

        return enter


def _member(entry: GroupEntry, rank: int) -> int:
    """The rank of the world that a rank of the communicator is; -1 for none."""
    return entry.members[rank] if 0 <= rank < len(entry.members) else -1
