"""A job all of whose ranks were ended from outside: whether it got on until then."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from itertools import pairwise

from ...model.log_facts import Ended, NoBeat, PythonError
from ...model.operations import Operation, RankOps
from ...model.pauses import first_end
from ..case import Case
from ..findings import Op
from ..findings.log_remaining import LogRemaining, Undecided
from .scene import Scene

_SET_UP = ("init_process_group", "new_group")  # long before
_SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
_BY_HANDLER = 128  # a handler's exit code, above the signal's number
_LONGER = 2.0  # than the longest pause before
_AT_ONCE_S = 2.0  # between two operations of any job
_ENOUGH = 3  # operations or steps, to know its pauses
_BEATS_S = 2.5  # two heartbeats


def from_outside(case: Case, scene: Scene) -> LogRemaining | None:
    """That every rank was ended by a signal, and how long after its last operation; None where some
    were not, or nothing shows it.
    """
    codes = signalled(scene)
    every = [v.capture.ops for v in case.views if v.capture.ops is not None]
    world = max(case.world_size, scene.logs.world_size)
    shown = any(ops.got_on_s or _signs(ops) for ops in every)
    if not codes or set(codes) != set(range(world)) or not shown:
        return None
    until = first_end(scene.by_boxes())
    idle = max((until - _last_sign(ops) for ops in every), default=0.0)
    steady = len(every) == world and all(_goes_on(ops, until) for ops in every)
    since, open_in, behind = _behind(every) if len(every) == world else _NOBODY
    if behind and since > 0:
        idle = until - since
    return LogRemaining(
        Undecided.FROM_OUTSIDE if steady else Undecided.FROM_OUTSIDE_IDLE,
        tuple(sorted(codes)),
        _last_operation(every),
        iteration=max((ops.iteration for ops in every), default=-1),
        codes=tuple(sorted(set(codes.values()))),
        seconds=max(0.0, idle),
        other=open_in,
        quiet=behind,
    )


_NOBODY: tuple[float, Op | None, tuple[int, ...]] = (0.0, None, ())


def _behind(every: Sequence[RankOps]) -> tuple[float, Op | None, tuple[int, ...]]:
    """(since when all but a few ranks were in one operation, that one, these few, who had not come
    to it).
    """
    last = {ops.rank: ops.unfinished_in_training() for ops in every}
    inside = {rank: calls[0] for rank, calls in last.items() if len(calls) == 1}
    few = tuple(sorted(last.keys() - inside.keys()))
    calls = {(call.op, call.group, call.seq) for call in inside.values()}
    alone = all(not last[rank] for rank in few)
    if len(calls) != 1 or not few or 2 * len(few) >= len(every) or not alone:
        return _NOBODY
    [(name, _, seq)] = calls
    return max(call.entered_s for call in inside.values()), Op(name, seq), few


def cut_off(case: Case) -> LogRemaining | None:
    """Of boxes without any exit: that every rank got on until its last heartbeat. What ended them all
    at once ended `hangdoctor run` too. A few may have been silent before, for no longer than the job's
    pauses: native code keeps the interpreter's lock from the heartbeat.
    """
    views = [v for v in case.views if v.capture.ops is not None]
    every = [v.capture.ops for v in views if v.capture.ops is not None]
    beats = [ops.heartbeat_s for ops in every]
    if not every or len(every) != case.world_size or min(beats) <= 0:
        return None
    silent = [ops for ops in every if max(beats) - ops.heartbeat_s > _BEATS_S]
    if silent and (2 * len(silent) > len(every) or len({v.node for v in views}) > 1):
        return None  # the clocks of two nodes may differ by as much
    alike = [ops for ops in every if ops not in silent]
    steady = all(_goes_on(ops, ops.heartbeat_s) for ops in alike)
    if not steady or not all(_goes_on(ops, max(beats)) for ops in silent):
        return None
    return LogRemaining(
        Undecided.CUT_OFF,
        tuple(sorted(ops.rank for ops in every)),
        _last_operation(every),
        iteration=max(ops.iteration for ops in every),
        seconds=max(0.0, *(ops.heartbeat_s - _last_sign(ops) for ops in alike)),
        silent=tuple(sorted(ops.rank for ops in silent)),
        silent_s=max(beats) - min(beats),
        kept=_kept_the_lock(case, {ops.rank for ops in silent}),
    )


def _kept_the_lock(case: Case, silent: set[int]) -> bool:
    """Whether the signs of life that need no interpreter show that all of these ran, and kept its lock."""
    facts = case.capture.logs.facts if case.capture.logs is not None else []
    kept = {f.rank for f in facts if isinstance(f, NoBeat) and f.how == "gil"}
    return bool(silent) and silent <= kept


def _last_operation(every: Sequence[RankOps]) -> Op | None:
    """The latest of all ranks; None where that is of set-up."""
    last = max((ops.operations[-1] for ops in every if ops.operations), key=_left, default=None)
    if last is None or last.op in _SET_UP:
        return None
    return Op(last.op, last.seq)


def signalled(scene: Scene) -> dict[int, int]:
    """{rank: the signal that ended it}; empty where one ended otherwise."""
    found: dict[int, int] = {}
    for fact in scene.by_boxes():
        if isinstance(fact, PythonError) and fact.error == "KeyboardInterrupt":
            found[fact.rank] = -signal.SIGINT
        elif isinstance(fact, PythonError) and fact.role == "cause":
            return {}
        elif isinstance(fact, Ended) and fact.rank >= 0:
            number = _signal(fact.code)
            if not number:
                return {}
            found.setdefault(fact.rank, -number)
    return found


def _signal(code: int) -> int:
    """The number of the signal that an exit code stands for, 0 for none."""
    number = -code if code < 0 else code - _BY_HANDLER
    return number if number in _SIGNALS else 0


def _goes_on(ops: RankOps, until: float) -> bool:
    """Whether it had just made an operation or a step, as its pauses before were."""
    if 0 <= until - ops.got_on_s <= _BEATS_S:
        return True
    signs = _signs(ops)
    if len(signs) <= _ENOUGH:
        return False
    longest = max(later - earlier for earlier, later in pairwise(signs))
    return until - signs[-1] <= max(_AT_ONCE_S, _LONGER * longest)


def _signs(ops: RankOps) -> list[float]:
    """When operations ended and iterations began, in order; set-up apart."""
    done = [o for o in ops.operations if o.state == "done" and o.op != "init_process_group"]
    signs = [o.left_s for o in done if o.left_s > 0 and not o.failed]
    return sorted([*signs, *(mark.at_s for mark in ops.marks)])


def _last_sign(ops: RankOps) -> float:
    return max([ops.got_on_s, *_signs(ops)[-1:]]) or ops.heartbeat_s


def _left(operation: Operation) -> float:
    return operation.left_s or operation.entered_s
