"""The peer of a send or receive, as the call's own line says it, where no frame's variables show it:
mpi4py is compiled, and so is the wait for the handle of torch's isend and irecv.

Of ``comm.Recv(row, source=rank + 1)`` the expression is worked out from the whole numbers that the
function has under these names, and what a program calls its own rank and the number of ranks.
Nothing else is kept of them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping

from . import call_syntax

_SENDS = frozenset({"send", "ssend", "bsend", "rsend", "isend", "issend", "ibsend", "irsend"})
_RECEIVES = frozenset({"recv", "probe", "mprobe", "irecv"})
_WITH_HANDLE = frozenset({"isend", "irecv"})
_BOTH = frozenset({"sendrecv", "sendrecv_replace"})
_OF_SOURCE, _OF_DESTINATION = ("source", "src"), ("dest", "dst")
_OWN_RANK = ("rank", "my_rank", "myrank", "world_rank", "comm_rank", "mpi_rank", "me")
_RANKS = ("size", "world_size", "nprocs", "n_ranks", "num_ranks", "comm_size")
# What has them as attributes or methods; a communicator of another name may be of some ranks only.
_HAS_RANK = ("self", "comm", "world", "self.comm", "self.world", "COMM_WORLD", "MPI.COMM_WORLD")
_TAGS = ("tag", "sendtag", "recvtag")
_PLACE = 1  # of the peer among the arguments, behind the buffer
_LARGEST = 1 << 31
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.BitXor: operator.xor,
}


def of_rank(code: str, rank: int, ranks: int) -> dict[str, int]:
    """`peers` of a line that names nothing but the rank and the number of ranks."""
    names = dict.fromkeys(_OWN_RANK, rank) | dict.fromkeys(_RANKS, ranks)
    methods = {"Get_rank()": rank, "Get_size()": ranks}
    of_objects = {
        f"{owner}.{name}": number
        for owner in _HAS_RANK
        for name, number in (names | methods).items()
    }
    return peers(code, names | of_objects)


def waited_for(code: str) -> str:
    """ "isend" or "irecv" where a line waits for the handle of just that, as in
    ``dist.isend(x, dst=1).wait()``; "" of any other.
    """
    tree = call_syntax.tree(code)
    awaited = [_awaited(node) for node in ast.walk(tree)] if tree is not None else []
    names = [name for name in awaited if name]
    return names[0] if len(names) == len(list(_calls(code))) == 1 else ""


def _awaited(node: ast.AST) -> str:
    """The call whose handle ``wait()`` is called on, "" where it is something else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    call = node.func.value
    if node.func.attr != "wait" or not isinstance(call, ast.Call):
        return ""
    name = call.func.attr.lower() if isinstance(call.func, ast.Attribute) else ""
    return name if name in _WITH_HANDLE else ""


def begun_by(code: str) -> str:
    """ "isend" or "irecv", or one of MPI's other such names, where a line does no more than begin that."""
    calls = list(_calls(code))
    name = calls[0][0] if len(calls) == 1 else ""
    return name if name.startswith("i") else ""


def peer_names(code: str) -> set[str]:
    """The variables that say the peer of the one such call in a line."""
    calls = list(_calls(code))
    if len(calls) != 1:
        return set()
    [(name, call)] = calls
    keywords = _OF_DESTINATION if name in _SENDS else _OF_SOURCE
    told = _argument(keywords, call, by_place=True)
    inside = ast.walk(told) if told is not None else ()
    return {node.id for node in inside if isinstance(node, ast.Name)}


def peers(code: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """{"src": .., "dst": ..} of the one such call in a line, as far as `numbers` show them; those below
    0 stand for no process, and are left out.
    """
    calls = list(_calls(code))
    if len(calls) != 1:
        return {}
    [(name, call)] = calls
    found: dict[str, int] = {}
    if name in _RECEIVES | _BOTH:
        found |= _peer("src", _OF_SOURCE, call, numbers, by_place=name not in _BOTH)
    if name in _SENDS | _BOTH:
        found |= _peer("dst", _OF_DESTINATION, call, numbers, by_place=True)
    return found


def root(code: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """{"root": ..} of the one call in a line that names one, as far as `numbers` show it."""
    told = [k.value for call in call_syntax.calls(code) for k in call.keywords if k.arg == "root"]
    number = _number(told[0], numbers) if len(told) == 1 else None
    return {"root": number} if number is not None and 0 <= number < _LARGEST else {}


def tags(code: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """The variables that the calls of a line give as their tag, by name, as far as `numbers` have them."""
    told = [k.value for call in call_syntax.calls(code) for k in call.keywords if k.arg in _TAGS]
    names = [value.id for value in told if isinstance(value, ast.Name)]
    return {name: numbers[name] for name in names if name in numbers}


def _calls(code: str) -> Iterable[tuple[str, ast.Call]]:
    for call in call_syntax.calls(code):
        if isinstance(call.func, ast.Attribute):
            name = call.func.attr.lower()
            if name in _SENDS | _RECEIVES | _BOTH:
                yield name, call
        elif isinstance(call.func, ast.Name) and call.func.id in _WITH_HANDLE:
            yield call.func.id, call


def _peer(
    key: str, names: tuple[str, str], call: ast.Call, numbers: Mapping[str, int], *, by_place: bool
) -> dict[str, int]:
    told = _argument(names, call, by_place=by_place)
    number = _number(told, numbers) if told is not None else None
    return {key: number} if number is not None and 0 <= number < _LARGEST else {}


def _argument(names: tuple[str, str], call: ast.Call, *, by_place: bool) -> ast.expr | None:
    """What a call gives under one of these names, or in the place of the peer."""
    told = next((k.value for k in call.keywords if k.arg in names), None)
    if told is None and by_place and len(call.args) > _PLACE:
        return call.args[_PLACE]
    return told


def _number(node: ast.expr, numbers: Mapping[str, int]) -> int | None:
    """The value of an expression of whole numbers; None of any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return numbers.get(node.id)
    if isinstance(node, ast.Attribute | ast.Call):
        return numbers.get(ast.unparse(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand, numbers)
        return -inner if inner is not None else None
    apply = _OPERATORS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if apply is None or not isinstance(node, ast.BinOp):
        return None
    left, right = _number(node.left, numbers), _number(node.right, numbers)
    if left is None or right is None or max(abs(left), abs(right)) >= _LARGEST:
        return None
    try:
        return apply(left, right)
    except ZeroDivisionError:
        return None
