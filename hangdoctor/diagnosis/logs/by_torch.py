"""What torch itself names: desync reports, monitored_barrier, the store."""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import (
    AnyFact,
    BarrierMissed,
    Counted,
    Desync,
    Finished,
    PeerClosed,
    Progress,
    StoreCount,
    StoreWait,
    TimedOut,
)
from ..confidence import Ground, sure
from ..findings import Finding, Op, Waiters
from ..findings.log_stories import (
    AllWaited,
    NamedBy,
    NamedByTorch,
    PeerGone,
    StoreHostGone,
    TooFewJoined,
    TooManyJoined,
)
from .candidate import First
from .group_keys import missing_member
from .scene import Scene, op_name, op_of, ranks_named
from .submitted_apart import submitted_apart

_NAMES_PEER = ("nccl", "mpi")  # libraries that say which host they lost
_JAX_STARTS = ("PjRT_Client_Connect", "Wait_for_all_tasks_to_register")  # barriers
_GONE = ("reset", "closed", "0 bytes", "Broken pipe", "refused")


_LIGHTGBM = "lightgbm"
JAX = "jax"  # who names those that did not come to a barrier
_REPORTS: dict[str, NamedBy] = {
    "horovod": "horovod",
    "ray": "ray",
    "ucc": "ucc",
}  # of others than torch


def desync(scene: Scene) -> First | None:
    """Who did not join, by the report; who joined and did not finish is no culprit by itself."""
    facts = [f for f in scene.of(Desync) if f.how in ("not_joined", "never")]
    facts = [f for f in facts if f.by != "ray" or not _went_on(scene, f)]
    ranks = sorted({r for f in facts for r in f.ranks})
    if not facts or not ranks or submitted_apart(facts):
        return None
    waits = [w for w in scene.of(TimedOut) if w.rank not in ranks]
    op = op_of(waits) if waits else Op(op_name(facts[0].op), facts[0].seq)
    by = _REPORTS.get(facts[0].by, "desync")
    if by == "ray":
        op = Op("report")
    story = NamedByTorch(by, op)
    return named_first(
        scene, "not_entered", ranks, story, ground=Ground.LOG_DESYNC, facts=list(facts), op=op
    )


def _went_on(scene: Scene, said: Desync) -> bool:
    """Whether the log has a step or a clean end after a warning of who is late."""
    later = [f for f in [*scene.of(Progress), *scene.of(Finished)] if f.file == said.file]
    return any(f.line > said.line for f in later)


def all_joined(scene: Scene) -> First | None:
    """The report finds that all have joined, and none has finished: that names none of them."""
    facts = [f for f in scene.of(Desync) if f.how == "not_finished"]
    ranks = tuple(sorted({r for f in facts for r in f.ranks}))
    if len(ranks) < 2:
        return None
    op = Op("operation", facts[0].seq)
    story = AllWaited(op, ranks)
    return named_first(
        scene, "in_communication", [], story, ground=Ground.LOG_ALL_WAITED, facts=list(facts)
    )


def barrier(scene: Scene) -> First | None:
    """Who did not come to a monitored_barrier."""
    facts = [f for f in scene.of(BarrierMissed) if not _came_later(scene, f)]
    ranks = sorted({r for f in facts for r in f.missed_ranks})
    if not ranks:
        return None
    if facts[0].by == JAX:
        return _barrier_of_jax(scene, facts, ranks)
    if facts[0].by == _LIGHTGBM:
        story = NamedByTorch("lightgbm", Op("LightGBM's network"))
        ground = Ground.LOG_BARRIER
        return named_first(scene, "start_stall", ranks, story, ground=ground, facts=list(facts))
    op = Op("monitored_barrier")
    return named_first(
        scene,
        "not_entered",
        ranks,
        NamedByTorch("barrier", op),
        ground=Ground.LOG_BARRIER,
        facts=list(facts),
        op=op,
    )


