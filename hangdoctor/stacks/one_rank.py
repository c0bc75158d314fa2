"""Whether a condition of a program lets one rank of the whole job through, or all but one, and which."""

from __future__ import annotations

import ast
import re

from ..text.late import late

_RANK = late(r"(?:(?:global|world|my|proc|process)_?)?rank", re.I)
_MAIN = late(
    r"(?:is_)?(?:main|master)(?:_process|_rank)?|is_(?:global|world_process)_zero|is_rank_?(?:zero|0)",
    re.I,
)
ANY = -1  # one rank, whichever it is


def let_through(condition: str) -> int | None:
    """The one rank that a condition holds for; ANY of ``is_main_process``; None where it may hold for
    several, such as ``local_rank == 0``, or for the first of each group.
    """
    node = _parsed(condition)
    return _of(node) if node is not None else None


def shut_out(condition: str) -> int | None:
    """The one rank that a condition does not hold for: 0 of ``rank``, ``rank > 0`` and ``rank != 0``;
    None of any other.
    """
    node = _parsed(condition)
    if node is None:
        return None
    if _is_rank(node) or _is_above_zero(node):
        return 0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = node.operand
        return _equal_to(inner, ast.Eq) if isinstance(inner, ast.Compare) else None
    return _equal_to(node, ast.NotEq) if isinstance(node, ast.Compare) else None


def _parsed(condition: str) -> ast.expr | None:
    """None of what is no expression."""
    try:
        return ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_above_zero(node: ast.expr) -> bool:
    """``rank > 0``; not ``0 > rank``, which holds for none."""
    return isinstance(node, ast.Compare) and _is_rank(node.left) and _equal_to(node, ast.Gt) == 0


def _of(node: ast.expr) -> int | None:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        found = [rank for part in node.values if (rank := _of(part)) is not None]
        return found[0] if found else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _of_not(node.operand)
    if isinstance(node, ast.Compare):
        return _equal_to(node, ast.Eq)
    called = node.func if isinstance(node, ast.Call) and not node.args else node
    return ANY if _MAIN.fullmatch(_last_name(called)) else None


def _of_not(node: ast.expr) -> int | None:
    if isinstance(node, ast.Compare):
        return _equal_to(node, ast.NotEq)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _of(node.operand)
    return 0 if _is_rank(node) else None


def _equal_to(node: ast.Compare, how: type[ast.cmpop]) -> int | None:
    """The number that the rank is compared with."""
    [first, *_] = node.comparators
    if len(node.ops) != 1 or not isinstance(node.ops[0], how):
        return None
    for mine, other in ((node.left, first), (first, node.left)):
        if _is_rank(mine) and isinstance(other, ast.Constant) and type(other.value) is int:
            return other.value
    return None


def _is_rank(node: ast.expr) -> bool:
    """``rank``, ``dist.get_rank()``; not ``self.rank``, which may count in a group."""
    if isinstance(node, ast.Call):
        return not node.args and not node.keywords and _last_name(node.func) == "get_rank"
    return isinstance(node, ast.Name) and _RANK.fullmatch(node.id) is not None


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
