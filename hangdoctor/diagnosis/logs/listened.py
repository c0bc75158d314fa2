"""One log says that it could not reach the rendezvous, another that its host listened and counted."""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import StoreCount
from ..findings import Clue
from ..findings.log_stories import LinkBroken, Quote
from .candidate import First
from .scene import Scene

_RULE = "master_unreachable"
_MEANING = "the rendezvous was not reached, though its host listened and counted {} of {}: the way there is blocked or leads elsewhere (name, port, firewall)"
_ADVICE = "From this node, while the first one waits: getent hosts MASTER_ADDR; nc -vz MASTER_ADDR MASTER_PORT. Rank 0 need not be looked for: its own log shows it waiting."


def with_its_host(scene: Scene, found: First) -> First:
    """The same link, without what the other log refutes: who did not come is then the one that says so."""
    story = found.finding.story
    if not isinstance(story, LinkBroken) or getattr(found.facts[0], "rule", "") != _RULE:
        return found
    files = {fact.file for fact in found.facts}
    counts = [f for f in scene.of(StoreCount) if 0 < f.joined < f.expected and f.file not in files]
    if not counts or len(story.by) > counts[-1].expected - counts[-1].joined:
        return found
    meaning = _MEANING.format(counts[-1].joined, counts[-1].expected)
    found.finding.story = structs.replace(story, meaning=meaning, advice=_ADVICE)
    found.finding.ranks = list(story.by)
    found.finding.nodes = sorted({*story.hosts, *story.peers})
    name = scene.logs.files[counts[-1].file].name
    found.finding.clues.append(Clue("log", (), Quote(name, counts[-1].line, counts[-1].says)))
    return First(found.finding, found.facts, bool(story.by))
