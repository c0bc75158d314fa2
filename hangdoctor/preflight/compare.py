"""The readings of all nodes as one list of findings: alike ones joined, and what should be equal
between nodes compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct, structs

from ..text import alike
from ..text.plural import choose
from ..text.ranges import format_hosts
from .collectives.report import Collectives
from .readings import NodeReadings, Verdict

SCHEMA = "hangdoctor.preflight/1"
_ORDER: tuple[Verdict, ...] = ("fail", "warn", "unknown", "ok")
_SPREAD_S = 1.0  # of the nodes' clocks
_SHOWN = 3  # of different readings
HISTORY = "history"  # what was not kept there was tested all the same
# {check of the network: what is not known where it could not be made}
_LEFT_OPEN = {
    "busy": "network and devices",
    "network": "the network",
    "not finished": "part of the network",
    "fabric": "the fabric",
    "devices": "devices",
}
_LEAVE_OUT = "Leave these nodes out of the job, or repair them."
_LOOSE = frozenset({"kernel"})  # may differ without harm more often than not: worth a warning only


class Finding(Struct):
    """What one check says of these nodes, which all have the same reading."""

    check: str
    verdict: Verdict
    nodes: list[str]
    reading: str
    advice: str = ""


class Preflight(Struct):
    """What `hangdoctor preflight --json` writes; findings are ordered, what keeps a job from
    starting first.
    """

    verdict: Verdict
    nodes: list[str]
    findings: list[Finding] = []
    facts: dict[str, dict[str, str]] = {}  # node -> what was compared
    schema: str = SCHEMA
    collectives: Collectives | None = None  # with --collectives


def conclude(
    order: Sequence[str],
    readings: Mapping[str, NodeReadings],
    silent: Mapping[str, str],
    skews: Mapping[str, float],
) -> Preflight:
    """One verdict on all nodes.

    `silent`: node -> why it did not answer; `skews`: node -> seconds its clock is ahead of ours.
    """
    findings = []
    for nodes, why in alike.grouped(silent.items()):
        leave = choose(nodes, "Leave the node out of the job, or repair it.", _LEAVE_OUT)
        findings.append(Finding("reached", "fail", nodes, why, advice=leave))
    findings += _joined(readings)
    if len(readings) > 1:
        findings += _compared(readings)
        if len(skews) > 1:
            findings.append(_clocks(skews))
    facts = {n: r.facts for n, r in readings.items()}
    return _sorted(Preflight("unknown", list(order), findings, facts))


def with_more(found: Preflight, findings: Sequence[Finding], data: Collectives) -> Preflight:
    """The same with the findings and data of the tests of the network.

    A test that was asked for and could not be made weighs more than a warning: the nodes may not be
    ready.
    """
    every = [*found.findings, *findings]
    data.untested = _untested([f for f in findings if f.verdict == "unknown"])
    whole = _sorted(structs.replace(found, findings=every, collectives=data))
    if data.untested and whole.verdict != "fail":
        whole.verdict = "unknown"
    return whole


def _untested(findings: Sequence[Finding]) -> list[str]:
    """What tests that could not be made leave open, in words."""
    open_: dict[str, list[str]] = {}
    for finding in findings:
        if finding.check != HISTORY:
            what = _LEFT_OPEN.get(finding.check, finding.check)
            open_.setdefault(what, []).extend(finding.nodes)
    return [f"{what} of {format_hosts(nodes)}" if nodes else what for what, nodes in open_.items()]


def _sorted(found: Preflight) -> Preflight:
    """The worst finding first; the verdict is its."""
    ordered = sorted(found.findings, key=lambda f: (_ORDER.index(f.verdict), f.check))
    verdict = ordered[0].verdict if ordered else "unknown"
    return structs.replace(found, verdict=verdict, findings=ordered)


def _joined(readings: Mapping[str, NodeReadings]) -> list[Finding]:
    """One finding for each check and verdict, with what the nodes read: of 128 nodes, not 128
    lines.
    """
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for node, own in readings.items():
        for check in own.checks:
            found.setdefault((check.name, check.verdict, check.advice), {}).setdefault(
                check.reading, []
            ).append(node)
    findings = []
    for (name, verdict, advice), said in found.items():
        nodes = [n for some in said.values() for n in some]
        findings.append(
            Finding(name, cast(Verdict, verdict), nodes, _spell(said, verdict), advice=advice)
        )
    return findings


def _spell(said: Mapping[str, list[str]], verdict: str) -> str:
    first = next(iter(said))
    if len(said) == 1:
        return first
    if verdict == "ok":
        return f"{first}; the same on the others"
    shown = [f"{format_hosts(nodes)} {reading}" for reading, nodes in list(said.items())[:_SHOWN]]
    rest = sum(len(nodes) for nodes in list(said.values())[_SHOWN:])
    return "; ".join(shown) + (f"; and {rest} more nodes" if rest else "")


def _compared(readings: Mapping[str, NodeReadings]) -> list[Finding]:
    names = sorted({name for r in readings.values() for name in r.facts})
    findings = []
    for name in names:
        nodes_of: dict[str, list[str]] = {}
        for node, reading in readings.items():
            nodes_of.setdefault(reading.facts.get(name, "none"), []).append(node)
        if len(nodes_of) > 1:
            findings.append(_differs(name, nodes_of, readings))
    if not findings:
        said = f"{', '.join(names)} are the same on all nodes"
        findings.append(Finding("same versions", "ok", list(readings), said))
    return findings


def _differs(name: str, nodes_of: Mapping[str, list[str]], nodes: Iterable[str]) -> Finding:
    """A fact that is not the same on all nodes: value -> the nodes that have it."""
    usual = max(nodes_of, key=lambda value: len(nodes_of[value]))
    others = [node for node in nodes if node not in nodes_of[usual]]
    said = "; ".join(f"{value} on {format_hosts(on)}" for value, on in nodes_of.items())
    return Finding(
        f"same {name}",
        "warn" if name in _LOOSE else "fail",
        others,
        said,
        advice="All ranks of a job must have the same version: install it on all nodes.",
    )


def _clocks(skews: Mapping[str, float]) -> Finding:
    """Seconds between the clock that is most ahead and the one most behind; a reply's way takes
    part of a second.
    """
    first, last = min(skews, key=lambda n: skews[n]), max(skews, key=lambda n: skews[n])
    spread = skews[last] - skews[first]
    if spread > _SPREAD_S:
        return Finding(
            "same clock",
            "warn",
            [first, last],
            f"{last} is {spread:.1f} s ahead of {first}",
            advice="Run there: chronyc tracking, or ntpq -p.",
        )
    return Finding(
        "same clock",
        "ok",
        list(skews),
        f"within {max(spread, 0.1):.1f} s, measured by one reply per node",
    )
