"""Whether a node has a fast fabric, by /sys, and which network NCCL took, by its own log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

# "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB", "NCCL INFO Using network Socket", "... AWS Libfabric"
_TAKEN = re.compile(r"NCCL INFO.*?(?:Using network\s+(\S.*)|(NET/\w+)\s*:\s*Using\s+\S+)")


def of_host(root: Path = Path("/sys/class")) -> str:
    """The fabric of this host: ``InfiniBand (mlx5_0, mlx5_1)``, ``Slingshot (cxi0)``, or ""."""
    found = []
    active = [
        state.parent.parent.parent.name
        for state in sorted(root.glob("infiniband/*/ports/*/state"))
        if "ACTIVE" in _text(state)
    ]
    if active:
        found.append(f"InfiniBand or RoCE ({', '.join(dict.fromkeys(active))})")
    slingshot = sorted(path.name for path in root.glob("cxi/*"))
    if slingshot:
        found.append(f"Slingshot ({', '.join(slingshot)})")
    return " and ".join(found)


def transport_line(log: str) -> str:
    """The last line of NCCL's log that says which network it takes; "" where none does."""
    said = [line.strip() for line in log.splitlines() if _TAKEN.search(line)]
    return said[-1] if said else ""


def is_socket(line: str) -> bool:
    """Whether that line names TCP sockets."""
    found = _TAKEN.search(line)
    taken = (found.group(1) or found.group(2)) if found else ""
    return taken.strip().removeprefix("NET/").lower().startswith("socket")


def fallbacks(fabrics: Mapping[str, str], lines: Mapping[str, str]) -> dict[str, str]:
    """{node: what was seen} of the nodes that have a fabric (node -> `of_host`) and whose NCCL took
    sockets (node -> `transport_line`).
    """
    return {
        node: f"{fabrics[node]} is active, but NCCL took TCP sockets ({line})"
        for node, line in lines.items()
        if fabrics.get(node) and is_socket(line)
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
