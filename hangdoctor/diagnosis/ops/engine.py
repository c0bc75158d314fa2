"""The passes in order: movement, wait-for graph, sinks, and a verdict on each sink."""

from __future__ import annotations

from ...model.diagnosis import Status
from ..findings import Disagrees, Finding
from .behind_silence import behind_silence
from .components import components, sinks
from .deadlock import deadlock_findings
from .ends import leaving_finding, teardown_finding
from .evidence import Note, OpsEvidence, OpsVerdict, Remark
from .fewer_in_round import left_out_of_round
from .inferred_position import Held, where_held
from .left_unsent import is_from_any, left_unsent
from .lone_culprit import Sink, find_alone
from .mismatch import full_instance_finding, in_all_transfers
from .moved import moved_ranks
from .movement import straggler
from .old_partner import with_old_partner
from .order import divergence_finding
from .scene import Scene
from .silent_ranks import needed, silence_finding
from .stuck_device import stuck_device_finding
from .unnamed_groups import note_of, take_out
from .unrecorded_p2p import (
    explained_by_silence,
    one_of_them,
    parted_beside,
    parted_in_ring,
    peers_by_stacks,
    unheard,
    waits_unseen,
    without_transfers,
)
from .waits import Instance, WaitGraph, build_waits, list_waits
from .waits_end import Ends

_COMPARED = 64  # ranks that one operation lacks; more are not asked about one by one
_ROUNDS = 8  # of guesses about silent ranks, each about those at which the last one ended
_OF_THE_PROGRAM = frozenset({"order", "mismatch", "p2p_unmatched"})


def diagnose_ops(evidence: OpsEvidence) -> OpsVerdict:
    """Which ranks block the job, from operations alone; pure: reads the evidence and nothing else."""
    if not any(o.operations or o.finished or o.only_active for o in evidence.ops.values()):
        return OpsVerdict("unknown", notes=[Note(Remark.NO_RECORDS)])
    went_on = moved_ranks(evidence.earlier, evidence.ops)
    evidence, obscured = take_out(evidence)
    scene = Scene(evidence, went_on | evidence.moving, obscured)
    graph = build_waits(scene)
    ends = find_ends(scene, graph)
    causes = _causes(scene, graph, ends)
    notes = _notes(scene) + ends.notes
    waits = list_waits(scene, graph)
    if in_passing(scene, causes):
        return OpsVerdict("unknown", [], waits, [*notes, Note(Remark.IN_PASSING)])
    if causes:
        return OpsVerdict("hang", causes, waits, notes)
    status, slow = _without_cause(scene, graph)
    findings = [] if slow is None else [slow]
    return OpsVerdict(status, findings, waits, notes + _doubt(scene, graph, status))


def in_passing(scene: Scene, causes: list[Finding]) -> bool:
    """Whether one capture shows several complete operations at once and nothing else: a job that
    moves looks so.
    """
    single = not scene.evidence.earlier
    return single and len(causes) > 1 and all(c.kind == "in_communication" for c in causes)


def find_ends(scene: Scene, graph: WaitGraph) -> Ends:
    """Sinks of the wait-for graph; where they are ranks without any information, with their
    likely waits added.
    """
    missed = missing_at(graph)
    guesses = peers_by_stacks(scene)
    ends = sort_ends(scene, graph, missed, guesses)
    if not ends.silent:
        return ends
    held: dict[int, Held] = {}
    guessed: set[int] = set()
    for _ in range(_ROUNDS):
        new = {r for r in _unseen_beside(ends) if r not in guesses}
        if not new:
            break
        guessed |= new
        held = where_held(scene, guessed, missed, graph)
        guesses |= {rank: held[rank].ranks if rank in held else set() for rank in guessed}
        ends = sort_ends(scene, graph, missed, guesses)
    silent = (rank for rank in missed if not scene.known(rank) and not scene.lost(rank))
    ends.awaited = {rank: missed[rank] for rank in silent}
    ends.idle = {rank for rank, where in held.items() if not where.ranks}
    return ends


def _unseen_beside(ends: Ends) -> list[int]:
    """The silent ranks at which waits end, and those that the same operations lack: where one is
    stuck before such an operation, another may wait in it.
    """
    lacking = [i.unknown for instances in ends.silent.values() for i in instances]
    beside = (r for some in lacking if len(some) <= _COMPARED for r in some)
    return list(dict.fromkeys([*ends.silent, *beside]))


