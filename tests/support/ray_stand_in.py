"""A package `ray` that is none: it has the part of Ray's interface that `launchers.ray_driver` uses, and
runs tasks on this machine. What it knows of nodes and actors is in the file RAY_STAND_IN.
"""

from __future__ import annotations

from pathlib import Path

_INIT = """
import json, os, time
from concurrent.futures import ThreadPoolExecutor

__version__ = "0 (a stand-in)"
_pool = ThreadPoolExecutor(16)
_known = {}


def init(address, log_to_driver, logging_level):
    if address == "silent":
        time.sleep(600)
    if address == "nowhere":
        raise ConnectionError("Could not find any running Ray instance.")
    if address == "older":
        raise RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9.0")
    with open(os.environ["RAY_STAND_IN"]) as file:
        _known.update(json.load(file))


def nodes():
    return _known["nodes"]


class _Remote:
    def __init__(self, function):
        self.function = function

    def options(self, scheduling_strategy):
        self.node = scheduling_strategy.node_id
        return self

    def remote(self, *arguments):
        if self.node == "c3" * 28:
            raise RuntimeError("The task is not schedulable: the node is infeasible, lease_id=01, name=f")
        return _pool.submit(self.function, *arguments)


class _Method:
    def __init__(self, function):
        self.function = function

    def remote(self, *arguments):
        return _pool.submit(self.function, *arguments)


class _Handle:
    def __init__(self, actor):
        self.actor = actor

    def __getattr__(self, name):
        return _Method(getattr(self.actor, name))


class _Actor(_Remote):
    def remote(self, *arguments):
        assert self.node in [node["NodeID"] for node in _known["nodes"]]
        return _Handle(self.function(*arguments))


def remote(num_cpus, max_retries=None):
    assert num_cpus == 0
    return _Actor if max_retries is None else _Remote


def kill(handle):
    handle.actor.process.kill()


def get(future, timeout=None):
    return future.result(timeout)
"""
_STRATEGIES = """
class NodeAffinitySchedulingStrategy:
    def __init__(self, node_id, soft):
        assert soft is False
        self.node_id = node_id
"""
_STATE = """
import ray


def actors():
    return {actor["ActorID"]: actor for actor in ray._known["actors"]}
"""


def make(folder: Path) -> None:
    """Write the package into a folder."""
    files = {
        "__init__.py": _INIT,
        "util/__init__.py": "",
        "util/scheduling_strategies.py": _STRATEGIES,
        "_private/__init__.py": "",
        "_private/state.py": _STATE,
    }
    for name, text in files.items():
        path = folder / "ray" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