def _came_later(scene: Scene, fact: BarrierMissed) -> bool:
    """Whether a rank that LightGBM tried to reach, again and again, was there in the end."""
    if fact.by != _LIGHTGBM:
        return False
    met = [f for f in scene.of(BarrierMissed) if f.by == _LIGHTGBM and f.name]
    later = [f for f in [*scene.of(Progress), *scene.of(Finished)] if f.line > fact.line]
    return bool(later) or str(fact.missed_ranks[0] if fact.missed_ranks else "") in {
        f.name for f in met
    }


def _barrier_of_jax(scene: Scene, facts: list[BarrierMissed], ranks: list[int]) -> First:
    """Of the last one that reached its limit; JAX has one in which all tasks register."""
    name = facts[-1].name
    last = [f for f in facts if f.name == name]
    ranks = sorted({r for f in last for r in f.missed_ranks})
    starting = any(word in name for word in _JAX_STARTS)
    op = Op(f"the barrier {name}")
    return named_first(
        scene,
        "start_stall" if starting else "not_entered",
        ranks,
        NamedByTorch("jax", Op("JAX's start") if starting else op),
        ground=Ground.LOG_BARRIER,
        facts=list(last),
    )


def store(scene: Scene) -> First | None:
    """Who did not come to the rendezvous, by count or by the key that was not set."""
    found = _by_count(scene)
    if found is not None:
        return found
    waits = [f for f in scene.of(StoreWait) if f.awaited >= 0]
    of_group = [f for f in waits if f.within]
    return _key_not_set(scene, [f for f in waits if not f.within]) or missing_member(
        scene, of_group
    )


def _by_count(scene: Scene) -> First | None:
    """By how many came, until the limit or so far."""
    counts = [f for f in scene.of(StoreCount) if not f.waiting]
    still = not counts
    counts = counts or still_waiting(scene)
    if not counts:
        return None
    story = _joined(counts, _heard_of(scene))
    if isinstance(story, TooFewJoined):
        story = structs.replace(story, still=still)
    ranks = _never_started(scene, story)
    ground = Ground.LOG_NEVER_STARTED if ranks else Ground.LOG_JOINED
    if not ranks and isinstance(story, TooFewJoined) and (ranks := _unheard(scene, story)):
        story, ground = structs.replace(story, unheard=True), Ground.LOG_UNHEARD
    return named_first(scene, "start_stall", ranks, story, ground=ground, facts=[*counts])


def still_waiting(scene: Scene) -> list[StoreCount]:
    """The last word of the waits for others at the start, where the log ends with them."""
    after = [p for p, _ in scene.positioned(Progress, Finished, TimedOut, Counted)]
    waits = [
        f
        for p, f in scene.positioned(StoreCount)
        if isinstance(f, StoreCount) and p > max(after, default=-1)
    ]
    if not waits or waits[-1].joined == waits[-1].expected:
        return []
    last = [f for f in waits if f.joined == waits[-1].joined]
    came = {f.rank for f in last}
    every = came >= set(range(waits[-1].expected))
    unsaid = waits[-1].joined < 0 and 0 not in came  # that all are there is in the output of rank 0
    return [] if every or unsaid else last


def _heard_of(scene: Scene) -> list[int]:
    return sorted({*scene.logs.heard, *ranks_named(scene.facts)})


def _never_started(scene: Scene, story: TooFewJoined | TooManyJoined) -> list[int]:
    """The ranks that left no black box where the others did, if they are as many as are missing."""
    unseen = scene.logs.unseen
    return unseen if len(unseen) == story.expected - story.joined else []


def _unheard(scene: Scene, story: TooFewJoined) -> list[int]:
    """The ranks of which no line is, if every rank that came has one."""
    ranks = set(range(story.expected))
    heard = ranks & {*_heard_of(scene)}
    return sorted(ranks - heard) if len(heard) == story.joined else []


