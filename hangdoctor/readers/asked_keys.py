"""The key that a wait in the store is for, and whose it is: of ``store.wait([key])`` the text that the variable has.

A loop over all ranks around it shows which of them is to set the key, as in
``for r in range(world): store.wait([f"done/{r}"])``. Of other calls no text is read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from ..stacks import call_syntax
from ..text import redaction
from ..text.late import late
from ..text.ranges import number_in
from .retry_loops import blocks_around, indent_of

_WAITS = late(r"\bstore\w*\.(?:wait|get)\(|\.blocking_key_value_get(?:_bytes)?\(")
_CALLS = ("wait", "get", "blocking_key_value_get", "blocking_key_value_get_bytes")
_KEY = late(r"[\w./:@#+-]{1,100}")
_QUOTED = late(r"([\"'])(.*)\1")
_OVER_RANKS = late(r"for\s+(\w+)\s+in\s+range\((?:.*,\s*)?([\w.]+(?:\(\))?)\s*\)\s*:")
_RANKS = late(r"(?:\w+\.)*(?:(?:get_)?world(?:_?size)?(?:\(\))?|n(?:um)?_?ranks|n_?procs)", re.I)


def asked(
    lines: Sequence[str], number: int, code: str, shown: Mapping[str, str]
) -> tuple[str, int]:
    """(the key, the rank that is to set it): "" and -1 where they do not show. Line `number` (from 1) has the
    call `code`; `shown` are the function's variables as py-spy writes them.
    """
    argument = _argument(code) if _WAITS.search(code) else None
    if argument is None:
        return "", -1
    text = _text(argument, shown)
    key = text if _KEY.fullmatch(text) and redaction.text(text) == text else ""
    used = {node.id for node in ast.walk(argument) if isinstance(node, ast.Name)}
    return key, _turn(lines, number, used, shown)


def _argument(code: str) -> ast.expr | None:
    """The one key of the one such call."""
    found = [c for c in call_syntax.calls(code) if call_syntax.last_name(c.func) in _CALLS]
    if len(found) != 1 or not found[0].args:
        return None
    first = found[0].args[0]
    if isinstance(first, ast.List | ast.Tuple):
        return first.elts[0] if len(first.elts) == 1 else None
    return first


def _text(argument: ast.expr, shown: Mapping[str, str]) -> str:
    if isinstance(argument, ast.Constant):
        return argument.value if isinstance(argument.value, str) else ""
    if isinstance(argument, ast.Name):
        return _unquoted(shown.get(argument.id, ""))
    if isinstance(argument, ast.JoinedStr):
        parts = [_part(value, shown) for value in argument.values]
        return "".join(parts) if all(parts) else ""
    return ""


def _part(value: ast.expr, shown: Mapping[str, str]) -> str:
    """One piece of an f-string; "" where no variable of the function shows it."""
    if not isinstance(value, ast.FormattedValue):
        return _text(value, shown)
    if value.format_spec is not None or not isinstance(value.value, ast.Name):
        return ""
    told = shown.get(value.value.id, "")
    return told if number_in(told) >= 0 else _unquoted(told)


def _unquoted(told: str) -> str:
    match = _QUOTED.fullmatch(told)
    return match[2] if match is not None and "..." not in told else ""


def _turn(lines: Sequence[str], number: int, used: set[str], shown: Mapping[str, str]) -> int:
    """The rank whose turn it is in a loop over all ranks, where the key is made with its number."""
    for at, variable in _loops(lines, number):
        made = {variable} & used or any(_makes(line, used, variable) for line in lines[at:number])
        if made:
            return number_in(shown.get(variable, ""))
    return -1


def _loops(lines: Sequence[str], number: int) -> Iterator[tuple[int, str]]:
    """(place, variable) of the loops over all ranks around a line."""
    if not 0 < number <= len(lines):
        return
    for at, keyword in blocks_around(lines, number - 1):
        if keyword in ("def", "class"):
            return
        match = _OVER_RANKS.match(lines[at].strip()) if keyword == "for" else None
        if match is not None and _RANKS.fullmatch(match[2]):
            yield at, match[1]


def _makes(line: str, names: set[str], variable: str) -> bool:
    """Whether a line gives one of the names a value that is made with the variable."""
    tree = call_syntax.tree(line) if indent_of(line) else None
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            inside = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            if call_syntax.last_name(node.targets[0]) in names and variable in inside:
                return True
    return False
