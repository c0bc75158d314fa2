"""What a node is asked before a job, and what it answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warn", "fail", "unknown"]


class PreflightOptions(Struct, frozen=True):
    """What to check; sent to a node as JSON."""

    paths: list[str] = []
    peers: list[str] = []  # names of the other nodes, to be resolved
    gpus: int = -1  # expected on each node; -1: not given
    timeout_s: float = 15.0
    here: bool = False  # commands are typed on this node, too: Slurm and the page are checked


class Check(Struct):
    """One finding. `advice` is empty where nothing is to be done."""

    name: str
    verdict: Verdict
    reading: str
    advice: str = ""


class NodeReadings(Struct):
    """What one node says of itself. `facts` are compared between nodes."""

    node: str
    checks: list[Check] = []
    facts: dict[str, str] = {}
    wall_s: float = 0.0  # its clock when it answered, seconds since the epoch
