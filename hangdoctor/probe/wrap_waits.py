"""Where operations are waited for after their call: handles, stores, and coalescing managers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from . import format as fmt
from . import record_core as hot
from . import torchnames
from .call_outcomes import finish, refused, without_us
from .process_probe import probe
from .recorder import local

Function = Callable[..., Any]
_frame = sys._getframe


def store_wait(function: Function, name: str) -> Function:
    """Record a store's wait or get outside of other operations. A method: C++ knows overrides by
    name and `self`.
    """

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = probe.recorder
        thread = local.thread
        if recorder is None or thread.depth:
            return function(self, *args, **kwargs)
        token = None
        try:
            keys = args[0] if args else next(iter(kwargs.values()), "")
            token = recorder.enter_named(
                "store_wait", None, _frame().f_back or _frame(), _spelled(keys) or "?"
            )
        except Exception as error:
            probe.fail(error)
        try:
            thread.depth = 1
            result = function(self, *args, **kwargs)
        except BaseException as error:
            if token is not None:
                refused(token, None, error)
            without_us(error)
            raise
        finally:
            thread.depth = 0
        if token is not None:
            finish((token,))
        return result

    return _like(wait, function, name)


def handle_wait(function: Function) -> Function:
    """Record the completion of an asynchronous operation at its handle's wait()."""

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = probe.recorder
        item = recorder.outstanding.pop(id(self), None) if recorder is not None else None
        if item is None or recorder is None:
            try:
                return function(self, *args, **kwargs)
            except BaseException as error:
                without_us(error)
                raise
        try:
            recorder.waiting(item[1])
        except Exception as error:
            probe.fail(error)
        try:
            result = function(self, *args, **kwargs)
        except BaseException as error:
            finish(item[1], fmt.FAILED)
            without_us(error)
            raise
        finish(item[1])
        return result

    return _method(function, _like(wait, function, "wait"))


def handle_is_completed(function: Function) -> Function:
    """Record the completion that a polling job sees."""

    def is_completed(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(self, *args, **kwargs)
        recorder = probe.recorder
        if result and recorder is not None:
            item = recorder.outstanding.pop(id(self), None)
            if item is not None:
                finish(item[1])
        return result

    return _method(function, _like(is_completed, function, "is_completed"))


def _method(function: Function, recorded: Function) -> Function:
    """The same by the extension: torch calls it in every synchronous operation, too."""
    kind = torchnames.work_class()
    if hot.native is None or not isinstance(kind, type):
        return recorded
    waits = recorded.__name__ == "wait"
    method: Function = hot.native.Method(function, recorded, probe, kind, waits)
    return _like(method, function, recorded.__name__)


def _like(wrapper: Function, function: Function, name: str) -> Function:
    wrapper.__name__ = name
    wrapper.__qualname__ = getattr(function, "__qualname__", name)
    wrapper.__doc__ = function.__doc__
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


def coalescing(function: Function) -> Function:
    """Operations inside a coalescing manager run when it is left: until then they are started, not
    done.
    """

    @functools.wraps(function)
    def _coalescing_manager(*args: Any, **kwargs: Any) -> Any:
        inner = function(*args, **kwargs)
        return inner if probe.recorder is None or local.thread.depth else _Coalesced(inner)

    return _coalescing_manager


class _Coalesced:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._handles: Any = None

    def __enter__(self) -> Any:
        self._handles = self._inner.__enter__()
        local.thread.coalesced = []
        return self._handles

    def __exit__(self, *exc: Any) -> Any:
        thread = local.thread
        tokens, thread.coalesced = tuple(thread.coalesced or ()), None
        recorder = probe.recorder
        try:
            if recorder is not None and tokens:
                recorder.waiting(tokens)
        except Exception as error:
            probe.fail(error)
        try:
            result = self._inner.__exit__(*exc)
        except BaseException:
            finish(tokens, fmt.FAILED)
            raise
        works = getattr(self._handles, "works", None)
        try:
            if recorder is not None and tokens:
                recorder.waited()
                if works:
                    recorder.follow(works[-1], tokens)
                else:
                    recorder.finish(tokens, fmt.FAILED if exc[0] is not None else 0)
        except Exception as error:
            probe.fail(error)
        return result


def _spelled(keys: Any) -> str:
    """A store's keys, as far as a record has room; what can be gone through only once (a generator)
    is the job's.
    """
    if type(keys) is str:
        return keys
    if type(keys) not in (list, tuple):
        return ""
    return ",".join(key for key in keys[:8] if type(key) is str)
