"""The place of a stack: the rules of `place_rules`, applied frame by frame from the innermost on.

A rule on a communication holds only while every frame inside it belongs to the communication
library too: a rank that pickles an object for `all_gather_object` is not in it yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import structs

from ..model.capture import Frame
from ..text.late import late
from . import native_program
from .place_rules import COMMUNICATION, Place, Rule, rules
from .user_code import TORCH, is_users, outer_frame, own_frame, users_frame

GRADIENTS = "gradient all_reduce in backward"  # DistributedDataParallel's, in C++
BUFFERS = "broadcast in DistributedDataParallel"  # of its buffers or bucket order, as well
HANDLE = "wait for a collective's handle"  # as well
TRANSFERS_BY_HANDLE = frozenset({"isend", "irecv", "send or recv"})
STORE = "store wait"  # for a key of the rendezvous' store
STORE_CALL = "store.wait(...)"  # source that says so, where a record knows it and no source is kept
_DESTINATIONS, _SOURCES = ("dst", "dst_rank", "dest"), ("src", "src_rank")
_PEER_NAMES = {
    "send": _DESTINATIONS,
    "isend": _DESTINATIONS,
    "recv": _SOURCES,
    "irecv": _SOURCES,
    **dict.fromkeys(("Send", "Ssend", "Bsend", "Rsend", "ssend", "Isend", "Issend"), _DESTINATIONS),
    **dict.fromkeys(("Recv", "Probe", "Mprobe", "Irecv"), _SOURCES),
    **dict.fromkeys(("MPI_Send", "MPI_Ssend", "MPI_Rsend", "MPI_Bsend"), _DESTINATIONS),
    **dict.fromkeys(("MPI_Recv", "MPI_Probe", "MPI_Mprobe"), ("source",)),
    "MPI_Sendrecv": ("source", "dest"),
    # It ends when both sides have: what comes from the source is the longer wait.
    **dict.fromkeys(("Sendrecv", "Sendrecv_replace", "sendrecv"), _SOURCES + _DESTINATIONS),
}
_NATIVE_WAIT = late(
    r"c10d::|gloo::|nccl|ncclGroup|WorkNCCL"
    r"|cuEventSynchronize|cuStreamSynchronize|cudaStreamSync"
)
# Files whose frames may stand inside a communication without meaning that the rank does something
# else.
_LIBRARY = late(
    # A checkpoint runs its writers, and the user's, inside of functions that it calls all_reduce and
    # broadcast.
    r"torch/distributed/(?!checkpoint/)|torch/_C|torch/_compile|torch/_dynamo|torch/_ops\.py|torch/_library/"
    r"|torch/utils/(?:_contextlib|_pytree|_python_dispatch|_device)\.py|torch/autograd/function\.py"
    r"|jax/_src/|jax/experimental/multihost_utils\.py|(?:vllm|sglang/srt)/distributed/|torch/overrides\.py|deepspeed/comm/|deepspeed/utils/"
    r"|deepspeed/runtime/pipe/p2p\.py|(?:^|/)(?:contextlib|threading|functools|typing_extensions)\.py$|hangdoctor/probe/|p2p_communication\.py|(?:^|/)zmq/"
    r"|ray/_private/(?:auto_init_hook|client_mode_hook|worker)\.py|ray/train/(?:collective|v2/_internal/execution)/"
    r"|^<(?:MPI|NCCL|device|gloo)>$"
)
_NATIVE = late(
    r"\.so(\.\d+)*$|\.dylib$|^\[|^<unknown>|^\?\?|\.(c|cc|cpp|cxx|C|h|hh|hpp|hxx|H|inl|tcc|cu|cuh|pyx|rs|S|[fF]|[fF]\d\d|for)$"
)


def is_native(frame: Frame) -> bool:
    """True for a frame of compiled code, as `py-spy dump --native` mixes in."""
    return "::" in frame.name or _native_file(frame.file)


@lru_cache(maxsize=65_536)
def _native_file(file: str) -> bool:
    return not file or _NATIVE.search(file) is not None


@lru_cache(maxsize=65_536)
def _rules_for(name: str, file: str) -> tuple[Rule, ...]:
    """The rules that can hold for a function: a job has thousands of frames and few functions."""
    return tuple(r for r in rules() if r.may_match(name, file))


@lru_cache(maxsize=65_536)
def _of_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


def is_communication(frame: Frame) -> bool:
    """Whether a frame may stand inside a communication without meaning that the rank does something else."""
    return _of_library(frame.file)


def python_frames(frames: Sequence[Frame]) -> list[Frame]:
    """The job's own frames: without native ones and without the probe's wrappers. Of a program that
    is native as a whole, its own and the call of a library that it is in.
    """
    python = [f for f in frames if not is_native(f)]
    if not python:
        return native_program.program(frames)
    return [f for f in python if "hangdoctor/probe/" not in f.file]


def _native_wait(frames: Sequence[Frame]) -> bool:
    """True where the native frames on top say that a collective library or the device driver waits."""
    for frame in frames:
        if not is_native(frame):
            return False
        if _NATIVE_WAIT.search(frame.name):
            return True
    return False


def find_place(frames: Sequence[Frame], blocked: bool = False) -> Place:
    """The place of a stack (frames innermost first); kind "" for an empty one.

    `blocked` says that the thread did not run between two samples, which is the sign of a wait in
    native code (a handle's wait, gradients reduced inside backward) from code that works.
    """
    python = python_frames(frames)
    waits = _native_wait(frames)
    if not python:
        return Place("collective", "native collective") if waits else Place("")
    blocked = blocked or waits
    # The outermost frame of the communication: all_gather_object, not its all_gather.
    call: tuple[Rule, int] | None = None
    for i, frame in enumerate(python):
        rule = _rule_for(frame, innermost=i == 0, blocked=blocked)
        if rule is not None and (rule.kind in COMMUNICATION or rule.kind == "work"):
            call = (rule, i)
        elif rule is not None and call is None:
            return _place(rule, python, i, blocked)
        if not _of_library(frame.file):
            break
    else:
        i = len(python)
    if call is not None:
        return _place(call[0], python, call[1], blocked)
    return _place_outside(python, i + 1, blocked)


def _place_outside(python: list[Frame], begin: int, blocked: bool) -> Place:
    """Further out than the library's frames, no rule on a communication holds."""
    for i, frame in enumerate(python[begin:], start=begin):
        rule = _rule_for(frame, innermost=i == 0, blocked=blocked)
        if rule is not None and rule.kind not in COMMUNICATION:
            return _place(rule, python, i, blocked)
    return _framed(Place("code"), python)


def _rule_for(frame: Frame, innermost: bool, blocked: bool) -> Rule | None:
    """The first rule that holds for a frame."""
    for rule in _rules_for(frame.name, frame.file):
        if rule.matches(frame, innermost, blocked):
            return rule
    return None


def _place(rule: Rule, python: list[Frame], i: int, blocked: bool) -> Place:
    frame = python[i]
    op = rule.name_of(frame)
    if rule.kind == "delegate":
        if op == "backward" and blocked and i == 0:
            # Nothing of Python runs inside backward and the thread sleeps: C++ waits for the
            # gradients' reduction.
            return _framed(Place("collective", GRADIENTS, "dp"), python[1:] or python)
        # A line of the user's inside of it (a callback, a coroutine) is run by this thread itself.
        waits = not any(is_users(f) for f in python[:i])
        return _framed(Place("code", op, delegated=waits), python)
    if rule.kind == "work":
        return _framed(Place(rule.kind, op), python[i + 1 :] or python)
    if rule.kind not in COMMUNICATION:
        return _framed(Place(rule.kind, op), python)
    inner, caller = python[: i + 2], _caller(python, i)
    if native_program.is_call(caller):  # the frames around the call are not known
        return Place(rule.kind, op, _group(rule, inner), _peer(op, inner))
    frame = own_frame(python[i:]) or caller
    return Place(rule.kind, op, _group(rule, inner), _peer(op, inner), frame=frame, caller=caller)


def _framed(place: Place, python: list[Frame]) -> Place:
    """The place with the frames of a thread that is not in a communication of its own stack."""
    return structs.replace(place, frame=users_frame(python), caller=outer_frame(python))


def _caller(python: list[Frame], i: int) -> Frame:
    """The first frame outside the communication libraries and torch itself, seen from frame `i`
    outward.
    """
    outer = [f for f in python[i:] if not _of_library(f.file)]
    for frame in outer:
        if not TORCH.search(frame.file):
            return frame
    return outer[0] if outer else python[-1]


def _group(rule: Rule, frames: list[Frame]) -> str:
    """Of the outermost call: all_gather_object passes the world on as a group."""
    told = next((f.group for f in reversed(frames) if f.group), "")
    return rule.group or told


def sends(op: str) -> bool:
    """Whether a transfer of this name only sends."""
    name = op.lower()
    return "send" in name and "recv" not in name


def _peer(op: str, frames: list[Frame]) -> int:
    """The other side of a send or receive, -1 where no frame's variables say it."""
    names = _PEER_NAMES.get(op, ())
    for frame in frames:
        for name in names:
            if frame.values.get(name, -1) >= 0:
                return frame.values[name]
    return -1


class PlaceFinder:
    """`find_place`, once for each stack: equal stacks of a large job are one object."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bool], tuple[Sequence[Frame], Place]] = {}

    def __call__(self, frames: Sequence[Frame], blocked: bool) -> Place:
        """The place of a stack."""
        key = (id(frames), blocked)
        found = self._found.get(key)
        if found is None:  # the stack is kept, so that no other one gets its id
            found = self._found[key] = frames, find_place(frames, blocked)
        return found[1]
