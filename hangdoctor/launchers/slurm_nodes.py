"""What Slurm knows of nodes: their state in words, and where their slurmd listens."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from ..errors import LauncherError
from ..text.ranges import format_hosts, number_in
from .knock import Address
from .remote import query

# For one question to Slurm's controller: what it says is worth having, not worth waiting for.
_QUERY_S = 2.0
_COLUMNS = (("NodeList", 256), ("NodeAddr", 256), ("Port", 16), ("StateLong", 64))
_SSH = 22


def states(
    nodes: Sequence[str], env: Mapping[str, str], seconds: float = _QUERY_S
) -> dict[str, str]:
    """What Slurm thinks of these nodes, in words; empty where it cannot be asked any more."""
    rows = _sinfo(nodes, env, ("-o", "%N|%T|%E"), seconds)
    found = [line.split("|", 2) for line in rows if line.count("|") >= 2]
    return {node: describe_state(state, reason) for node, state, reason in found}


def _sinfo(
    nodes: Sequence[str], env: Mapping[str, str], columns: Sequence[str], seconds: float = _QUERY_S
) -> list[str]:
    asked = ("sinfo", "-h", "-N", "-n", format_hosts(nodes), *columns)
    try:
        return query(asked, seconds, env).output.splitlines()
    except LauncherError:
        return []


def describe_state(state: str, reason: str) -> str:
    """Slurm's state of a node in words: ``Slurm has it as down (Not responding)``."""
    signs = {
        "*": "it does not answer Slurm",
        "~": "powered off",
        "#": "powering up",
        "%": "powering down",
        "$": "in maintenance",
    }
    sign = next((words for sign, words in signs.items() if state.endswith(sign)), "")
    name = state.rstrip("*~#%$@^!-+")
    cause = "" if reason.strip().lower() in ("", "none") else f" ({reason.strip()})"
    if name in ("allocated", "mixed", "idle", "completing") and not sign:
        return f"Slurm still lists the node as up{cause}"
    return f"Slurm lists it as {name}{cause}" + (f", {sign}" if sign else "")


class Addresses:
    """Where to knock at the nodes of one job; Slurm is asked once, at the first knock."""

    def __init__(self, nodes: Sequence[str], env: Mapping[str, str]) -> None:
        self._nodes = list(nodes)
        self._env = env
        self._known: dict[str, Address] | None = None
        self._lock = threading.Lock()

    def find(self, node: str) -> Address | None:
        """The address of a node; None where Slurm does not tell it."""
        with self._lock:
            if self._known is None:
                columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS)
                self._known = addresses(_sinfo(self._nodes, self._env, ("-O", columns)))
            return self._known.get(node)


def addresses(rows: Sequence[str]) -> dict[str, Address]:
    """{node: where its slurmd listens} out of the lines of ``sinfo -N -O`` with `_COLUMNS`."""
    found: dict[str, Address] = {}
    for row in rows:
        cells, at = [], 0
        for _, width in _COLUMNS:
            cells.append(row[at : at + width].strip())
            at += width
        node, host, port, state = cells
        if host and 0 <= number_in(port) < 65_536:
            doubted = state if state.endswith("*") or state.lower().startswith("down") else ""
            found[node] = Address(host, (int(port), _SSH), "slurmd", doubted)
    return found