def sort_ends(
    scene: Scene, graph: WaitGraph, missed: dict[int, list[Instance]], guesses: dict[int, set[int]]
) -> Ends:
    """Sinks of the condensed wait-for graph; `guesses`: the ranks that silent ranks are thought to wait for."""
    guessed = {r for waits in guesses.values() for r in waits}
    ranks = sorted({*graph.waits_in, *missed, *guesses, *guessed})
    first = len(ranks)  # nodes of the graph: first all ranks, then all instances
    edges = _edges(graph, ranks, guesses)
    ends = Ends()
    for members in sinks(edges, components(edges)):
        inside = [ranks[m] for m in members if m < first]
        instances = [graph.instances[m - first] for m in members if m >= first]
        if len(members) > 1:
            _sort_ring(scene, inside, missed, ends)
        elif instances:
            ends.full += instances
        else:
            _sort_rank(scene, inside[0], missed.get(inside[0], []), ends)
    return ends


def _edges(graph: WaitGraph, ranks: list[int], guesses: dict[int, set[int]]) -> list[list[int]]:
    """Rank -> instances that it waits in; instance -> ranks that it lacks; silent rank -> ranks."""
    first = len(ranks)
    number = {rank: n for n, rank in enumerate(ranks)}
    edges = [[first + at for at in graph.waits_in.get(rank, ())] for rank in ranks]
    edges += [[number[r] for r in instance.targets] for instance in graph.instances]
    for rank, waits in guesses.items():
        edges[number[rank]].extend(number[r] for r in waits)
    return edges


def _sort_ring(
    scene: Scene, ranks: list[int], missed: dict[int, list[Instance]], ends: Ends
) -> None:
    unknown = [r for r in ranks if not scene.known(r)]
    if not unknown and not peers_by_stacks(scene).keys().isdisjoint(ranks):
        ends.by_stacks.append(ranks)
    elif unknown:
        ends.silent.update({r: missed.get(r, []) for r in unknown})
        ends.around.update(r for r in ranks if scene.known(r))
    else:
        ends.rings.append(ranks)


def missing_at(graph: WaitGraph) -> dict[int, list[Instance]]:
    """Rank -> the instances with waiters that lack it."""
    found: dict[int, list[Instance]] = {}
    for instance in graph.instances:
        if instance.waiters:
            for rank in instance.targets:
                found.setdefault(rank, []).append(instance)
    return found


def _sort_rank(scene: Scene, rank: int, instances: list[Instance], ends: Ends) -> None:
    if rank in scene.moving:
        return  # it goes on, and so will those that wait for it
    if rank in scene.obscured and rank not in scene.held:
        return  # it waits itself, and nothing shows for which rank
    if waits_unseen(scene, rank) and rank not in scene.held:
        ends.by_stacks.append([rank])
        return
    if not scene.known(rank):
        ends.silent[rank] = instances
    elif scene.finished(rank) and rank not in scene.held:
        ends.left.append(Sink(rank, instances))
    else:
        ends.alone.append(Sink(rank, instances))


def _causes(scene: Scene, graph: WaitGraph, ends: Ends) -> list[Finding]:
    stale = with_old_partner(scene, graph)
    if stale is not None:
        return [stale]
    alone = _culprits(scene, ends)
    parted = parted_beside(scene, alone)
    if parted:
        causes = [divergence_finding(scene, parted, [])]
    else:
        causes = one_of_them(scene, find_alone(scene, alone))
    both_sides = [instance for instance in ends.full if not is_from_any(instance)]
    found = [(instance, _full_finding(scene, instance)) for instance in both_sides]
    causes += in_all_transfers(scene, _without_those_done(graph, found))
    for ranks in ends.rings:
        causes.extend(deadlock_findings(scene, graph, ranks))
    for ranks in ends.by_stacks if not causes else ():
        causes.extend(
            divergence_finding(scene, {d.rank: d}, []) for d in parted_in_ring(scene, ranks)
        )
    for parted_there in left_out_of_round(scene) if not causes else ():
        causes.append(divergence_finding(scene, {parted_there.rank: parted_there}, []))
    for instance in ends.full if not causes else ():
        causes += left_unsent(scene, graph, instance)
    if ends.left:
        causes.append(leaving_finding(scene, ends.left))
    if ends.silent and not causes:
        causes.extend(behind_silence(scene, ends))
    elif ends.idle and len(causes) == 1 and causes[0].kind not in _OF_THE_PROGRAM:
        causes.extend(_idle_ranks(scene, ends))  # beside two faults that are seen, it only waits
    return sorted(_each_once(causes), key=lambda c: -c.confidence)