def _joined(counts: list[StoreCount], heard: list[int]) -> TooFewJoined | TooManyJoined:
    least = min(counts, key=lambda f: f.joined)
    if least.joined > least.expected:
        beyond = tuple(rank for rank in heard if rank >= least.expected)
        return TooManyJoined(least.joined, least.expected, beyond)
    came = tuple(ranks_named(counts))
    if least.joined < 0:
        each = _alike_in_number(counts, came, least.expected)
        return TooFewJoined(-1, least.expected, 0.0, came=came, each=each)
    return TooFewJoined(least.joined, least.expected, least.limit_s, came=came)


def _alike_in_number(counts: list[StoreCount], came: tuple[int, ...], expected: int) -> int:
    """How many processes took each number, where those that came are as many as the job has: its nodes then
    count from the same one.
    """
    times = {f.times for f in counts}
    each = times.pop() if len(times) == 1 else 1
    return each if each * len(came) == expected else 1


def _key_not_set(scene: Scene, waits: list[StoreWait]) -> First | None:
    """The ranks that should have set the keys which these waited for."""
    ranks = sorted({f.awaited for f in waits} - set(ranks_named(waits)))
    if not ranks or 2 * len(ranks) > max(len(scene.everyone), 2):
        return None
    askers = {f.waiting for f in waits if f.waiting >= 0}
    waiting = askers.union(ranks_named(waits)) - set(ranks)
    gone = any(word in f.why for f in waits for word in _GONE)
    story = StoreHostGone(tuple(sorted(waiting)), gone)
    ground = Ground.LOG_STORE_HOST if gone or askers else Ground.LOG_KEY
    kind = "dead" if gone else "start_stall"
    return named_first(scene, kind, ranks, story, ground=ground, facts=list(waits))


def peer(scene: Scene) -> First | None:
    """The host at the other end of a connection that broke before anything else."""
    facts = [f for _, f in scene.positioned(PeerClosed) if isinstance(f, PeerClosed)]
    early = [f for f in facts if f.library in _NAMES_PEER and f.peer and not is_local(f.peer)]
    if not early:
        return None
    first = early[0]
    by = tuple(ranks_named(early))
    host = first.peer.split(".")[0]
    ranks = sorted(r for r, node in scene.homes.items() if node.split(".")[0] == host)
    if len(ranks) > 1:
        ranks = []  # which of the host's ranks it was does not show
    found = named_first(
        scene,
        "unreachable",
        ranks,
        PeerGone(first.peer, by, first.library),
        ground=Ground.LOG_PEER,
        facts=list(early),
    )
    found.finding.nodes = [first.peer]
    return found


def is_local(peer: str) -> bool:
    """Whether an address is that of the speaker's own host."""
    return peer.startswith(("127.", "localhost", "::1"))


def named_first(
    scene: Scene,
    kind: str,
    ranks: list[int],
    story: object,
    ground: Ground,
    *,
    facts: list[AnyFact],
    op: Op | None = None,
) -> First:
    """The candidate of a check that names ranks, with who waited for them in `op`."""
    finding = Finding(
        kind=kind,  # type: ignore[arg-type]
        ranks=ranks,
        story=story,  # type: ignore[arg-type]
        confidence=sure(ground),
        nodes=scene.nodes(ranks),
    )
    if op is not None:
        finding.where.op = op.name or None
        finding.where.seq = op.seq if op.seq >= 0 else None
        waiting = waiters(scene, ranks, op)
        finding.waiters = waiting
    return First(finding, facts, bool(ranks))


def waiters(scene: Scene, culprits: list[int], op: Op) -> Waiters | None:
    """Who timed out while the culprits did not come, and how long they had waited."""
    waits = [w for w in scene.of(TimedOut) if w.rank >= 0 and w.rank not in culprits]
    if not waits:
        return None
    return Waiters(tuple(ranks_named(waits)), op, max(w.ran_ms for w in waits) / 1000)
