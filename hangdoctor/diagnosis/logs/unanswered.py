"""Messages that a rank never took: who does not answer several others is the one to look at, and of one
pair alone either side, or the network between, may be at fault.
"""

from __future__ import annotations

from ...model.log_facts import Unanswered
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import LinkBroken, TookNothing
from .candidate import First
from .scene import Scene, ranks_named

_ADVICE = "See on both hosts whether the processes run (hangdoctor dump), and ping the one from the other."


def who_took_nothing(scene: Scene) -> First | None:
    """The rank, or the ranks of one host, that several others reached in vain, and that reports none
    itself.
    """
    facts = scene.of(Unanswered)
    if not facts:
        return None
    senders = set(ranks_named(facts))
    targets = {f.to for f in facts}
    hosts = {f.peer for f in facts}
    alone = len(targets) == 1 or len(hosts) == 1
    if not alone or len(senders) < 2 or targets & senders:
        return _between(facts)
    finding = Finding(
        kind="unreachable",
        ranks=sorted(targets),
        story=TookNothing(tuple(sorted(senders)), facts[0].library),
        confidence=sure(Ground.LOG_TOOK_NOTHING),
        nodes=sorted(hosts - {""}),
    )
    return First(finding, [*facts], True)


def _between(facts: list[Unanswered]) -> First:
    """Which side of it is at fault does not show."""
    peers = tuple(sorted({f"rank {f.to}" for f in facts}))
    meaning = "messages were not taken until the time limit"
    story = LinkBroken(tuple(ranks_named(facts)), peers, meaning, _ADVICE)
    finding = Finding("unreachable", [], story, sure(Ground.LOG_LINK))
    return First(finding, [*facts], False)
