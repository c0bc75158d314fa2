"""A message that one rank did not send, where another waits for messages of anyone: a server of several workers.

Each worker takes a piece of work from the server and sends its result back, whoever is done first. Of those
that have taken as many pieces, one that has sent a result less than all others has left one out.
"""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from ...model.operations import Operation
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Clue, Finding
from .divergence import Divergence
from .facts import op_of
from .order import divergence_finding
from .scene import Scene
from .waits import Instance, WaitGraph

_ROUNDS = 2  # of a piece and its answer
_WORKERS = 3  # that wait for the server: of two nothing shows which is right


def left_unsent(scene: Scene, graph: WaitGraph, instance: Instance) -> list[Finding]:
    """The rank that sent one message less to the one that waits in `instance` than its like have,
    or than its own rounds before had.
    """
    if not is_from_any(instance) or len(instance.waiters) != 1:
        return []
    [server] = instance.waiters
    waiting = {r for i in graph.instances if server in i.targets for r in i.waiters}
    return _less_than_others(scene, waiting, server) or _took_twice(scene, waiting, server)


def _less_than_others(scene: Scene, waiting: set[int], server: int) -> list[Finding]:
    """Of workers that took as many pieces, the one that answered one less."""
    taken = _last(scene, waiting, "recv", server)
    sent = _last(scene, waiting, "send", server)
    if not _WORKERS <= len(waiting) == len(taken) == len(sent):
        return []
    numbers = Counter(op.seq for op in sent.values())
    most = max(numbers)
    as_many = len({op.seq for op in taken.values()}) == 1
    if not as_many or set(numbers) != {most, most - 1} or numbers[most - 1] > 1:
        return []
    rank = next(r for r, op in sent.items() if op.seq < most)
    return [_finding(scene, rank, most, sent)]


def _took_twice(scene: Scene, waiting: set[int], server: int) -> list[Finding]:
    """The one rank that waits for the server again after it took a piece, without the answer that
    it had sent after each piece before, and that all others have always sent.
    """
    last = {rank: _answers_before(scene, rank, server) for rank in waiting & scene.ops.keys()}
    odd = {rank: sent for rank, sent in last.items() if sent is not None}
    if len(odd) != 1:
        return []
    [(rank, sent)] = odd.items()
    operations = scene.ops[rank].operations
    left_out = structs.replace(sent, seq=sent.seq + 1)
    parted = Divergence(rank, rank, "skipped", operations[-1], left_out, len(operations) - 1)
    finding = divergence_finding(scene, {rank: parted}, [])
    finding.confidence = sure(Ground.HISTORY_OWN)
    return [finding]


def _answers_before(scene: Scene, rank: int, server: int) -> Operation | None:
    """The last answer of a rank that has sent one after each piece but the last; None of other
    ranks.
    """
    if scene.ops[rank].overwritten:
        return None
    own = [o for o in scene.ops[rank].operations if o.peer == server and o.op in ("send", "recv")]
    names = [o.op for o in own]
    rounds, end = names[:-2], names[-2:]
    alternates = rounds == ["recv", "send"] * (len(rounds) // 2)
    taken = end == ["recv", "recv"] and own[-2].state == "done" and own[-1].state != "done"
    if len(rounds) < 2 * _ROUNDS or not alternates or not taken:
        return None
    return own[-3]


def _finding(scene: Scene, rank: int, number: int, sent: dict[int, Operation]) -> Finding:
    operations = scene.ops[rank].operations
    like = min(r for r, op in sent.items() if op.seq == number)
    at, mine = len(operations) - 1, operations[-1]
    # The call that it left out is like its own of the round before, to the same server.
    left_out = structs.replace(sent[rank], seq=number)
    parted = Divergence(rank, rank, "skipped", mine, left_out, at)
    finding = divergence_finding(scene, {rank: parted}, [])
    here, there = op_of(scene, mine, rank), op_of(scene, sent[like], like)
    finding.clues = [Clue("ops", (rank,), f.PartedAt(at, here, there, like, own=False))]
    return finding


def is_from_any(instance: Instance) -> bool:
    """Whether it is a receive from any rank, which has no other side that is known."""
    transfer = instance.key.transfer
    return transfer is not None and min(transfer.source, transfer.destination) < 0


def _last(scene: Scene, ranks: set[int], op: str, peer: int) -> dict[int, Operation]:
    """Of each rank that has one, its last send to that peer, or receive from it, that is done."""
    found: dict[int, Operation] = {}
    for rank in ranks & scene.ops.keys():
        own = [o for o in scene.ops[rank].operations if (o.op, o.peer) == (op, peer)]
        done = [o for o in own if o.state == "done"]
        found |= {rank: done[-1]} if done else {}
    return found
