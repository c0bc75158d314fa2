"""What each method of mpi4py's communicators is about: operation, parameters, peer, tag and size.

Upper-case methods send buffers, lower-case ones any object (pickled). Parameters are called as in
mpi4py 3 and 4 (https://mpi4py.readthedocs.io/en/stable/reference/mpi4py.MPI.Comm.html). An operation
has torch's name where torch has it: a reader compares both alike.

Nothing here runs code of the job: only plain numbers and numpy's own arrays are looked at.
"""

from __future__ import annotations

from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Argument = Callable[[Sequence[Any], dict[str, Any]], Any]
    Size = tuple[Any, Any]

Names = tuple[str, ...]
_UNSIZED = ("", "")

_BUFFERS: dict[str, tuple[str, Names]] = {
    "Barrier": ("barrier", ()),
    "Bcast": ("broadcast", ("buf", "root")),
    "Gather": ("gather", ("sendbuf", "recvbuf", "root")),
    "Gatherv": ("gather", ("sendbuf", "recvbuf", "root")),
    "Scatter": ("scatter", ("sendbuf", "recvbuf", "root")),
    "Scatterv": ("scatter", ("sendbuf", "recvbuf", "root")),
    "Allgather": ("all_gather", ("sendbuf", "recvbuf")),
    "Allgatherv": ("all_gather", ("sendbuf", "recvbuf")),
    "Alltoall": ("all_to_all", ("sendbuf", "recvbuf")),
    "Alltoallv": ("all_to_all", ("sendbuf", "recvbuf")),
    "Alltoallw": ("all_to_all", ("sendbuf", "recvbuf")),
    "Reduce": ("reduce", ("sendbuf", "recvbuf", "op", "root")),
    "Allreduce": ("all_reduce", ("sendbuf", "recvbuf", "op")),
    "Reduce_scatter_block": ("reduce_scatter", ("sendbuf", "recvbuf", "op")),
    "Reduce_scatter": ("reduce_scatter", ("sendbuf", "recvbuf", "recvcounts", "op")),
    "Scan": ("scan", ("sendbuf", "recvbuf", "op")),
    "Exscan": ("exscan", ("sendbuf", "recvbuf", "op")),
}
_OBJECTS: dict[str, tuple[str, Names]] = {
    "barrier": ("barrier", ()),
    "bcast": ("broadcast", ("obj", "root")),
    "gather": ("gather", ("sendobj", "root")),
    "scatter": ("scatter", ("sendobj", "root")),
    "allgather": ("all_gather", ("sendobj",)),
    "alltoall": ("all_to_all", ("sendobj",)),
    "reduce": ("reduce", ("sendobj", "op", "root")),
    "allreduce": ("all_reduce", ("sendobj", "op")),
    "scan": ("scan", ("sendobj", "op")),
    "exscan": ("exscan", ("sendobj", "op")),
}
COLLECTIVES = _BUFFERS | _OBJECTS | {f"I{n.lower()}": about for n, about in _BUFFERS.items()}

# Collectives of the communicator that they are asked of, which give another one.
MAKERS: dict[str, str] = {
    "Dup": "Comm_dup",
    "Dup_with_info": "Comm_dup",
    "Clone": "Comm_dup",
    "Split": "Comm_split",
    "Split_type": "Comm_split",
    "Create": "Comm_create",
    "Create_cart": "Cart_create",
    "Create_graph": "Graph_create",
    "Create_dist_graph": "Graph_create",
    "Create_dist_graph_adjacent": "Graph_create",
    "Sub": "Cart_sub",
}

_SEND, _RECV = ("dest", "tag"), ("source", "tag")
SENDS: dict[str, Names] = {
    **{n: ("buf", *_SEND) for n in ("Send", "Bsend", "Ssend", "Rsend")},
    **{n: ("buf", *_SEND) for n in ("Isend", "Ibsend", "Issend", "Irsend")},
    **{n: ("obj", *_SEND) for n in ("send", "bsend", "ssend", "isend", "ibsend", "issend")},
}
RECEIVES: dict[str, Names] = {
    **{n: ("buf", *_RECV, "status") for n in ("Recv", "recv")},
    **{n: ("buf", *_RECV) for n in ("Irecv", "irecv")},
    **{n: (*_RECV, "status") for n in ("Mprobe", "mprobe")},  # a message of theirs is received
}
POLLS = {name: (*_RECV, "status") for name in ("Improbe", "improbe")}  # of which None is no message
_TWO = ("source", "recvtag", "status")
EXCHANGES: dict[str, Names] = {
    "Sendrecv": ("sendbuf", "dest", "sendtag", "recvbuf", *_TWO),
    "sendrecv": ("sendobj", "dest", "sendtag", "recvbuf", *_TWO),
    "Sendrecv_replace": ("buf", "dest", "sendtag", *_TWO),
}
# What sends and receives by objects that are not followed: counts would be wrong from here on.
UNCOUNTABLE = (
    *(
        "Send_init",
        "Bsend_init",
        "Ssend_init",
        "Rsend_init",
        "Recv_init",
        "Psend_init",
        "Precv_init",
    ),
    *(f"{name}_init" for name in _BUFFERS),
    *("Isendrecv", "Isendrecv_replace"),
)
ASYNC = frozenset(name for name in (*COLLECTIVES, *SENDS, *RECEIVES) if name[0] in "Ii")
_SIZED = {
    "Bcast": ("buf",),
    "Reduce": ("sendbuf", "recvbuf"),
    "Allreduce": ("sendbuf", "recvbuf"),
    "Allgather": ("sendbuf",),
    "Reduce_scatter_block": ("recvbuf",),
}
_NO_NUMBER = -1


def argument(names: Names, name: str, otherwise: Any = None) -> Argument:
    """What a call of these parameters gives for one of them; `otherwise` where it gives nothing."""
    if name not in names:
        return lambda args, kwargs: otherwise
    place = names.index(name)

    def get(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) > place:
            return args[place]
        return kwargs.get(name, otherwise) if kwargs else otherwise

    return get


def whole(value: Any) -> int:
    """A rank or a tag; -1 for what is no whole number: MPI itself refuses that."""
    if type(value) is int:
        return value
    if type(value).__module__ != "numpy":
        return _NO_NUMBER
    try:
        return index(value)
    except TypeError:
        return _NO_NUMBER


def buffers(method: str, names: Names) -> tuple[Argument, ...]:
    """The buffers of a call, of which the first that is an array has a size on which members must
    agree."""
    about = _SIZED.get(method.removeprefix("I").capitalize(), ())
    return tuple(argument(names, name) for name in about if name in names)


def size_of(sized: tuple[Argument, ...], args: Sequence[Any], kwargs: dict[str, Any]) -> Size:
    """((elements,), dtype) of what a call sends, ("", "") where it does not show."""
    for get in sized:
        buffer = get(args, kwargs)
        kind = type(buffer)
        if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
            return (buffer.size,), buffer.dtype
    return _UNSIZED
