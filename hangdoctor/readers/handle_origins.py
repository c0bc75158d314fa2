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
_UNKNOWN = "?"


def origin(lines: Sequence[str], number: int) -> str:
    """ "isend", "irecv" or `EITHER` where line `number` (from 1) waits for nothing else; "" of others."""
    if not 0 < number <= len(lines) or not _WAITS.search(lines[number - 1]):
        return ""
    first, function = _function_around(lines, number - 1)
    if function is None:
        return ""
    awaited = [
        node.func.value
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "wait"
        and node.lineno + first == number
    ]
    found = {op for one in awaited for op in _made_by(one, function, _DEEP)}
    if not found or _UNKNOWN in found:
        return ""
    return found.pop() if len(found) == 1 else EITHER


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


def _made_by(given: ast.expr, function: ast.AST, deep: int) -> set[str]:
    """What made the handles that an expression gives; with `_UNKNOWN` where that is not seen."""
    if isinstance(given, ast.Constant) and given.value is None:
        return set()  # given before there is a handle
    if isinstance(given, ast.Call):
        return _by_call(given, function, deep)
    if isinstance(given, ast.Subscript):
        return _made_by(given.value, function, deep)
    if isinstance(given, ast.ListComp | ast.GeneratorExp):
        return _made_by(given.elt, function, deep)
    if isinstance(given, ast.List | ast.Tuple):
        return {op for one in given.elts for op in _made_by(one, function, deep)}
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Add):
        both = (given.left, given.right)
        return {op for one in both for op in _made_by(one, function, deep)}
    if isinstance(given, ast.Name) and deep:
        sources = list(_given_to(given.id, function))
        found = {op for one in sources for op in _made_by(one, function, deep - 1)}
        return found if sources else {_UNKNOWN}
    return {_UNKNOWN}


def _by_call(call: ast.Call, function: ast.AST, deep: int) -> set[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    name = call.func.id if isinstance(call.func, ast.Name) else name
    if name in _SAME_ITEMS and len(call.args) == 1:
        return _made_by(call.args[0], function, deep)
    return {_TRANSFERS.get(name, _UNKNOWN)}


def _given_to(name: str, function: ast.AST) -> Iterator[ast.expr]:
    """All that a function gives to a variable: by assignment, in a loop, item by item."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is(name, *node.targets):
            yield node.value
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


def _is(name: str, *targets: ast.expr) -> bool:
    """Whether a variable is one of these targets; one of several of a tuple says nothing of it."""
    named = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return any(n.id == name for n in named)
