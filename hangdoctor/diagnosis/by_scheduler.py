"""Pass: what the job's scheduler says of nodes that were not asked: more than their silence does."""

from __future__ import annotations

from msgspec.structs import replace

from ..model.capture import SilentNode
from . import findings as f
from .case import Case
from .confidence import Ground, sure
from .draft import Draft
from .findings import Clue, Finding

_WHYS = 4  # nodes whose reasons are shown one by one


def run(case: Case, draft: Draft) -> None:
    """Ranks that were never started are no silent ones; and what shows more of a silent node."""
    told = [node for node in case.capture.silent if node.see]
    if not told:
        return
    draft.findings = [_retold(finding, told) for finding in draft.findings]
    if not case.views and all(node.unstarted for node in case.capture.silent):
        nothing = Finding("start_stall", [], f.NotStarted(()), sure(Ground.NOT_STARTED))
        draft.findings, draft.status = [_unstarted(nothing, told)], "hang"


def _retold(finding: Finding, told: list[SilentNode]) -> Finding:
    behind = [node for node in told if set(node.ranks) & set(finding.ranks)]
    known = {rank for node in behind for rank in node.ranks}
    if finding.kind not in ("unreachable", "start_stall") or not known >= set(finding.ranks):
        return finding
    if all(node.unstarted for node in behind):
        return _unstarted(finding, behind)
    if isinstance(finding.story, f.NotSeen):
        finding.story = replace(finding.story, see=behind[0].see)
    return finding


def _unstarted(finding: Finding, nodes: list[SilentNode]) -> Finding:
    finding.kind = "start_stall"
    finding.nodes = sorted(node.node for node in nodes)
    finding.story = f.NotStarted(tuple(_whys(nodes)), nodes[0].see)
    finding.confidence = sure(Ground.NOT_STARTED)
    finding.clues = [c for c in finding.clues if c.source != "silence"]
    finding.clues.insert(0, Clue("silence", tuple(finding.ranks), f.Silence(tuple(_whys(nodes)))))
    finding.against = []
    return finding


def _whys(nodes: list[SilentNode]) -> list[str]:
    """The reasons, each with the first of its nodes and how many more there are."""
    by_why: dict[str, list[str]] = {}
    for node in nodes:
        by_why.setdefault(node.why, []).append(node.node)
    found = []
    for why, names in by_why.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        found.append(f"{names[0]}{more}: {why}")
    return found[:_WHYS]
