"""How the interpreter reports calls: sys.monitoring from Python 3.12 on, profile functions before;
in C or in Python.

A hook is installed while tracing is on and leaves nothing behind when it is removed. One thing
differs: before 3.12 the pure one reaches the main thread and threads that start later, not the
other threads that exist already.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from . import format as fmt
from .ring import Ring

Decide = Callable[[CodeType, "FrameType | None"], int]
Fail = Callable[[BaseException], None]

_TOOL = "hangdoctor"
_TOOL_IDS = (4, 3, 5, 2)  # free ones first, then those that have a customary use
_MAX_KEPT = 1 << 16
_SUSPENDS = 0x2A0  # of co_flags: generators, coroutines, asynchronous generators
_TELLS_THROWN = sys.version_info >= (
    3,
    11,
)  # a frame that is resumed stands behind its yield, one that is thrown into at it
_monitoring: Any = getattr(sys, "monitoring", None)


class Hook(Protocol):
    """One way to have calls reported; `variant` and `means` are numbers of `format`."""

    variant: int
    means: int
    left_alone: int  # threads with another profiler in them

    def install(self) -> None:
        """Begin to report, in every thread that can be reached.

        Raises:
            RuntimeError: other tools hold what it needs.
        """

    def adopt(self) -> None:
        """Reach threads that have come since, as far as this way needs it."""

    def pause(self, flag: bool) -> None:
        """Report nothing while `flag` is true; costs less than `remove` and `install`."""

    def remove(self) -> None:
        """End reporting and leave nothing behind."""


def extension() -> Any:
    """The extension for this interpreter, or None where it was not built."""
    try:
        from . import _calls  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return None
    return _calls


def choose(ring: Ring, decide: Decide, fail: Fail, pure: bool) -> Hook:
    """The fastest hook that works here."""
    module = None if pure else extension()
    if _monitoring is not None:
        return Monitoring(ring, decide, fail, module)
    return (
        Profile(ring, decide, module) if module is not None else PythonProfile(ring, decide, fail)
    )


def _attach(module: Any, ring: Ring, decide: Decide) -> None:
    begin, slots, _ = ring.regions["ring"]
    places = begin, slots, fmt.HEADER_BYTES, fmt.H_HEAD[0]
    module.attach(ring.map, *places, decide, ring.thread)


class Monitoring:
    """sys.monitoring: global, so that every thread is seen; code that is ignored is disabled and
    costs nothing more.
    """

    means, left_alone = fmt.MONITORING, 0

    def __init__(self, ring: Ring, decide: Decide, fail: Fail, module: Any) -> None:
        self.variant = fmt.EXTENSION if module is not None else fmt.PYTHON
        self._ring, self._decide, self._module = ring, decide, module
        self._tool = -1
        self._python = None if module is not None else _PythonCallbacks(ring, decide, fail)

    def install(self) -> None:
        """Take a tool id and switch the events on.

        Raises:
            RuntimeError: other tools have all of them.
        """
        self._tool = _tool_id()
        events = _monitoring.events
        source: Any = self._module or self._python
        local = {
            events.PY_START: source.on_call,
            events.PY_RESUME: source.on_call,
            events.PY_THROW: source.on_throw,
            events.PY_RETURN: source.on_return,
            events.PY_YIELD: source.on_return,
            events.PY_UNWIND: source.on_unwind,
        }
        wanted = 0
        for event, callback in local.items():
            _monitoring.register_callback(self._tool, event, callback)
            wanted |= event
        if self._module is not None:
            _attach(self._module, self._ring, self._decide)
        _monitoring.restart_events()  # what an earlier choice had disabled
        _monitoring.set_events(self._tool, wanted)

    def adopt(self) -> None:
        """Nothing to do: sys.monitoring sees every thread."""
        return None

    def pause(self, flag: bool) -> None:
        """See `Hook`."""
        if self._module is not None:
            self._module.pause(flag)
        elif self._python is not None:
            self._python.paused = flag

    def remove(self) -> None:
        """See `Hook`; gives the tool id back."""
        if self._tool >= 0:
            _monitoring.set_events(self._tool, 0)
            for name in ("PY_START", "PY_RESUME", "PY_THROW", "PY_RETURN", "PY_YIELD", "PY_UNWIND"):
                _monitoring.register_callback(self._tool, getattr(_monitoring.events, name), None)
            _monitoring.free_tool_id(self._tool)
            self._tool = -1
        if self._module is not None:
            self._module.detach()


def _tool_id() -> int:
    for number in _TOOL_IDS:
        if _monitoring.get_tool(number) is None:
            _monitoring.use_tool_id(number, _TOOL)
            return number
    raise RuntimeError("every tool id of sys.monitoring is in use")


class _PythonWriter:
    """What the pure hooks share: answers by code object, and one event."""

    def __init__(self, ring: Ring, decide: Decide, fail: Fail) -> None:
        self._ring, self._decide, self._fail = ring, decide, fail
        self._ids: dict[
            int, tuple[CodeType, int]
        ] = {}  # by id(): a code object's own hash reads all of it
        self._local = _thread._local()
        self.paused = False

    def answer(self, code: CodeType, frame: FrameType | None) -> int:
        known = self._ids.get(id(code))
        if known is not None:
            return known[1]
        id_ = self._decide(code, frame)
        if len(self._ids) >= _MAX_KEPT:
            self._ids.clear()
        self._ids[id(code)] = (code, id_)  # the code itself: its number must not pass to another
        return id_

    def write(self, id_: int, kind: int) -> None:
        local, ring = self._local, self._ring
        try:
            index = local.index
            if ring.owners[index] != local.tid:  # its entry has passed on to a later thread
                index = local.index = ring.thread()
        except AttributeError:
            local.tid = _thread.get_native_id()
            index = local.index = ring.thread()
        ring.put(id_, index, kind)


class _PythonCallbacks(_PythonWriter):
    """sys.monitoring's callbacks where there is no extension."""

    def _event(self, code: CodeType, kind: int, can_disable: bool) -> Any:
        if self.paused:
            return None
        try:
            id_ = self.answer(code, sys._getframe(2))
            if id_ >= 0:
                self.write(id_, kind)
            elif can_disable:
                return _monitoring.DISABLE
        except Exception as error:
            self._fail(error)
        return None

    def on_call(self, code: CodeType, *_: Any) -> Any:
        return self._event(code, fmt.CALL, True)

    def on_throw(self, code: CodeType, *_: Any) -> Any:
        return self._event(code, fmt.CALL, False)

    def on_return(self, code: CodeType, *_: Any) -> Any:
        return self._event(code, fmt.RETURN, True)

    def on_unwind(self, code: CodeType, *_: Any) -> Any:
        return self._event(code, fmt.EXCEPTION, False)


