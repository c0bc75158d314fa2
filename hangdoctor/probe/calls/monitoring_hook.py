"""Calls as sys.monitoring reports them, from Python 3.12 on: of every thread."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from . import format as fmt
from .hook_writer import Decide, Fail, PythonWriter, attach
from .ring import Ring

_TOOL = "hangdoctor"
_TOOL_IDS = (4, 3, 5, 2)  # free ones first, then those that have a customary use
_monitoring: Any = getattr(sys, "monitoring", None)


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
            attach(self._module, self._ring, self._decide)
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


class _PythonCallbacks(PythonWriter):
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
