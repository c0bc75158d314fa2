"""What follows a recorded call: it returned, returned a handle that is waited for later, or raised."""

from __future__ import annotations

import sys
from typing import Any

from . import torchnames
from .process_probe import probe
from .recorder import Token, local

_bases = type.__dict__["__mro__"].__get__
_attributes = type.__dict__["__dict__"].__get__


def returned(tokens: tuple[Token, ...], result: Any, asynchronous: bool = False) -> None:
    """After the call: done, or a handle to follow."""
    recorder = probe.recorder
    if recorder is None:
        return
    thread = local.thread
    if torchnames.is_unlaunched(result) or (thread.coalesced is not None and not asynchronous):
        if thread.coalesced is not None:
            thread.coalesced.extend(tokens)
        return
    if _has(type(result), "is_completed"):
        recorder.follow(result, tokens)
    elif asynchronous:
        recorder.follow(None, tokens)
    else:
        recorder.finish(tokens)


def _has(kind: type, name: str) -> bool:
    """`hasattr` of a class, without running code of the job: its metaclass is not asked."""
    return any(name in _attributes(base) for base in _bases(kind))


def finish(tokens: tuple[Token, ...], outcome: int = 0) -> None:
    """These operations are over, with an outcome of `format`: 0 for well."""
    recorder = probe.recorder
    if recorder is None:
        return
    try:
        recorder.waited()
        recorder.finish(tokens, outcome)
    except Exception as error:
        probe.fail(error)


def refused(token: Token, entry: Any, error: BaseException) -> None:
    """The call raised `error`, which is the job's and goes on to it."""
    recorder = probe.recorder
    if recorder is None:
        return
    try:
        recorder.refuse(token, entry, error)
    except Exception as internal:
        probe.fail(internal)


def without_us(error: BaseException) -> None:
    """Take the wrapper's own frame off the traceback of the job's error: without the probe it has none.

    Called where the wrapper has caught it. A bare `raise` keeps that from Python 3.11 on; before, it
    brings the whole one back.
    """
    here = sys.exc_info()[2]
    if here is not None:
        BaseException.with_traceback(error, here.tb_next)