class Profile:
    """A profile function written in C, set in every thread, by us also in those that others made."""

    variant, means = fmt.EXTENSION, fmt.PROFILE

    def __init__(self, ring: Ring, decide: Decide, module: Any) -> None:
        self._ring, self._decide, self._module = ring, decide, module
        self.left_alone = 0

    def install(self) -> None:
        """See `Hook`."""
        _attach(self._module, self._ring, self._decide)
        _for_new_threads(self._module.join, True)
        self.adopt()

    def adopt(self) -> None:
        """Also the threads that were made since, autograd's for example."""
        self.left_alone = self._module.adopt()[1]

    def pause(self, flag: bool) -> None:
        """See `Hook`."""
        self._module.pause(flag)

    def remove(self) -> None:
        """See `Hook`; also out of the threads that others made."""
        _for_new_threads(self._module.join, False)
        self._module.release()
        self._module.detach()


def _for_new_threads(function: Any, on: bool) -> None:
    """threading's profile function for new threads: ours, unless the job has one of its own."""
    threading = sys.modules.get("threading")
    if threading is not None and threading._profile_hook in ((None,) if on else (function,)):
        threading.setprofile(function if on else None)


class PythonProfile(_PythonWriter):
    """`sys.setprofile` where there is no extension: each thread sets its own, so only some can be
    reached.
    """

    variant, means = fmt.PYTHON, fmt.PROFILE

    def __init__(self, ring: Ring, decide: Decide, fail: Fail) -> None:
        super().__init__(ring, decide, fail)
        self.left_alone = 0
        self._on = False
        self._exits: dict[int, frozenset[int]] = {}
        self._thrown: dict[int, int] = {}  # frames that an exception was thrown into, and where
        self._function = (
            self.on_event
        )  # one object: methods are made anew each time they are asked for

    def install(self) -> None:
        """In the main thread, and in threads that start from now on."""
        self._on = True
        _for_new_threads(self._function, True)
        _in_main_thread(self._here)

    def adopt(self) -> None:
        """Again in the main thread: a signal handler's exception that passed through has taken it
        out.
        """
        _in_main_thread(self._here)

    def pause(self, flag: bool) -> None:
        """See `Hook`."""
        self.paused = flag

    def remove(self) -> None:
        """Out of the main thread now; other threads drop it at their next call."""
        self._on = False
        _for_new_threads(self._function, False)
        _in_main_thread(self._here)

    def _here(self) -> None:
        """Set or take out the function in the current thread; another profiler is left alone."""
        now = sys.getprofile()
        if self._on and now is None:
            sys.setprofile(self._function)
        elif not self._on and now is self._function:
            sys.setprofile(None)
        self.left_alone = int(now is not None and now is not self._function)

    def on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        """The profile function itself, as `sys.setprofile` calls it."""
        if self.paused:
            return
        try:
            if event == "call":
                id_ = self.answer(frame.f_code, frame)
                if id_ >= 0:
                    self.write(id_, fmt.CALL)
                    if (
                        _TELLS_THROWN
                        and frame.f_code.co_flags & _SUSPENDS
                        and frame.f_lasti in self._exits_of(frame.f_code)
                    ):
                        self._thrown[id(frame)] = frame.f_lasti
            elif event == "return":
                id_ = self.answer(frame.f_code, frame)
                if id_ >= 0:
                    self.write(
                        id_, fmt.RETURN if arg is not None or self._leaves(frame) else fmt.EXCEPTION
                    )
            if not self._on:
                self._here()
        except Exception as error:
            self._fail(error)

    def _leaves(self, frame: FrameType) -> bool:
        """Whether the frame is at a return or yield of None; else it is left by an exception
        (Python does not say).
        """
        at = frame.f_lasti
        if self._thrown and self._thrown.pop(id(frame), -1) == at:
            return False
        return at in self._exits_of(frame.f_code)

    def _exits_of(self, code: CodeType) -> frozenset[int]:
        exits = self._exits.get(id(code))
        if exits is None:
            if len(self._exits) >= _MAX_KEPT:
                self._exits.clear()
            exits = self._exits[id(code)] = _exits_of(code)
        return exits


