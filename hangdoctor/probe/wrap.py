"""The functions that stand in for torch.distributed's: same name, signature, result and exceptions.

What a recorded operation calls is part of it: the outermost one is the operation, on all members
alike. Not recorded themselves, so that what they call is: send_object_list, recv_object_list,
new_subgroups.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from time import time_ns
from types import FrameType
from typing import Any

from . import flight, splits, steps, torchnames
from . import format as fmt
from . import record_core as hot
from .asked_members import asked_members
from .call_forms import form_of, tag_flags
from .call_outcomes import refused, returned, without_us
from .group_table import GroupEntry, Groups
from .identity import ranks_from
from .odd_calls import describe_otherwise
from .process_probe import probe
from .record_core import Thread
from .recorder import Recorder, Token, global_rank, local
from .signatures import COLLECTIVES, NAMED, P2P, Describe, NotAnOperation, all_to_all_single
from .wrap_waits import coalescing

Function = Callable[..., Any]
_frame = sys._getframe
_FIRST_SIZES = 2  # place of the first sizes of parts in a call of all_to_all_single
_SIZES = frozenset({"output_split_sizes", "input_split_sizes"})


def collective(function: Function, describe: Describe) -> Function:
    """Record a collective, synchronous or not."""
    recorded = _collective(function, describe)
    if hot.native is None:
        return recorded
    made = _in_c(function, recorded, describe)
    return made if describe is not all_to_all_single else _uneven(function, made, recorded)


def _uneven(function: Function, even: Function, recorded: Function) -> Function:
    """A call with sizes of parts by `recorded`, which writes them down; any other by `even`."""

    @functools.wraps(function)
    def like(*args: Any, **kwargs: Any) -> Any:
        sized = len(args) > _FIRST_SIZES or not _SIZES.isdisjoint(kwargs)
        return (recorded if sized else even)(*args, **kwargs)

    return like


def _collective(function: Function, describe: Describe) -> Function:
    sized = describe is all_to_all_single

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = probe.recorder
        thread = local.thread
        if recorder is None or thread.depth:
            return function(*args, **kwargs)
        try:
            entered = recorder.enter(
                thread, describe, args, kwargs, frame=_frame().f_back or _frame()
            )
            if sized and entered is not None:
                recorder.add_detail(entered[:2], splits.of_single(args, kwargs))
        except Exception as error:
            probe.fail(error)
            entered = None
        if entered is None:
            return function(*args, **kwargs)
        try:
            thread.depth = 1
            result = function(*args, **kwargs)
        except BaseException as error:
            refused(entered[:2], entered[2], error)
            without_us(error)
            raise
        finally:
            thread.depth = 0
        try:
            if result is None and thread.coalesced is None:
                recorder.words[entered[0] + 7] = time_ns()  # the u64 at byte 56: left
            else:
                returned((entered[:2],), result)
        except Exception as error:
            probe.fail(error)
        return result

    return wrapper


def directed(function: Function, describe: Describe, direction: int) -> Function:
    """Record a send or a receive."""
    recorded = _directed(function, describe, direction)
    return recorded if hot.native is None else _in_c(function, recorded, describe, direction)


def _in_c(
    function: Function, recorded: Function, describe: Describe, direction: int = 0
) -> Function:
    """The same by the extension; `recorded` does it where a signature finds no room in the box.

    A function of Python whose calls go to C at once: compilers, inspect and pickle, which look at
    the job's functions, find one.
    """

    @functools.wraps(function)
    def like(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs)  # of a copy, by whoever makes functions out of functions' code

    functions = like, function, recorded
    helpers = _this_thread, _came_back, refused, global_rank
    form = form_of(describe, direction)
    made: Function = hot.native.Function(*functions, probe, describe, helpers, *form)
    return made


def _this_thread() -> Thread:
    return local.thread


def _came_back(
    token: Token, entry: GroupEntry, result: Any, asynchronous: bool, anybody: bool
) -> None:
    """For the extension: a call returned something that must be followed, or inside a coalescing
    manager.
    """
    source = result if issubclass(type(result), int) else None
    if anybody and source is not None and probe.recorder is not None:
        probe.recorder.resolve_source(token, entry, source)
    returned((token,), None if source is not None else result, asynchronous)


def _directed(function: Function, describe: Describe, direction: int) -> Function:

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = probe.recorder
        thread = local.thread
        if recorder is None or thread.depth:
            return function(*args, **kwargs)
        entered = None
        try:
            described = _describe(describe, args, kwargs)
            if described is not None:
                flags = direction | tag_flags(args, kwargs)
                entered = recorder.enter_directed(described, flags, _frame().f_back or _frame())
        except Exception as error:
            probe.fail(error)
        if entered is None or described is None:
            return function(*args, **kwargs)
        try:
            thread.depth = 1
            result = function(*args, **kwargs)
        except BaseException as error:
            refused(entered[0], None, error)
            without_us(error)
            raise
        finally:
            thread.depth = 0
        try:
            anybody = direction == fmt.RECV and described[2] is None and described[3] is None
            source = result if issubclass(type(result), int) else None
            if anybody and source is not None:
                recorder.resolve_source(entered[0], entered[1], source)
            returned((entered[0],), None if source is not None else result, described[4])
        except Exception as error:
            probe.fail(error)
        return result

    return wrapper


def batch(function: Function) -> Function:
    """Record batch_isend_irecv: one record for each of its sends and receives, all of them entered
    at once.
    """

    @functools.wraps(function)
    def batch_isend_irecv(p2p_op_list: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = probe.recorder
        thread = local.thread
        if recorder is None or thread.depth:
            return function(p2p_op_list, *args, **kwargs)
        tokens: list[Token] = []
        try:
            _enter_all(recorder, tokens, p2p_op_list, _frame().f_back or _frame())
        except Exception as error:
            probe.fail(error)
        try:
            thread.depth = 1
            works = function(p2p_op_list, *args, **kwargs)
        except BaseException as error:
            for token in tokens:
                refused(token, None, error)
            without_us(error)
            raise
        finally:
            thread.depth = 0
        try:
            _all_returned(tokens, works)
        except Exception as error:
            probe.fail(error)
        return works

    return batch_isend_irecv


def _enter_all(recorder: Recorder, tokens: list[Token], ops: Any, frame: FrameType) -> None:
    """A record for each member of a batch, up to one that torch will refuse; tokens are added as
    they come.
    """
    for name, tensor, group, peer, group_peer, tag in map(torchnames.p2p_fields, _p2p_ops(ops)):
        in_group = group_peer if peer is None else None
        call = (tensor, peer, group, tag, in_group)
        described = _describe(P2P[name], call, {})
        if described is None:
            break
        flags = (fmt.SEND if "send" in name else fmt.RECV) | tag_flags(call, {})
        entered = recorder.enter_directed(described, flags, frame)
        if entered is not None:
            tokens.append(entered[0])


def _all_returned(tokens: list[Token], works: Any) -> None:
    handles = works if type(works) is list else []
    if len(handles) == len(tokens):
        for token, work in zip(tokens, handles, strict=True):
            returned((token,), work, True)
    elif tokens:
        # One handle for the whole batch, as NCCL's coalescing returns.
        returned(tuple(tokens), handles[0] if handles else None, True)


def set_up(function: Function, op: str) -> Function:
    """Record init_process_group, new_group and the like, and monitored_barrier; learn of the groups
    that they made.
    """
    beginning = op == "init_process_group"

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = probe.begin() if beginning else probe.recorder
        thread = local.thread
        if recorder is None or thread.depth:
            return function(*args, **kwargs)
        token = group = None
        try:
            entry, group = _group_set_up(recorder.groups, op, args, kwargs)
            if beginning or entry is not None:
                asked = "" if entry is None else _asked(function, entry, args, kwargs)
                token = recorder.enter_named(op, entry, _frame().f_back or _frame(), asked)
        except Exception as error:
            probe.fail(error)
        try:
            thread.depth = 1
            result = function(*args, **kwargs)
        except BaseException as error:
            if token is not None:
                refused(token, None, error)
            without_us(error)
            raise
        finally:
            thread.depth = 0
        try:
            if token is not None and probe.recorder is recorder:
                recorder.finish((token,))
                _is_set_up(recorder, op, group)
        except Exception as error:
            probe.fail(error)
        return result

    return wrapper


def _group_set_up(groups: Groups, op: str, args: Any, kwargs: Any) -> tuple[GroupEntry | None, Any]:
    """The group that takes part in it, as the box knows it and as the call names it."""
    entry = groups.default
    if op == "init_process_group":
        flight.set_recorder_size()
        _tell_rank(args, kwargs)
        entry = groups.expected_world(_world_size(args, kwargs))
    if op not in NAMED:
        return entry, None
    described = _describe(NAMED[op], args, kwargs)
    group = None if described is None else described[1]
    return entry if group is None else groups.named(group), group


def _asked(function: Function, entry: GroupEntry, args: Any, kwargs: Any) -> str:
    """The members that a new group shall have, as far as the call shows them."""
    name = getattr(function, "__name__", "")
    return asked_members(name, args, kwargs, len(entry.members))


def _is_set_up(recorder: Recorder, op: str, group: Any) -> None:
    if op == "init_process_group":
        probe.joined(recorder)
        steps.watch()
    _groups_changed(recorder.groups, op, group)
    if op == "destroy_process_group" and recorder.groups.default is None:
        probe.finished()


# --------------------------------------------------------------------------- small helpers


def _describe(describe: Describe, args: Any, kwargs: Any) -> Any:
    try:
        return describe(*args, **kwargs)
    except NotAnOperation:
        return None
    except Exception as error:
        return describe_otherwise(describe, args, kwargs, error)


def _p2p_ops(ops: Any) -> list[Any]:
    """The list's members if it is one that torch will take, else nothing: torch itself says what is
    wrong.
    """
    module = torchnames.c10d()
    kind = getattr(module, "P2POp", ())
    return ops if type(ops) is list and all(type(op) is kind for op in ops) else []


def _tell_rank(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The rank that the call is given, where the environment has none: it may wait in it for ever."""
    told = args[4] if len(args) > 4 else kwargs.get("rank", -1)
    if isinstance(told, int) and told >= 0 and probe.recorder is not None:
        probe.recorder.box.put(fmt.H_RANK, told)
        probe.recorder.box.put(fmt.H_WORLD, _world_size(args, kwargs))


def _world_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    told = args[3] if len(args) > 3 else kwargs.get("world_size", -1)
    return told if isinstance(told, int) and told > 0 else max(ranks_from(os.environ)[1], 1)


def _groups_changed(groups: Groups, op: str, group: Any) -> None:
    if op == "new_group":
        groups.one_came()
    elif op == "destroy_process_group" and group is not None:
        groups.one_went(group)
    else:
        groups.sync()


def make(name: str, function: Function) -> Function | None:
    """The wrapper for one public function, or None where it has none."""
    if name in COLLECTIVES:
        return collective(function, COLLECTIVES[name])
    if name in P2P:
        return directed(function, P2P[name], fmt.SEND if "send" in name else fmt.RECV)
    if name == "batch_isend_irecv":
        return batch(function)
    if name in ("init_process_group", "new_group") or name in NAMED:
        return set_up(function, name)
    if name in torchnames.GROUP_CHANGERS:
        return set_up(function, "destroy_process_group" if "abort" in name else "new_group")
    if name == torchnames.COALESCING:
        return coalescing(function)
    return None
