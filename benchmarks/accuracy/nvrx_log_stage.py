"""python -m benchmarks.accuracy.nvrx_log_stage FILE...: one JSON line a file, what NVIDIA's log stage names.

Run in a process of its own, with nvidia-resiliency-ext on PYTHONPATH: its restart agent has a stage without a language
model (`restart_agent.l0`, from 0.7.0 on). Its language-model part wants httpx, which is not
used here: a stand-in takes its place where it is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from typing import Any


def _without_network() -> None:
    """Let the package be imported where httpx is missing: nothing of it is called."""
    if importlib.util.find_spec("httpx") is not None:
        return
    stand_in = types.ModuleType("httpx")
    stand_in.__getattr__ = lambda name: type(name, (Exception,), {})  # type: ignore[method-assign]
    sys.modules["httpx"] = stand_in


def named(path: str, build: Any) -> dict[str, Any]:
    """The rank, node and class of its first cause; empty where it names none."""
    primary = build(path).deterministic_primary_candidate
    if primary is None:
        return {}
    return {
        "rank": primary.rank,
        "node": primary.node,
        "class": primary.failure_class,
        "role": primary.role,
    }


def main() -> None:
    """Analyze each file."""
    _without_network()
    stage = importlib.import_module("nvidia_resiliency_ext.attribution.restart_agent.l0")
    for path in sys.argv[1:]:
        try:
            found = named(path, stage.build_l0_bundle)
        except Exception as error:  # a peer's failure is its result
            found = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
