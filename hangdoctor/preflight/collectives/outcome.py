"""What the tests of a network found, as findings in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ...text.durations import duration
from ...text.plural import choose, count
from ...text.ranges import format_hosts
from ..compare import Finding
from . import fabric
from .report import DeviceTest
from .running_trial import size_text
from .search import Culprit, Found
from .trial import Judge, Result

# What keeps the next job from some nodes; none where the units are devices of this host.
LeaveOut = Callable[[Sequence[str]], str]


class Seen(Struct):
    """Fabric and NCCL's own words, by unit."""

    fabrics: dict[str, str] = {}
    lines: dict[str, str] = {}


def excluded(culprits: Sequence[Culprit], units: Sequence[str], absent: Sequence[str]) -> list[str]:
    """The nodes to leave out: bad ones, one end of each bad link, those that did not answer."""
    nodes = list(absent)
    for culprit in culprits:
        if culprit.kind in ("node", "link") and not set(culprit.units) & set(nodes):
            nodes.append(culprit.units[-1])
    return [unit for unit in units if unit in nodes]


def of_search(
    found: Found, judge: Judge, past: Mapping[str, str], leave_out: LeaveOut | None
) -> list[Finding]:
    """Findings of the search; `leave_out`: None for devices of this host; `past`: units as `format_hosts` -> what the history has on them."""
    if _is_everything(found):
        return [_everything(found.culprits[0])]
    return [_of_culprit(c, judge, past, leave_out) for c in found.culprits] or [_good(found)]


def _is_everything(found: Found) -> bool:
    pairs = [r for r in found.results if len(r.units) == 2]
    return len(pairs) > 2 and all(r.status == "failed" for r in pairs)


def _everything(culprit: Culprit) -> Finding:
    nodes = culprit.units
    reading = f"no two nodes can do an all_reduce; {format_hosts(nodes)}: {culprit.evidence.error}"
    advice = "It is not one node: check the firewall, the names of the nodes, and GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME."
    return Finding("network", "fail", nodes, reading, advice)


def _good(found: Found) -> Finding:
    units = list(dict.fromkeys(u for r in found.results for u in r.units))
    if not units:
        return Finding("network", "unknown", [], "no all_reduce was tried: it needs two nodes")
    largest = max(found.results, key=lambda r: len(r.units))
    tried = f"{found.links} of {count(found.of_links, 'link')} tried"
    reading = f"all_reduce works among all {len(largest.units)}, {speed_text(largest)}; {tried}"
    return Finding("network", "ok", units, reading)


def speed_text(result: Result) -> str:
    """``1.2 GB/s with 16 MB``; "" where no size was finished."""
    if not result.speeds:
        return ""
    size = max(result.speeds)
    return f"{result.speeds[size]:.3g} GB/s with {size_text(size)}"


def _of_culprit(
    culprit: Culprit, judge: Judge, past: Mapping[str, str], leave_out: LeaveOut | None
) -> Finding:
    units = culprit.units
    names = {"node": f"node {units[0]}", "link": f"link {'-'.join(units)}"}
    name = names.get(culprit.kind, "network")
    reading = f"{_what(culprit)}: {_evidence(culprit.evidence, judge)}"
    before = past.get(format_hosts(units), "")
    if before:
        reading += f"; {before}"
    failed = culprit.status == "failed" or culprit.kind == "node"
    advice = _advice(culprit, leave_out)
    return Finding(name, "fail" if failed else "warn", units, reading, advice)


def _what(culprit: Culprit) -> str:
    units = culprit.units
    does = {"failed": "fails", "slow": "is slow"}[culprit.status]
    if culprit.kind == "node":
        tried = count(culprit.tried, "other node")
        return f"all_reduce {does} with {culprit.bad} of {tried} that work with others"
    if culprit.kind == "link":
        return f"all_reduce between {units[0]} and {units[1]} {does}; both work with other nodes"
    if culprit.kind == "undecided":
        return f"all_reduce between {units[0]} and {units[1]} {does}; either may be at fault"
    return f"all_reduce {does} only among {format_hosts(units)} together, in no smaller group"


def _evidence(result: Result, judge: Judge) -> str:
    units = "-".join(result.units) if len(result.units) < 3 else format_hosts(result.units)
    if result.status == "slow" and result.complete:
        size = max(result.speeds)
        usual = judge.reference.get(size, 0.0)
        return f"{units} {speed_text(result)}, good pairs {usual:.3g} GB/s"
    speed = f", {speed_text(result)}" if result.speeds else ""
    return f"{units} stopped after {duration(result.seconds)}{speed}: {result.error}"


