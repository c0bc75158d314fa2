"""The calls in a text of Python, a line or a whole file, by its syntax. No text makes it raise."""

from __future__ import annotations

import ast


def tree(code: str) -> ast.Module | None:
    """None of what is no Python, as a part of a statement of several lines."""
    try:
        return ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def calls(code: str) -> list[ast.Call]:
    """All calls, those in the arguments of others too."""
    parsed = tree(code)
    return calls_in(parsed) if parsed is not None else []


def calls_in(node: ast.AST) -> list[ast.Call]:
    """The calls in a part of a program."""
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def only_call(code: str, name: str) -> ast.Call | None:
    """The one call of this name; None without one, or where there are several."""
    found = [call for call in calls(code) if last_name(call.func) == name]
    return found[0] if len(found) == 1 else None


def is_given_to(inner: str, outer: str, code: str) -> bool:
    """Whether `outer` is called with what a call of `inner` gives: ``outer(inner())``."""
    around = [call for call in calls(code) if last_name(call.func) == outer]
    given = [part for call in around for part in (*call.args, *call.keywords)]
    return any(last_name(call.func) == inner for part in given for call in calls_in(part))


def last_name(of: ast.AST) -> str:
    """``rank`` of ``rank`` and of ``self.rank``; "" of anything else."""
    if isinstance(of, ast.Attribute):
        return of.attr
    return of.id if isinstance(of, ast.Name) else ""