def _exits_of(code: CodeType) -> frozenset[int]:
    import opcode

    wanted = {
        opcode.opmap[name] for name in ("RETURN_VALUE", "YIELD_VALUE") if name in opcode.opmap
    }
    delegating = opcode.opmap.get("YIELD_FROM")  # Python 3.10: stands one instruction before it
    raw = code.co_code
    return frozenset(
        i
        for i in range(0, len(raw), 2)
        if raw[i] in wanted or (i + 2 < len(raw) and raw[i + 2] == delegating)
    )


_pending: list[Callable[[], None]] = []
_callback: Any = None  # made once and kept: the interpreter may come to it at any later time
_queued = False


def _in_main_thread(function: Callable[[], None]) -> None:
    """Run something in the main thread, between two of its instructions; at once if this is it. No
    signal is sent.
    """
    global _callback, _queued
    import threading

    if threading.get_ident() == threading.main_thread().ident:
        function()
        return
    import ctypes

    if _callback is None:
        _callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_pending)
    if function not in _pending:
        _pending.append(function)
    if not _queued:
        _queued = ctypes.pythonapi.Py_AddPendingCall(_callback, None) == 0


def _run_pending(_: Any) -> int:
    global _queued
    _queued = False
    while _pending:
        _pending.pop(0)()
    return 0
