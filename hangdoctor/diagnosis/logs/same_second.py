"""What another rank printed in the second of a crash: stamps of whole seconds do not tell which was first."""

from __future__ import annotations

import re

from msgspec import structs

from ...model.log_facts import KnownError, UnreadFailure
from ...text.late import late
from ..findings.log_stories import FailedFirst
from .candidate import First
from .scene import Scene, is_dated, ranks_named
from .unread_failures import without_tags

_OF_LINKS = late(r"connect|socket|peer|closed|reset|time[d -]{0,2}out|heartbeat", re.IGNORECASE)
_GIVES_UP = 3  # strength of a word that only an end has


def add_same_second(scene: Scene, crash: First) -> None:
    """The only other rank that gave up in words of its own at that moment; those of several tell nothing."""
    story, first = crash.finding.story, crash.facts[0]
    if not isinstance(story, FailedFirst) or not isinstance(first, KnownError):
        return
    if crash.finding.kind != "dead" or story.others or len(crash.finding.ranks) != 1:
        return
    words = [fact for fact in scene.unread if _is_beside(fact, first, ranks_named(crash.facts))]
    if len({fact.rank for fact in words}) != 1:
        return
    fact = words[0]
    says = without_tags(fact.text)
    quote = scene.quote(fact, says)
    crash.finding.story = structs.replace(story, meanwhile=quote, meanwhile_by=f"rank {fact.rank}")


def _is_beside(fact: UnreadFailure, crash: KnownError, ranks: list[int]) -> bool:
    dated = is_dated(fact) and is_dated(crash) and fact.at == crash.at
    clear = fact.strength >= _GIVES_UP and not (fact.general or fact.launcher)
    clear = clear and _OF_LINKS.search(fact.text) is None  # these follow from another's end
    return dated and clear and fact.rank >= 0 and fact.rank not in ranks
