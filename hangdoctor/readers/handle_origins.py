"""Of which transfers the handles are that a line waits for: ``for work in batch_isend_irecv(ops): work.wait()``,
and that a loop asks about: ``while not request.Test(): time.sleep(0.1)``.

The wait itself is native code and says nothing. Where the handles come from, the function around the line
says: what its variable was given there. A handle that came from elsewhere, or from a collective, is left
as it is: unknown.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from ..stacks import call_peers, call_syntax
from ..text.late import late
from .retry_loops import blocks_around, indent_of

EITHER = "send or recv"
_WAITS = late(r"\.wait\(\)")
_TRANSFERS = {"isend": "isend", "irecv": "irecv", "batch_isend_irecv": EITHER}
_SINGLE = frozenset({"isend", "irecv", "issend", "ibsend", "irsend"})
_POLLS = late(
    r"while not (?P<handle>[A-Za-z_]\w*)\.(?:[Tt]est|Get_status|is_completed)\((?:\w+)?\)(?:\[0\])?:"
)
_SAME_ITEMS = frozenset({"reversed", "list", "tuple", "iter", "enumerate"})
_FAR = 200  # lines of a function that are read
_DEEP = 6  # variables that are given by one another
_Gives = ast.Assign | ast.For | ast.comprehension | ast.AugAssign | ast.AnnAssign | ast.NamedExpr
_GIVES = ast.For | ast.comprehension | ast.AugAssign | ast.AnnAssign | ast.NamedExpr
_BATCH, _PLANNED = "batch_isend_irecv", "P2POp"


def origin(lines: Sequence[str], number: int) -> str:
    """ "isend", "irecv" or `EITHER` where line `number` (from 1) waits for nothing else; "" of others."""
    if not 0 < number <= len(lines) or not _WAITS.search(lines[number - 1]):
        return ""
    first, function = _function_around(lines, number - 1)
    if function is None:
        return ""
    made = _awaited(function, number - first)
    if not made or None in made:
        return ""
    found = {_TRANSFERS.get(call_syntax.last_name(call.func), "") for call in made if call}
    if "" in found:
        return ""
    return found.pop() if len(found) == 1 else EITHER


def begun(lines: Sequence[str], number: int) -> str:
    """The one send or receive, as its line makes it, whose handle line `number` (from 1) waits for:
    ``dist.isend(block, to)``. "" where there are several, and where a variable that says the peer
    may have been given another value since.
    """
    if not 0 < number <= len(lines) or not _WAITS.search(lines[number - 1]):
        return ""
    first, function = _function_around(lines, number - 1)
    made = _awaited(function, number - first) if function is not None else []
    call = made[0] if len(made) == 1 else None
    if function is None or call is None:
        return ""
    if call_syntax.last_name(call.func) == _BATCH:
        call = _only_planned(call, function)
    text = ast.unparse(call) if call is not None else ""
    named = call_peers.peer_names(text)
    still = call is not None and _are_still_so(named, call.lineno, function, number - first)
    return text if still else ""


def _awaited(function: ast.AST, line: int) -> list[ast.Call | None]:
    """The calls that made the handles that a line of a function waits for."""
    waits = [
        node.func.value
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "wait"
        and node.lineno == line
    ]
    return [made for one in waits for made in _makers(one, function, _DEEP)]


def _only_planned(batch: ast.Call, function: ast.AST) -> ast.Call | None:
    """``isend(rows, peer)`` of a batch of the one ``P2POp(dist.isend, rows, peer)``."""
    planned = _makers(batch.args[0], function, _DEEP) if batch.args else []
    plan = planned[0] if len(planned) == 1 else None
    if plan is None or call_syntax.last_name(plan.func) != _PLANNED:
        return None
    given = dict(zip(("op", "tensor", "peer"), plan.args, strict=False))
    given |= {k.arg: k.value for k in plan.keywords if k.arg}
    if "peer" not in given or call_syntax.last_name(given.get("op", plan)) not in _SINGLE:
        return None
    call = ast.Call(given["op"], [given.get("tensor", ast.Constant(None)), given["peer"]], [])
    return ast.copy_location(call, plan)


def _are_still_so(names: set[str], begun: int, function: ast.AST, line: int) -> bool:
    """Whether variables say at a line what they said at an earlier one: each is given once, and that
    of a loop is looked at within it.
    """
    for name in names:
        given = [node for node in ast.walk(function) if _gives(node, name)]
        if len(given) > 1:
            return False
        for loop in given:
            if isinstance(loop, ast.comprehension):
                return False
            last = line if not isinstance(loop, ast.For) else loop.end_lineno or 0
            if not loop.lineno < begun <= line <= last:
                return False
    return True


def _gives(node: ast.AST, name: str) -> TypeGuard[_Gives]:
    """Whether a statement gives a variable a value."""
    if isinstance(node, ast.Assign):
        return _is(name, *node.targets)
    return isinstance(node, _GIVES) and _is(name, node.target)


def polled(lines: Sequence[str], number: int) -> str:
    """The one send or receive, as its line makes it, whose handle the loop around line `number` (from 1)
    asks about until it is done; "" of any other line.
    """
    if not 0 < number <= len(lines):
        return ""
    head = number - 1 if _POLLS.match(lines[number - 1].lstrip()) else _loop_around(lines, number)
    asks = _POLLS.match(lines[head].lstrip()) if head >= 0 else None
    _, function = _function_around(lines, head) if asks is not None else (0, None)
    if asks is None or function is None:
        return ""
    made = list(_given_to(asks["handle"], function))
    calls = [node for node in made if isinstance(node, ast.Call) and _is_transfer(node)]
    return ast.unparse(calls[0]) if len(calls) == len(made) == 1 else ""


def _loop_around(lines: Sequence[str], number: int) -> int:
    """The header (from 0) of the innermost ``while`` or ``for``; -1 without one in the function."""
    for at, keyword in blocks_around(lines, number - 1):
        if keyword in ("while", "for"):
            return at
        if keyword in ("def", "class"):
            break
    return -1


def _is_transfer(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr.lower() in _SINGLE


def _function_around(lines: Sequence[str], at: int) -> tuple[int, ast.AST | None]:
    """The line before the function's (from 0) and the function; None where it cannot be read."""
    header = next((n for n, keyword in blocks_around(lines, at) if keyword == "def"), None)
    if header is None:
        return 0, None
    body = [lines[header]]
    indent = indent_of(lines[header])
    for line in lines[header + 1 : header + _FAR]:
        if line.strip() and indent_of(line) <= indent and not line.lstrip().startswith((")", "#")):
            break
        body.append(line)
    try:
        return header, ast.parse(textwrap.dedent("\n".join(body)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return header, None


def _makers(given: ast.expr, function: ast.AST, deep: int) -> list[ast.Call | None]:
    """The calls that made what an expression gives; with None where that is not seen."""
    if isinstance(given, ast.Constant) and given.value is None:
        return []  # given before there is a handle
    if isinstance(given, ast.Call):
        return _by_call(given, function, deep)
    if isinstance(given, ast.Subscript):
        return _makers(given.value, function, deep)
    if isinstance(given, ast.ListComp | ast.GeneratorExp):
        return _makers(given.elt, function, deep)
    if isinstance(given, ast.List | ast.Tuple):
        return [made for one in given.elts for made in _makers(one, function, deep)]
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Add):
        both = (given.left, given.right)
        return [made for one in both for made in _makers(one, function, deep)]
    if isinstance(given, ast.Name) and deep:
        sources = list(_given_to(given.id, function))
        found = [made for one in sources for made in _makers(one, function, deep - 1)]
        return found if sources else [None]
    return [None]


def _by_call(call: ast.Call, function: ast.AST, deep: int) -> list[ast.Call | None]:
    name = call_syntax.last_name(call.func)
    if name in _SAME_ITEMS and len(call.args) == 1:
        return _makers(call.args[0], function, deep)
    return [call if name in _TRANSFERS or name == _PLANNED else None]


def _given_to(name: str, function: ast.AST) -> Iterator[ast.expr]:
    """All that a function gives to a variable: by assignment, in a loop, item by item."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is(name, *node.targets):
            yield _part_for(name, node)
        elif isinstance(node, ast.For | ast.comprehension) and _is(name, node.target):
            yield node.iter
        elif isinstance(node, ast.AugAssign | ast.NamedExpr) and _is(name, node.target):
            yield node.value
        elif isinstance(node, ast.AnnAssign) and _is(name, node.target):
            yield node.value or ast.Constant(None)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in ("append", "extend") and _is(name, node.func.value):
                yield node.args[0]
        elif isinstance(node, ast.arg) and node.arg == name:
            yield ast.Constant(...)  # from its caller


def _part_for(name: str, given: ast.Assign) -> ast.expr:
    """What a variable gets of ``a, b = x, y``; the whole where the two sides are not alike."""
    target, value = given.targets[0], given.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return value
    if len(target.elts) != len(value.elts):
        return value
    parts = zip(target.elts, value.elts, strict=True)
    return next((part for to, part in parts if _is(name, to)), value)


def _is(name: str, *targets: ast.expr) -> bool:
    """Whether a variable is one of these targets; one of several of a tuple says nothing of it."""
    named = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return any(n.id == name for n in named)
