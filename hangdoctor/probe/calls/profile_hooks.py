"""Calls as profile functions report them, before Python 3.12: set thread by thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from . import format as fmt
from .hook_writer import MAX_KEPT, Decide, Fail, PythonWriter, attach
from .ring import Ring

_SUSPENDS = 0x2A0  # of co_flags: generators, coroutines, asynchronous generators
# A frame that is resumed is behind its yield, one that an exception is thrown into is at it.
_TELLS_THROWN = sys.version_info >= (3, 11)


class Profile:
    """A profile function written in C, set in every thread, by us also in those that others made."""

    variant, means = fmt.EXTENSION, fmt.PROFILE

    def __init__(self, ring: Ring, decide: Decide, module: Any) -> None:
        self._ring, self._decide, self._module = ring, decide, module
        self.left_alone = 0

    def install(self) -> None:
        """See `Hook`."""
        attach(self._module, self._ring, self._decide)
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


class PythonProfile(PythonWriter):
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
            if len(self._exits) >= MAX_KEPT:
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
