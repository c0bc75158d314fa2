"""Calls that a function of `signatures` cannot describe: parameters of a newer torch, or objects
that do not answer. What can be said of them is recorded all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .signatures import Describe, Described, or_zero
from .whose_error import is_ours

_RECORDED = {"isend": "send", "irecv": "recv"}


def describe_known(
    describe: Describe, args: Sequence[Any], kwargs: dict[str, Any]
) -> Described | None:
    """Describe a call with parameters that this torch has and this file has not; None if it is not
    a valid call.
    """
    code = describe.__code__
    names = code.co_varnames[: code.co_argcount]
    try:
        return describe(*args[: len(names)], **{k: v for k, v in kwargs.items() if k in names})
    except TypeError:
        return None


def describe_otherwise(
    describe: Describe, args: Sequence[Any], kwargs: dict[str, Any], error: Exception
) -> Described | None:
    """What can be told of a call that `describe` fails on: without shapes at worst. None if torch
    will refuse it as well.

    Raises:
        Exception: `error`, when it is the job's.
    """
    if not is_ours(error):
        raise error
    trace = error.__traceback__
    at_the_call = trace is not None and trace.tb_next is None  # of `describe` itself
    if isinstance(error, TypeError) and at_the_call:
        try:
            return describe_known(describe, args, kwargs)
        except Exception as second:
            if not is_ours(second):
                raise
    return _bare(describe, args, kwargs)


def _bare(describe: Describe, args: Sequence[Any], kwargs: dict[str, Any]) -> Described:
    """The operation with its group and root, and nothing of its tensors."""
    code = describe.__code__
    names = code.co_varnames[: code.co_argcount]
    given = dict(zip(names, args, strict=False)) | {
        name: value for name, value in kwargs.items() if name in names
    }
    root = given.get("src", given.get("dst"))
    group_root = given.get("group_src", given.get("group_dst"))
    op = describe.__name__
    if op in ("gather", "scatter"):
        root = or_zero(root, group_root)
    asynchronous = op in ("isend", "irecv") or given.get("async_op") is True
    return (_RECORDED.get(op, op), "", "", ""), given.get("group"), root, group_root, asynchronous