def _without_those_done(graph: WaitGraph, found: list[tuple[Instance, Finding]]) -> list[Finding]:
    """Without transfers by a handle of which one side is over, where each rank that waits also waits for
    another operation that something holds up: a wait for several handles ends when all are done.
    """
    held_up = {rank for i in graph.instances if i.targets for rank in i.waiters}
    # The box says of one handle only that a rank waits for it: all that it has open may be among those.
    held_up |= {rank for i, f in found if f.kind != "in_communication" for rank in i.present}
    return [
        finding
        for instance, finding in found
        if finding.kind != "in_communication"
        or not _may_be_done(instance)
        or not held_up.issuperset(instance.waiters)
    ]


def _may_be_done(instance: Instance) -> bool:
    return instance.key.transfer is not None and instance.sample.asynchronous


def _each_once(causes: list[Finding]) -> list[Finding]:
    """Without what two operations show alike, such as calls of two threads in another order, or one
    rank's tag in its transfers with several others.
    """
    found: list[Finding] = []
    for cause in causes:
        same = next((c for c in found if _is_same(c, cause)), None)
        if same is None:
            found.append(cause)
        elif same.story != cause.story:
            same.clues += cause.clues
    return found


def _is_same(one: Finding, other: Finding) -> bool:
    if (one.kind, one.ranks) != (other.kind, other.ranks):
        return False
    return one.story == other.story or (_has_other_tag(one) and _has_other_tag(other))


def _has_other_tag(finding: Finding) -> bool:
    story = finding.story
    return len(finding.ranks) == 1 and isinstance(story, Disagrees) and story.fields == ("tag",)


def _idle_ranks(scene: Scene, ends: Ends) -> list[Finding]:
    """Of the silent ranks those that do nothing, where others are blamed already."""
    missed = {r: i for r, i in ends.silent.items() if r in ends.idle}
    idle = [r for r in needed(missed, ends.idle) if not scene.lost(r)]
    return [silence_finding(scene, idle, ends.silent)] if idle else []


def _culprits(scene: Scene, ends: Ends) -> list[Sink]:
    """The single ranks at which waits end; where they only seem to, silent ones take their place."""
    silent = unheard(scene, ends.alone)
    explained = bool(ends.full or ends.rings or ends.silent or silent)
    alone = without_transfers(scene, ends.alone, explained)
    beside = explained_by_silence(scene, alone, silent or ends.silent)
    alone = [sink for sink in alone if sink not in beside]
    if ends.alone and not alone and not ends.silent:
        ends.silent = silent
    return alone


def _full_finding(scene: Scene, instance: Instance) -> Finding:
    if instance.sample.op == "destroy_process_group":
        return teardown_finding(scene, instance)
    return stuck_device_finding(scene, instance) or full_instance_finding(scene, instance)


def _without_cause(scene: Scene, graph: WaitGraph) -> tuple[Status, Finding | None]:
    alive = [r for r in scene.ops if not scene.finished(r)]
    if not alive:
        return "healthy", None
    still = [r for r in alive if r not in scene.moving]
    some_move = len(still) < len(alive)
    if not scene.evidence.earlier or not (some_move or not graph.waits_in):
        return "unknown", None
    slow = straggler(scene)
    if slow is not None:
        return "slow", slow
    return ("unknown" if still else "healthy"), None


def _doubt(scene: Scene, graph: WaitGraph, status: Status) -> list[Note]:
    if status != "unknown" or scene.moving.issuperset(scene.ops):
        return []
    if not scene.evidence.earlier:
        return [Note(Remark.ONE_CAPTURE)]
    if not graph.waits_in:
        return [Note(Remark.NO_WAIT)]
    return [Note(Remark.SOME_MOVED)] if any(r in scene.moving for r in scene.ops) else []


def _notes(scene: Scene) -> list[Note]:
    notes: list[Note] = note_of(scene.obscured)
    explained = scene.ops.keys() | scene.held | scene.evidence.silent.keys()
    bare = [r for r in range(scene.world_size) if r not in explained]
    if bare:
        notes.append(Note(Remark.BARE_RANKS, tuple(bare)))
    if scene.groups.inferred:
        notes.append(Note(Remark.INFERRED_GROUPS, number=len(scene.groups.inferred)))
    return notes
