"""With which rank a send or receive was, as the source line in its traceback shows it:
``dist.send(y, dst=self.rank + 1)``.

Only sums of the rank, the number of ranks and whole numbers are read. A call on a group may count
its ranks otherwise, and a variable shows nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from msgspec import structs

from ...model.frame import Frame
from ...stacks.call_syntax import last_name, only_call
from ...stacks.user_code import C10D, is_users

_PEERS = {"send": "dst", "recv": "src"}
_RANK = frozenset({"rank", "global_rank", "get_rank"})
_WORLD = frozenset({"world_size", "get_world_size"})
_SECOND = 1  # position of the other rank among the arguments


def with_partner(frames: Sequence[Frame], rank: int, world: int) -> list[Frame]:
    """The frames, innermost first; torch's send or receive with the other rank among its values, where
    the line that called it shows it.
    """
    own = next((frame for frame in frames if is_users(frame)), None)
    called = [n for n, f in enumerate(frames) if f.name in _PEERS and f.file.endswith(C10D)]
    if own is None or not called:
        return list(frames)
    at = called[-1]
    call = frames[at].name
    peer = _partner(own.code, call, rank=rank, world=world)
    if peer < 0:
        peer = _given_to(frames, own, rank=rank, world=world)
    if not 0 <= peer < world or peer == rank:
        return list(frames)
    values = {**frames[at].values, _PEERS[call]: peer}
    told = structs.replace(frames[at], values=values)
    return [told if n == at else frame for n, frame in enumerate(frames)]


def _given_to(frames: Sequence[Frame], helper: Frame, rank: int, world: int) -> int:
    """The other rank that the user's own function around the call was given, by the line that called
    it: the only argument that is a sum of the rank; -1 where the line does not show it.
    """
    outer = frames[frames.index(helper) + 1 :]
    code = next((frame.code for frame in outer if is_users(frame)), "")
    call = only_call(code, helper.name)
    given = [] if call is None else [*call.args, *(k.value for k in call.keywords)]
    sums = [arg for arg in given if _names_a_rank(arg)]
    found = _number(sums[0], rank, world) if len(sums) == 1 else None
    return found if found is not None else -1


def _names_a_rank(of: ast.expr) -> bool:
    return any(isinstance(n, ast.expr) and last_name(n) in _RANK for n in ast.walk(of))


def _partner(code: str, call: str, rank: int, world: int) -> int:
    """The other rank; -1 where the line does not show it, or has several such calls."""
    made = only_call(code, call)
    if made is None:
        return -1
    given = {keyword.arg: keyword.value for keyword in made.keywords}
    if "group" in given or any(arg is None for arg in given):
        return -1
    peer = given.get(_PEERS[call])
    if peer is None and len(made.args) > _SECOND:
        peer = made.args[_SECOND]
    found = _number(peer, rank, world) if peer is not None else None
    return found if found is not None else -1


def _number(of: ast.expr, rank: int, world: int) -> int | None:
    """What an expression comes to on this rank; None where it has other parts."""
    if isinstance(of, ast.Constant):
        return of.value if type(of.value) is int else None
    if isinstance(of, ast.BinOp):
        left, right = _number(of.left, rank, world), _number(of.right, rank, world)
        if left is None or right is None:
            return None
        return _sum(of.op, left, right)
    name = last_name(of.func) if isinstance(of, ast.Call) and not of.args else last_name(of)
    if name in _RANK:
        return rank
    return world if name in _WORLD else None


def _sum(how: ast.operator, left: int, right: int) -> int | None:
    if isinstance(how, ast.Add):
        return left + right
    if isinstance(how, ast.Sub):
        return left - right
    return left % right if isinstance(how, ast.Mod) and right > 0 else None
