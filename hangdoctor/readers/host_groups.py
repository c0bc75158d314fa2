"""Output of many hosts in one file, under a header for each group of hosts that printed the same.

---- n[1-3] ----      ---------------      ==> trace-n4.out <==      n4 | CHANGED | rc=0 >>
                      n[1-3] (3)
                      ---------------
clush, dshbak         clush -b, dshbak     tail, head                ansible
"""

from __future__ import annotations

from ..errors import UsageError
from ..text.late import late
from ..text.ranges import parse_hosts

_RULE = late(r"^-{8,80}$")
_INSIDE = late(r"^([A-Za-z][\w.,\[\]-]{0,400})(?: \(\d{1,6}\))?$")
_HEADER = late(
    r"^(?:-{2,20} ?([A-Za-z][\w.,\[\]-]{0,400}?) ?-{2,20}"
    r"|==> (?:\S{0,200}/)?(?:trace|stacks?|pyspy|py-spy|dump)[-_.]([A-Za-z][\w-]{0,120})(?:\.\w{1,8})? <=="
    r"|([A-Za-z][\w.-]{0,120}) \| (?:CHANGED|SUCCESS|FAILED) \| rc=\d{1,3} >>)$"
)
_MOST = 4096  # hosts


def parts(text: str) -> list[tuple[str, str]]:
    """(host, what it printed) of each host, in their order; [] where the text has no such headers."""
    lines = text.splitlines()
    found: list[tuple[list[str], list[str]]] = []
    for at, line in enumerate(lines):
        hosts = _hosts_of(lines, at)
        if hosts:
            found.append((hosts, []))
        elif found and not _RULE.match(line):
            found[-1][1].append(line)
    return [(host, "\n".join(own) + "\n") for hosts, own in found for host in hosts][:_MOST]


def _hosts_of(lines: list[str], at: int) -> list[str]:
    """The hosts that a line names as a header; [] for any other line."""
    match = _HEADER.match(lines[at])
    if match is None and 0 < at < len(lines) - 1:
        between = _RULE.match(lines[at - 1]) and _RULE.match(lines[at + 1])
        match = _INSIDE.match(lines[at]) if between else None
    name = next((group for group in match.groups() if group), "") if match is not None else ""
    if not any(c.isdigit() for c in name):
        return []  # a title
    try:
        return parse_hosts(name)[:_MOST]
    except UsageError:
        return []
