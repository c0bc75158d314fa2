"""Roots that torch's recorder leaves out, from the stacks of the ranks that are in the call.

The recorder has no root of a broadcast, scatter, reduce or gather; the frame of torch's own function has it
among its variables. Ranks that have left the call do not show theirs any more, but where a loop makes the
calls, one for each tensor, and the root is none of what the loop counts.
"""

from __future__ import annotations

import ast
import re

from msgspec import structs

from ..model.operations import Group, Operation, RankOps
from ..stacks.call_syntax import calls_in, only_call
from ..stacks.root_names import NAMES_OF_ROOT
from ..stacks.user_code import C10D, is_users
from .case import Case
from .view import RankView

_OF_OBJECTS, _OBJECTS = "broadcast_object_list", "broadcast(object_tensor"  # torch's own line


def added(case: Case, records: dict[int, RankOps]) -> dict[int, RankOps]:
    """The records, with the root of the one call in which a rank is now."""
    views = {view.rank: view for view in case.alive}
    return {
        rank: _with_root(views[rank], ops) if rank in views else ops
        for rank, ops in records.items()
    }


def _with_root(view: RankView, ops: RankOps) -> RankOps:
    if ops.source != "flight_recorder" or not view.waits:
        return ops
    open_now = [op for op in ops.unfinished() if op.op in NAMES_OF_ROOT and op.root < 0]
    root = _root(view, ops.groups, open_now[0]) if len(open_now) == 1 else -1
    if root < 0:
        return ops
    [call] = open_now
    numbers = {call.seq, call.seq - 1} if _is_second(view) else {call.seq}
    if _has_one_root_in_its_loop(view, call.op):
        numbers |= _rounds_before(ops, call)
    told: list[Operation] = [
        structs.replace(op, root=root) if _is_part(op, call, numbers) else op
        for op in ops.operations
    ]
    return structs.replace(ops, operations=told)


def _is_part(op: Operation, call: Operation, numbers: set[int]) -> bool:
    return (op.group, op.op) == (call.group, call.op) and op.seq in numbers and op.root < 0


def _is_second(view: RankView) -> bool:
    """Whether its broadcast is that of the objects of a list, after the one of their sizes with the same
    root.
    """
    return any(f.name == _OF_OBJECTS and _OBJECTS in f.code for f in view.path)


def _rounds_before(ops: RankOps, call: Operation) -> set[int]:
    """Numbers of the same calls from the same line that come right before it on its group."""
    of_group = {op.seq: op for op in ops.operations if op.group == call.group}
    number = call.seq - 1
    while (op := of_group.get(number)) and (op.op, op.site) == (call.op, call.site):
        number -= 1
    return set(range(number + 1, call.seq)) if call.site else set()


def _has_one_root_in_its_loop(view: RankView, op: str) -> bool:
    """Whether its line is in a for loop and names a root that the loop does not change."""
    frame = view.place.frame
    if frame is None or not is_users(frame) or frame.counts in ("", "while"):
        return False
    call = only_call(frame.code, op)
    told = [key.value for key in call.keywords if key.arg == NAMES_OF_ROOT[op]] if call else []
    if len(told) != 1 or calls_in(told[0]):
        return False
    changing = set(re.findall(r"\w+", frame.counts))
    return not changing & {node.id for node in ast.walk(told[0]) if isinstance(node, ast.Name)}


def _root(view: RankView, groups: list[Group], call: Operation) -> int:
    """The global rank, by the frame of torch's function; -1 where it is not there."""
    frames = [f for f in view.path if f.name == call.op and f.file.endswith(C10D)]
    if not frames:
        return -1
    values, variable = frames[-1].values, NAMES_OF_ROOT[call.op]
    own = values.get(variable, -1)
    if own >= 0:
        return own
    members = next((list(g.ranks) for g in groups if g.uid == call.group), [])
    place = values.get(f"group_{variable}", -1)
    return members[place] if 0 <= place < len(members) else -1