def _advice(culprit: Culprit, leave_out: LeaveOut | None) -> str:
    units = culprit.units
    if leave_out is None:
        return "nvidia-smi topo -m; dmesg | grep -i xid" if culprit.kind != "together" else ""
    last = units[-1]
    if culprit.kind == "node":
        return f"{leave_out([last])}; on {last}: ip -s link, ibstat, and its firewall."
    if culprit.kind == "link":
        return f"Check cable, switch and firewall between them; until then: {leave_out([last])}"
    if culprit.kind == "undecided":
        return "Try again with a third node, which shows which of the two it is."
    return "Is the switch above them overloaded? Try again with fewer nodes."


def of_devices(tests: Sequence[DeviceTest], slow_below: float) -> list[Finding]:
    """Findings on devices alone: wrong results, those slower than the usual one, and those that
    could not be tested.
    """
    findings = []
    wrong = [t for t in tests if t.error]
    for test in wrong:
        said = f"{_device(test)}: {test.error}"
        advice = "Drain the node; a device that computes wrongly ruins a training silently."
        findings.append(Finding("devices", "fail", [test.unit], said, advice))
    for test in tests:
        if test.untested:
            said = f"{_device(test)} could not be tested: {test.untested}"
            findings.append(Finding("devices", "unknown", [test.unit], said))
    right = [t for t in tests if not t.error and not t.untested]
    usual = sorted(t.tflops for t in right)[len(right) // 2] if right else 0.0
    for test in right:
        if len(right) > 2 and test.tflops < slow_below * usual:
            said = f"{_device(test)} is slow: {test.tflops:.3g} TFLOP/s, usual is {usual:.3g}"
            advice = "nvidia-smi -q -d PERFORMANCE,CLOCK: is it throttled or shared?"
            findings.append(Finding("devices", "warn", [test.unit], said, advice))
    if right and all(f.verdict == "unknown" for f in findings):
        least = min(t.gb_s for t in right)
        said = f"matmul and memory are right on {count(len(right), 'device')}: {right[0].tflops:.3g} TFLOP/s (fp32), memory {least:,.0f} GB/s or more"
        findings.append(Finding("devices", "ok", [t.unit for t in right], said))
    return findings


def _device(test: DeviceTest) -> str:
    return f"{test.unit} GPU {test.device}" if test.device >= 0 else f"{test.unit} CPU"


def of_fabric(seen: Seen, backend: str) -> list[Finding]:
    """Sockets where there is InfiniBand or Slingshot; what gloo does not test."""
    fallen = fabric.fallbacks(seen.fabrics, seen.lines)
    advice = "NCCL_DEBUG=INFO shows why; check NCCL_IB_DISABLE, NCCL_IB_HCA, NCCL_NET and the plugin for libfabric."
    findings = [Finding("fabric", "warn", [n], said, advice) for n, said in fallen.items()]
    having = [unit for unit, fast in seen.fabrics.items() if fast]
    if having and backend == "gloo":
        said = f"{seen.fabrics[having[0]]} was not tested: gloo uses TCP"
        findings.append(Finding("fabric", "unknown", having, said))
    elif having and not fallen:
        first = next((line for line in seen.lines.values() if line), "NCCL did not say which")
        findings.append(Finding("fabric", "ok", having, f"NCCL's network: {first}"))
    return findings


def of_unfinished(found: Found, why: str) -> list[Finding]:
    """That the search was stopped before its end, where it was."""
    if not why:
        return []
    said = f"the tests were {why}, with {found.links} of {count(found.of_links, 'link')} tried"
    return [
        Finding("not finished", "unknown", [], said, "Try again with fewer nodes or --rounds 3.")
    ]


def of_left_out(busy: Mapping[str, str], absent: Mapping[str, str]) -> list[Finding]:
    """Units that took no part: with ranks on them, or without an answer."""
    findings = []
    for unit, said in busy.items():
        reading = f"took no part in the tests, which would disturb what runs there: {said}"
        findings.append(Finding("busy", "unknown", [unit], reading))
    for unit, why in absent.items():
        advice = choose(list(absent), f"Leave {unit} out of the job, or repair it.", "")
        findings.append(Finding("took part", "fail", [unit], why, advice))
    return findings
