"""A simulated rank's evidence: as `RankOps` in memory, or as a Flight Recorder dump file like
NCCL's.

The dump's fields are those of version 2.10 (torch/csrc/distributed/c10d/FlightRecorder.hpp of torch
2.13). Without TORCH_NCCL_ENABLE_TIMING the recorder learns of no start: an operation is `scheduled`
until it is `completed`. That is torch's default and the default here.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hangdoctor.model.operations import Group, Operation, RankOps, group_uid

from .sim_engine import NEVER, Members, Simulation
from .sim_layout import Mesh
from .sim_program import Programs, Step

EPOCH_S = 1_780_000_000.0  # wall clock of virtual second 0
GROUP_NAMES = {
    "world": "default_pg",
    "dp": "DATA_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
}
NO_NAME = "undefined"  # what torch describes a group by that was made without a description
NCCL_NAMES = {
    "all_gather_into_tensor": "_all_gather_base",
    "reduce_scatter_tensor": "_reduce_scatter_base",
}
SHORT_DTYPES = {"Float": "float32", "BFloat16": "bfloat16", "Long": "int64", "Half": "float16"}


def group_name(members: Members, axis: str) -> str:
    """What the framework calls the groups of an axis."""
    layout = members.layout
    if isinstance(layout, Mesh) and axis != "world":
        if layout.names == "none":
            return NO_NAME
        if layout.names == "mesh" or axis not in GROUP_NAMES:
            return f"mesh_{axis}"
    return GROUP_NAMES[axis]


class Snapshot(NamedTuple):
    """All ranks at one moment of a simulation that has been run."""

    simulation: Simulation
    programs: Programs
    when: float
    ring: int
    timing: bool

    @property
    def members(self) -> Members:
        return self.simulation.members

    def records(self, rank: int) -> list[tuple[int, Step, str]]:
        """(index, step, state) of what the rank's ring holds, oldest first."""
        s = self.simulation
        starts, ends, when = s.starts[rank], s.ends[rank], self.when
        out: list[tuple[int, Step, str]] = []
        for i in range(s.entered_by(rank, when) - 1, -1, -1):
            step = s.programs[rank][i]
            if step.op == "wait":
                continue
            state = "entered"
            if ends[i] <= when:
                state = "done"
            elif self.timing and starts[i] <= when:
                state = "started"
            out.append((i, step, state))
            if len(out) == self.ring:
                break
        return out[::-1]

    def stage(self, rank: int) -> int:
        return self.members.stage[rank]


def _size_text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


