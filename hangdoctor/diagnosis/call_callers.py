"""Which caller a call is of: a helper that is called from two places is two steps of a program, and so
is what it calls. Pure.

Only such functions are told apart by their callers. Of all others the caller adds nothing, and a trace
that begins in the middle of a call does not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..model.calls import Function
from .call_alignment import Callers, Steps, last_place

Seen = tuple[Function, Function | None, Callers]  # a call, its caller, and those that tell it apart


def by_callers(one: Steps, other: Steps) -> tuple[Steps, Steps]:
    """Two histories whose steps name the callers of what either of them calls from several places."""
    callers: dict[Function, set[Function]] = {}
    for function, caller, _ in [*_seen(one, _no_function), *_seen(other, _no_function)]:
        if caller is not None:
            callers.setdefault(function, set()).add(caller)
    several = {function for function, found in callers.items() if len(found) > 1}
    if not several:
        return one, other
    return _named(one, several.__contains__), _named(other, several.__contains__)


def _no_function(_: Function) -> bool:
    return False


def _named(steps: Steps, has_several: Callable[[Function], bool]) -> Steps:
    pairs = zip(steps, _seen(steps, has_several), strict=True)
    return [((step[0], step[1], callers), event) for (step, event), (_, _, callers) in pairs]


def _seen(steps: Steps, has_several: Callable[[Function], bool]) -> Iterator[Seen]:
    """Of each step the function and what called it, None where the trace does not show it."""
    stack: list[Seen] = []
    for (kind, function, _), event in steps:
        if event.kind == "open":
            # It runs since before the trace began: what the trace has before that is not its caller.
            stack = [*stack, (function, None, ())] if _all_open(stack) else [(function, None, ())]
            yield stack[-1]
            continue
        if kind == "call":
            stack.append(_called(function, stack, has_several))
            yield stack[-1]
            continue
        place = last_place([inside for inside, _, _ in stack], function)
        if place is None:
            stack = []  # it was called before the trace begins, and so was what it is in
            yield function, None, ()
            continue
        yield stack[place]
        del stack[place:]


def _called(function: Function, stack: list[Seen], has_several: Callable[[Function], bool]) -> Seen:
    if not stack:
        return function, None, ()
    caller, _, above = stack[-1]
    return function, caller, ((*above, caller) if has_several(function) else above)


def _all_open(stack: list[Seen]) -> bool:
    return all(caller is None for _, caller, _ in stack)
