"""How Slurm's srun says that tasks ended: ``srun: error: n[4-5]: tasks 40-47: Killed``; yhrun is Tianhe's."""

from __future__ import annotations

from ...errors import UsageError
from ...model.log_facts import Ended
from ...text.late import late
from ...text.ranges import parse_hosts, parse_ranks
from .rules import LAST_SIGNAL

_LINE = late(
    r"(?:srun|yhrun): error: (?:(?P<node>[\w.\[\],-]{1,200}): )?tasks? (?P<tasks>[\d,\[\]-]{1,400}): (?P<how>[^\n]{1,80})"
)
_CODE = late(r"[Ee]xited with exit code (\d{1,3})")
_SIGNALS = {
    "Killed": -9,
    "Out Of Memory": -9,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Terminated": -15,
    "Floating point exception": -8,
    "Illegal instruction": -4,
}
_MOST = 4096


def ends(text: str) -> list[Ended]:
    """The ends of tasks that a line of srun tells."""
    if "run: error:" not in text:
        return []
    match = _LINE.search(text)
    if match is None:
        return []
    code = _code(match["how"])
    if code is None:
        return []
    numbers = _numbers(match["tasks"])
    nodes = _nodes(match["node"] or "")
    memory = " (out of memory)" if match["how"].startswith("Out Of Memory") else ""
    return [
        Ended(task=n, node=nodes[0] if len(nodes) == 1 else "", code=code, by=f"slurm{memory}")
        for n in numbers[:_MOST]
    ]


def _code(how: str) -> int | None:
    match = _CODE.search(how)
    if match is not None:
        number = int(match[1])
        return 128 - number if 128 < number <= 128 + LAST_SIGNAL else number
    return next((code for name, code in _SIGNALS.items() if how.startswith(name)), None)


def _numbers(text: str) -> list[int]:
    try:
        return parse_ranks(text.strip("[]"))
    except UsageError:
        return []


def _nodes(text: str) -> list[str]:
    try:
        return parse_hosts(text) if text else []
    except UsageError:
        return [text]
