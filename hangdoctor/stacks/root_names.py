"""The variables by which a program's functions choose the root of a collective, from its source.

``comm.Bcast(x, root=best)`` names one, and so does ``adopt(x, best)`` where `adopt` makes that call with
its second parameter. What a rank has in them shows the root that it takes, also after the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from . import call_syntax
from .call_syntax import last_name

_KEYWORDS = ("root", "src", "dst")
# torch's collectives with a root, and the parameter that names it
NAMES_OF_ROOT = {
    "broadcast": "src",
    "broadcast_object_list": "src",
    "scatter": "src",
    "scatter_object_list": "src",
    "reduce": "dst",
    "gather": "dst",
    "gather_object": "dst",
}
ROOTED = frozenset({*NAMES_OF_ROOT, "bcast", "ibcast", "gatherv", "scatterv"})  # and MPI's
# Where a call has its root by place; mpi4py's and torch's.
_PLACES = {
    "bcast": 1,
    "Bcast": 1,
    "broadcast": 1,
    "broadcast_object_list": 1,
    "Gather": 2,
    "Scatter": 2,
}
_ROUNDS = 3  # of calls that pass it on
_LARGEST = 1 << 20  # characters of a file
_OWNER = ("self", "cls")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Names = dict[str, set[str]]  # of each function, by its own name; "" of a module


def names(lines: Sequence[str], number: int) -> frozenset[str]:
    """Those of the function around line `number` (from 1), of the module outside of one."""
    if not 0 < number <= len(lines) or sum(map(len, lines)) > _LARGEST:
        return frozenset()
    found, spans = _chosen("\n".join(lines))
    inside = [(first, name) for first, last, name in spans if first <= number <= last]
    return frozenset(found.get(max(inside, default=(0, ""))[1], ()))


@lru_cache(maxsize=16)
def _chosen(text: str) -> tuple[Names, list[tuple[int, int, str]]]:
    tree = call_syntax.tree(text)
    if tree is None:
        return {}, []
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    calls = {"": list(_calls(tree))} | {f.name: list(_calls(f)) for f in functions}
    found: Names = {name: set(_direct(some)) for name, some in calls.items()}
    parameters = {f.name: _parameters(f) for f in functions}
    for _ in range(_ROUNDS):
        for name, some in calls.items():
            found[name] |= set(_passed_on(some, parameters, found))
    spans = [(f.lineno, f.end_lineno or f.lineno, f.name) for f in functions]
    return {name: some for name, some in found.items() if some}, spans


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def _direct(calls: Sequence[ast.Call]) -> Iterator[str]:
    """Names that stand for the root in a call itself."""
    for call in calls:
        if last_name(call.func).lower() in ROOTED:
            told = [key.value for key in call.keywords if key.arg in _KEYWORDS]
            place = _PLACES.get(last_name(call.func), len(call.args))
            yield from _plain([*told, *call.args[place : place + 1]])


def _passed_on(
    calls: Sequence[ast.Call], parameters: dict[str, list[str]], found: Names
) -> Iterator[str]:
    """Names that are given to a function of the file for a parameter that names a root there."""
    for call in calls:
        name = last_name(call.func)
        wanted = found.get(name, set()) if name in parameters else set()
        if wanted:
            given = dict(zip(parameters[name], call.args, strict=False))
            by_name = {key.arg: key.value for key in call.keywords}
            yield from _plain([value for of, value in (given | by_name).items() if of in wanted])


def _plain(values: Sequence[ast.expr]) -> Iterator[str]:
    return (value.id for value in values if isinstance(value, ast.Name))


def _parameters(function: Function) -> list[str]:
    return [arg.arg for arg in function.args.args if arg.arg not in _OWNER]
