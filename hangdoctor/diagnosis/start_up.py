"""Pass: why ranks have not joined: another address, a port that is refused, an import that takes long,
a node that has started nothing.

Only in a job's first set-up. What it cannot explain is left to `lifecycle.run_start`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..model.start_up import Launch, StoreView
from . import findings as f
from . import later_groups
from .case import Case, finding_on, in_op, op_of, ranks_of, stack_clue, where_held
from .confidence import Ground, sure
from .draft import Draft, add_first
from .faults import has_communicated, unstarted
from .findings import Clue, Finding
from .view import RankView

_LONG_S = 20.0  # an import of torch takes seconds; on a busy node more
_LATER_S = 3600.0  # what is imported after that long is no part of a start
_STORIES = (f.OtherPort, f.OtherStore, f.StoreRefused, f.StillImporting, f.NoProcessThere)
_JOINED = ("listens", "connected")


def run(case: Case, draft: Draft) -> None:
    """Who has not joined, where facts beyond the stacks say why."""
    add_first(find, case, draft)


def decides(case: Case, findings: Sequence[Finding]) -> bool:
    """Whether findings of a set-up say more than records of operations can: why a rank has not come,
    or that it has never been there.
    """
    never = set(unstarted(case))
    return any(
        isinstance(c.story, _STORIES)
        or (isinstance(c.story, f.NotJoined) and never.issuperset(c.ranks))
        for c in findings
    )


def find(case: Case, blamed: set[int]) -> list[Finding]:
    """One finding for each reason; [] where nothing but the stacks is known."""
    free = [v for v in case.alive if v.rank not in blamed and not v.stopped]
    joining = [v for v in free if v.place.kind == "start"]
    importing = [v for v in free if _imports_long(v)]
    if not joining and not importing:
        return []
    if any(has_communicated(v) for v in case.alive) or later_groups.are_made(joining):
        return []
    found = _at_other_ports(case, joining)
    at_ports = {rank for finding in found for rank in finding.ranks}
    found += _at_other_stores(case, [v for v in joining if v.rank not in at_ports])
    elsewhere = {rank for finding in found for rank in finding.ranks}
    found += _refused(case, [v for v in joining if v.rank not in elsewhere])
    found += _importing(case, importing, joining)
    found += _never_started(case, joining)
    clue = in_store(case, joining)
    if clue is not None:
        for finding in found:
            finding.clues.append(clue)
    return found


def _imports_long(view: RankView) -> bool:
    own = view.capture.importing
    if own is None or view.place.communicates:
        return False
    return _LONG_S <= own.seconds <= _LATER_S


def _stores(views: Sequence[RankView]) -> list[tuple[RankView, StoreView]]:
    return [(v, v.capture.store) for v in views if v.capture.store is not None]


def _target(store: StoreView) -> str:
    """Address and port, by which ranks are compared: names may differ."""
    return f"{store.addresses[0] if store.addresses else store.name}:{store.port}"


def _at_other_ports(case: Case, joining: Sequence[RankView]) -> list[Finding]:
    """Ranks with another MASTER_PORT than most, or than rank 0 where the ports are even."""
    known = _stores(joining)
    counts = Counter(store.port for _, store in known)
    if len(counts) < 2:
        return []
    first = min(known, key=lambda one: one[0].rank)[1].port
    usual = max(counts, key=lambda port: (counts[port], port == first))
    others = ranks_of(view for view, store in known if store.port == usual)
    found = []
    for port in sorted(counts.keys() - {usual}):
        views = [view for view, store in known if store.port == port]
        found.append(_finding(case, views, f.OtherPort(port, usual, others)))
    return found


def _at_other_stores(case: Case, joining: Sequence[RankView]) -> list[Finding]:
    """Ranks without a connection whose address is not that of the ranks which have one."""
    known = _stores(joining)
    connected = [store for _, store in known if store.link == "connected"]
    here = connected or [store for _, store in known if store.link == "listens"]
    if not here:
        return []
    usual = Counter(map(_target, here)).most_common(1)[0][0]
    reached = sum(store.link in _JOINED for _, store in known)
    groups: dict[str, list[RankView]] = {}
    for view, store in known:
        if store.link not in _JOINED and not _leads_to(store, here):
            groups.setdefault(_words(store), []).append(view)
    found = []
    for own, views in groups.items():
        story = f.OtherStore(own, usual, reached)
        found.append(_finding(case, views, story))
    return found


def _leads_to(store: StoreView, here: Sequence[StoreView]) -> bool:
    """Whether its address and port are among those of the ranks that have reached the store."""
    return any(
        store.port == other.port and set(store.addresses) & set(other.addresses) for other in here
    )


def _words(store: StoreView) -> str:
    """``10.0.0.9:29500``; with the name where that says more."""
    if not store.addresses:
        return f"{store.name}:{store.port}, a name without an address on its node,"
    if store.name in store.addresses:
        return f"{store.name}:{store.port}"
    return f"{store.name}:{store.port} ({store.addresses[0]})"


def _refused(case: Case, joining: Sequence[RankView]) -> list[Finding]:
    """Ranks whose attempt fails although another one listens, or is connected."""
    known = _stores(joining)
    if not any(v.capture.store and v.capture.store.link in _JOINED for v in case.alive):
        return []  # who should listen is late, or was not captured
    groups: dict[tuple[str, str], list[RankView]] = {}
    for view, store in known:
        if store.link not in _JOINED and store.refused:
            groups.setdefault((_words(store), store.refused), []).append(view)
    found = []
    for (where, why), views in groups.items():
        port = next(store.port for view, store in known if view in views)
        found.append(_finding(case, views, f.StoreRefused(where, why, port)))
    return found


def _importing(
    case: Case, importing: Sequence[RankView], joining: Sequence[RankView]
) -> list[Finding]:
    """Ranks that import for long: those that others wait for, or all of them."""
    if not importing or len(importing) + len(joining) < len(case.alive):
        return []
    if not joining and any(v.got_on or v.motion == "running" for v in importing):
        return []  # all of them get on: the job is starting
    slowest = max(importing, key=lambda v: _seconds(v))
    own = slowest.capture.importing
    assert own is not None
    story = f.StillImporting(
        own.module, own.seconds, own.mount, own.filesystem, computes=slowest.motion == "running"
    )
    return [_finding(case, importing, story)]


def _seconds(view: RankView) -> float:
    return view.capture.importing.seconds if view.capture.importing is not None else 0.0


def _never_started(case: Case, joining: Sequence[RankView]) -> list[Finding]:
    """Ranks without a process, by the nodes on which they are expected."""
    unseen = {*case.absent, *unstarted(case)} - set(case.silent)
    if not unseen or not joining:
        return []
    of_slurm = next((node.expected for node in case.capture.nodes if node.expected), [])
    expected = of_slurm or _behind_empty_nodes(case)
    silent = {node.node for node in case.capture.silent}
    seen = {view.node for view in case.alive}
    nodes = [node for node, ranks in expected if set(ranks) & unseen and node not in seen | silent]
    ranks = sorted(r for node, own in expected if node in nodes for r in own if r in unseen)
    if not ranks or set(ranks) != unseen:
        return []
    finding = Finding(
        kind="start_stall",
        ranks=ranks,
        story=f.NoProcessThere(tuple(nodes), by_slurm=bool(of_slurm)),
        confidence=sure(Ground.NOT_JOINED_UNSEEN),
        nodes=nodes,
        where=where_held(case, list(joining), None),
        waiters=f.Waiters(ranks_of(joining), op_of(joining)),
        clues=[
            Clue("silence", tuple(ranks), f.Silence(("no process found",))),
            *asked_for(case, ranks),
            in_op(joining),
        ],
    )
    return [finding]


def planned(case: Case) -> list[tuple[str, list[int]]]:
    """(node, its ranks) as the launcher was asked to start them, one node after the other; [] where
    its command line does not name the nodes.
    """
    launch = _launch(case)
    if launch is None or not launch.per_node:
        return []
    each, names = launch.per_node, launch.names
    if len(names) * each != case.world_size:
        return []
    return [(name, list(range(n * each, (n + 1) * each))) for n, name in enumerate(names)]


def asked_for(case: Case, unseen: Sequence[int]) -> list[Clue]:
    """What the launcher was asked to start, where that is known."""
    launch = _launch(case)
    if launch is None or not launch.launcher:
        return []
    here = case.world_size - len(set(unseen))
    return [Clue("proc", tuple(unseen), f.AskedFor(launch, here))]


def _launch(case: Case) -> Launch | None:
    return next((node.launch for node in case.capture.nodes if node.launch is not None), None)


def _behind_empty_nodes(case: Case) -> list[tuple[str, list[int]]]:
    """(node, its ranks) of nodes that were asked, and answered that they have no rank."""
    ranks: dict[str, list[int]] = {}
    for view in case.gone:
        if view.node and not view.pid:
            ranks.setdefault(view.node, []).append(view.rank)
    return list(ranks.items())


def _finding(case: Case, views: Sequence[RankView], story: f.Story) -> Finding:
    finding = finding_on(case, "start_stall", views, story, confidence=sure(Ground.STORE))
    finding.clues = [stack_clue(views)]
    return finding


def in_store(case: Case, joining: Sequence[RankView]) -> Clue | None:
    """How many ranks have reached the store: only where each that is in set-up was asked."""
    known = _stores(joining)
    joined = tuple(view.rank for view, store in known if store.link in _JOINED)
    if not joined or len(known) < len(joining):
        return None
    first = next(store for _, store in known if store.link in _JOINED)
    where = f"{first.name}:{first.port}"
    return Clue("proc", joined, f.InStore(where, joined, case.world_size))