class Exporter:
    """Turns one snapshot into evidence; groups are shared between the ranks to keep 16,384 of them
    small.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        members = snapshot.members
        self.groups: list[Group] = []
        seen: dict[str, int] = {}
        for ranks, axis in zip(members.ranks, members.axis, strict=True):
            # Equal member sets (dp == world, say) are distinguished by the order of creation.
            instance = seen.get(group_uid(ranks), 0)
            seen[group_uid(ranks)] = instance + 1
            name = group_name(members, axis).replace(NO_NAME, "")
            self.groups.append(Group(group_uid(ranks, instance), ranks, name))

    def rank_ops(self, rank: int) -> RankOps:
        snap = self.snapshot
        members = snap.members
        records = snap.records(rank)
        return RankOps(
            rank=rank,
            world_size=members.layout.world_size,
            source="simulated",
            groups=[self.groups[members.of[axis][rank]] for axis in members.axes],
            operations=[self._operation(rank, *r) for r in records],
            overwritten=snap.programs.earlier(snap.stage(rank)) > 0
            or bool(records and records[0][0] > 0),
            runs_ahead=True,
        )

    def _operation(self, rank: int, i: int, step: Step, state: str) -> Operation:
        members, s = self.snapshot.members, self.snapshot.simulation
        group = members.of[step.axis][rank]
        return Operation(
            group=self.groups[group].uid,
            seq=step.seq,
            op=step.op,
            state=state,  # type: ignore[arg-type]
            reduce_op=step.reduce_op,
            root=members.ranks[group][step.root] if step.root >= 0 else -1,
            peer=members.peer(rank, step.hop) if step.p2p else -1,
            shapes=_size_text(step.shape),
            dtype=SHORT_DTYPES[step.dtype],
            site=step.site,
            entered_s=EPOCH_S + self._entered(rank, i),
            left_s=EPOCH_S + s.ends[rank][i] if state == "done" else 0.0,
            asynchronous=True,
        )

    def _entered(self, rank: int, i: int) -> float:
        times = self.snapshot.simulation.enters[rank]
        if not times:
            return 0.0
        return times[min(i, len(times) - 1)]

    def dump(self, rank: int, frames: bool = True) -> dict[str, Any]:
        """What the rank's Flight Recorder would have dumped."""
        snap = self.snapshot
        members, stage = snap.members, snap.stage(rank)
        records = snap.records(rank)
        recorded = snap.programs.earlier(stage)
        recorded += sum(
            s.op != "wait"
            for s in snap.simulation.programs[rank][: records[0][0] if records else 0]
        )
        p2p = self._p2p_before(rank, records[0][0] if records else 0)
        entries = []
        for n, (i, step, state) in enumerate(records):
            p2p += step.p2p
            entry = self._entry(rank, i, step, state)
            entry |= {
                "record_id": recorded + n,
                "p2p_seq_id": p2p if step.p2p or step.axis == "pp" else 0,
            }
            entry["op_id"] = entry["collective_seq_id"] + entry["p2p_seq_id"]
            entries.append(entry)
            if frames:
                name, _, place = step.site.partition(" (")
                file, _, line = place.rstrip(")").partition(":")
                entries[-1]["frames"] = [{"name": name, "filename": file, "line": int(line)}]
        return {
            "version": "2.10",
            "comm_lib_version": "2.28.9",
            "pg_config": {
                str(members.of[axis][rank]): {
                    "name": str(members.of[axis][rank]),
                    "desc": group_name(members, axis),
                    "ranks": _size_text(tuple(members.ranks[members.of[axis][rank]])),
                }
                for axis in members.axes
            },
            "pg_status": {str(n): self._status(rank, axis) for n, axis in enumerate(members.axes)},
            "entries": entries,
        }

    def _p2p_before(self, rank: int, index: int) -> int:
        snap = self.snapshot
        earlier = snap.programs.transfers_before(snap.stage(rank))
        return earlier + sum(s.p2p for s in snap.simulation.programs[rank][:index])

    def _status(self, rank: int, axis: str) -> dict[str, int]:
        """Last collective enqueued, started and completed on one group; -1 where it is not known."""
        snap, s = self.snapshot, self.snapshot.simulation
        base = snap.programs.earlier_on(snap.stage(rank), axis)[0]  # type: ignore[arg-type]
        seen = {"enqueued": base, "started": base if snap.timing else -1, "completed": base}
        for i in range(s.entered_by(rank, snap.when)):
            step = s.programs[rank][i]
            if step.axis != axis or step.p2p or step.op == "wait":
                continue
            seen["enqueued"] = step.seq
            if snap.timing and s.starts[rank][i] <= snap.when:
                seen["started"] = step.seq
            if s.ends[rank][i] <= snap.when:
                seen["completed"] = step.seq
        return {f"last_{k}_collective": v for k, v in seen.items()}

    def _entry(self, rank: int, i: int, step: Step, state: str) -> dict[str, Any]:
        members, s = self.snapshot.members, self.snapshot.simulation
        group = members.of[step.axis][rank]
        name = "nccl:" + NCCL_NAMES.get(step.op, step.op)
        if step.p2p:
            me = members.ranks[group].index(rank)
            peer = members.ranks[group].index(members.peer(rank, step.hop))
            name += f" {me}{'->' if step.op == 'send' else '<-'}{peer}"
        start, end = s.starts[rank][i], s.ends[rank][i]
        return {
            "pg_id": members.axes.index(step.axis),
            "process_group": (str(group), group_name(members, step.axis)),
            "thread_name": "pt_autograd_0" if step.site.startswith("backward") else "python3",
            "thread_id": "140",
            "collective_seq_id": self._collective_seq(rank, i, step) if step.p2p else step.seq,
            "profiling_name": name,
            "time_created_ns": int((EPOCH_S + self._entered(rank, i)) * 1e9),
            "input_sizes": [list(step.shape)],
            "input_dtypes": [step.dtype],
            "output_sizes": [list(step.out_shape)],
            "output_dtypes": [step.dtype],
            "state": {"done": "completed", "started": "started", "entered": "scheduled"}[state],
            "time_discovered_started_ns": _ns(start)
            if self.snapshot.timing and state != "entered"
            else None,
            "time_discovered_completed_ns": _ns(end) if state == "done" else None,
            "retired": state == "done",
            "timeout_ms": 600000,
            "is_p2p": step.p2p,
        }

    def _collective_seq(self, rank: int, i: int, step: Step) -> int:
        """The recorder writes the group's last collective number beside a send or recv."""
        steps = self.snapshot.simulation.programs[rank]
        for k in range(i - 1, -1, -1):
            if steps[k].axis == step.axis and not steps[k].p2p and steps[k].op != "wait":
                return steps[k].seq
        return self.snapshot.programs.earlier_on(self.snapshot.stage(rank), step.axis)[0]


def _ns(seconds: float) -> int | None:
    return None if seconds == NEVER else int((EPOCH_S + seconds) * 1e9)


def _as_json(dump: dict[str, Any]) -> bytes:
    """The JSON form differs: 0 for a time that is not known, status as text, no frames."""
    times = ("time_discovered_started_ns", "time_discovered_completed_ns")
    entries = [
        {k: v for k, v in e.items() if k != "frames"} | {k: e[k] or 0 for k in times}
        for e in dump["entries"]
    ]
    status = {g: {k: str(v) for k, v in s.items()} for g, s in dump["pg_status"].items()}
    return json.dumps(
        dump | {"entries": entries, "pg_status": status, "nccl_comm_state": {}}
    ).encode()


def active_only(dump: dict[str, Any]) -> dict[str, Any]:
    """A dump as `include_only_active` leaves it: without what has completed."""
    return dump | {"entries": [e for e in dump["entries"] if e["state"] != "completed"]}


def write(
    exporter: Exporter,
    ranks: list[int],
    folder: Path,
    kind: str = "pickle",
    prefix: str = "",
    only_active: bool = False,
) -> Iterator[Path]:
    """Write the dumps of some ranks, `kind` pickle or json; yields each file.

    The default prefix is torch's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        dump = exporter.dump(rank)
        if only_active:
            dump = active_only(dump)
        path = (
            folder / f"{prefix or 'comm_lib_trace_rank_'}{rank}{'.json' if kind == 'json' else ''}"
        )
        path.write_bytes(_as_json(dump) if kind == "json" else pickle.dumps(dump, protocol=2))
        yield path
