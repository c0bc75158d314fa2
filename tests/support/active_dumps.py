"""Flight Recorder dumps as NCCL's ranks write them with `include_only_active`, in torch's format."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WORLD = "0"


def entry(record: int, seq: int, group: str = WORLD, op: str = "all_reduce") -> dict[str, Any]:
    """One pending collective; groups are called by numbers."""
    return {
        "record_id": record,
        "pg_id": int(group),
        "process_group": (group, "default_pg" if group == WORLD else f"group {group}"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 1_780_000_000_000_000_000 + record * 1_000_000,
        "input_sizes": [[4, 8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 8]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 31}],
    }


def dump(
    groups: Mapping[str, Iterable[int]],
    completed: Mapping[str, int],
    entries: list[dict[str, Any]],
    version: str = "2.10",
) -> dict[str, Any]:
    """One rank's dump: its groups' members, how far each has come, and what is pending."""
    status = {}
    for group, last in completed.items():
        own = [e["collective_seq_id"] for e in entries if e["process_group"][0] == group]
        status[str(int(group))] = {
            "last_enqueued_collective": max([last, *own]),
            "last_started_collective": -1,
            "last_completed_collective": last,
        }
    config = {
        name: {
            "name": name,
            "desc": "default_pg" if name == WORLD else f"group {name}",
            "ranks": str(list(ranks)),
        }
        for name, ranks in groups.items()
    }
    return {"version": version, "pg_config": config, "pg_status": status, "entries": entries}


def write(folder: Path, dumps: Mapping[int, dict[str, Any]]) -> list[Path]:
    """One file a rank, named as torch names them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank, contents in dumps.items():
        paths.append(folder / f"nccl_trace_rank_{rank}")
        paths[-1].write_bytes(pickle.dumps(contents, protocol=2))
    return paths
