"""What a thread waits for inside of its own process, or on its node, by its innermost frames: its device, a process or
a thread that it started, the end of all of its threads. No other rank is waited for in these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from ..model.frame import Frame
from ..text.late import late

What = Literal["device", "child", "thread", "exit"]

_INNERMOST = 12  # frames that are looked through
# As the runtimes of CUDA, ROCm, Level Zero, SYCL and CANN call it
_DEVICE = late(
    r"(?:^|[:_.])(?:cuda|cu|hip)(?:Stream|Event|Device|Ctx)Synchronize\w{0,20}$|(?:^|[:_.])cu(?:StreamWaitValue|MemcpyDtoH)\w{0,20}$"
    r"|\b(?:urEventWait|urQueueFinish|piEventsWait|zeEventHostSynchronize|zeCommandQueueSynchronize|zeFenceHostSynchronize)$"
    r"|\b(?:aclrtSynchronize|rtStreamSynchronize|rtDeviceSynchronize|rtEventSynchronize)\w{0,24}$"
    r"|\bsycl::\w{0,20}(?:::\w{1,20}){0,2}(?:event|queue)::wait\w{0,24}$"
)
_OF_CHILDREN = late(r"(?:^|/)(?:multiprocessing/(?:popen_\w+|process)|subprocess)\.py$")
_WAITS = ("wait", "poll", "join", "_wait", "_try_wait", "communicate")
_CHILD = late(r"^_{0,2}(?:GI_{1,3}|libc_)?wait(?:pid|id|4)?$")
_NATIVE_JOIN = late(r"^(?:std::thread::join|(?:__)?pthread_(?:clock|timed)?join\w{0,12})\b")
_THREADING = late(r"(?:^|/)threading\.py$")
_JOINS = ("join", "_wait_for_tstate_lock", "_join_os_thread")


class InnerWait(Struct, frozen=True):
    """`call`: the function by which it shows."""

    what: What
    call: Frame


def inner_wait(frames: Sequence[Frame]) -> InnerWait | None:
    """The wait that the innermost frames are in, the innermost first; None for what is none of these."""
    near = frames[:_INNERMOST]
    for frame in near:
        native = not frame.file.endswith(".py")
        if native and _DEVICE.search(frame.name):
            return InnerWait("device", frame)
        if native and _NATIVE_JOIN.search(frame.name):
            return InnerWait("thread", frame)
        if native and _CHILD.search(frame.name):
            return InnerWait("child", frame)
        if not native:
            return _in_python(frame)
    return None


def _in_python(inner: Frame) -> InnerWait | None:
    """By the innermost frame of Python's."""
    name = inner.own_name
    if _OF_CHILDREN.search(inner.file) and name in _WAITS:
        return InnerWait("child", inner)
    if _THREADING.search(inner.file):
        if name == "_shutdown":
            return InnerWait("exit", inner)
        if name in _JOINS:
            return InnerWait("thread", inner)
    return None
