"""Handles of mpi4py's non-blocking calls that tell when they are waited for, and when they are done."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import format as fmt
from .call_outcomes import finish, without_us
from .process_probe import probe
from .recorder import Token

Function = Callable[..., Any]
_WAITS = ("Wait", "wait")
_TESTS = ("Test", "test")
_OF_MANY = ("all", "any", "some")


def recording_requests(base: Any) -> Any:
    """A subclass of mpi4py's Request by the same name; what is of `base` counts as of it."""

    class Kind(type(base)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return type.__instancecheck__(base if cls is recording else cls, instance)

        def __subclasscheck__(cls, subclass: Any) -> bool:
            return type.__subclasscheck__(base if cls is recording else cls, subclass)

    members: dict[str, Any] = {"__module__": base.__module__}
    for name in (*_WAITS, *_TESTS):
        members[name] = _of_one(getattr(base, name), name in _WAITS)
        for many in _OF_MANY:
            function = getattr(base, name + many, None)
            if function is not None:
                members[name + many] = classmethod(_of_many(function, name in _WAITS))
    recording: Any = Kind(base.__name__, (base,), members)
    return recording


def _of_one(function: Function, waits: bool) -> Function:
    @functools.wraps(function)
    def method(request: Any, *args: Any, **kwargs: Any) -> Any:
        tokens = _begin((request,)) if waits else ()
        try:
            result = function(request, *args, **kwargs)
        except BaseException as error:
            finish(tokens, fmt.FAILED)
            without_us(error)
            raise
        _end((request,), waits)
        return result

    return method


def _of_many(function: Function, waits: bool) -> Function:
    """`function` is bound to mpi4py's own class."""

    @functools.wraps(function)
    def method(_: Any, requests: Any, *args: Any, **kwargs: Any) -> Any:
        known = requests if type(requests) in (list, tuple) else ()
        tokens = _begin(known) if waits else ()
        try:
            result = function(requests, *args, **kwargs)
        except BaseException as error:
            finish(tokens, fmt.FAILED)
            without_us(error)
            raise
        _end(known, waits)
        return result

    return method


def _begin(requests: Sequence[Any]) -> tuple[Token, ...]:
    """This thread waits for these from now on."""
    recorder = probe.recorder
    if recorder is None:
        return ()
    try:
        items = [recorder.outstanding.get(id(request)) for request in requests]
        tokens = tuple(token for item in items if item is not None for token in item[1])
        if tokens:
            recorder.waiting(tokens)
        return tokens
    except Exception as error:
        probe.fail(error)
        return ()


def _end(requests: Sequence[Any], waited: bool) -> None:
    """MPI has made null the handles of operations that are done."""
    recorder = probe.recorder
    if recorder is None:
        return
    try:
        if waited:
            recorder.waited()
        for request in requests:
            if id(request) in recorder.outstanding and not request:
                recorder.finish(recorder.outstanding.pop(id(request))[1])
    except Exception as error:
        probe.fail(error)
