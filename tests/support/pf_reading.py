"""Reads a Perfetto file with the protobuf classes that define it, and checks that it is well
formed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


@dataclass
class Slice:
    name: str
    begin: int
    end: int = -1
    categories: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    flows: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    place: tuple[str, str, int] | None = None
    depth: int = 0


@dataclass
class Read:
    """Tracks by uuid: (name, uuid of the parent), the slices and instants on each, and which
    process is which.
    """

    names: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    slices: dict[int, list[Slice]] = field(default_factory=dict)
    instants: dict[int, list[Slice]] = field(default_factory=dict)
    packets: int = 0

    def rank(self, number: int) -> dict[str, list[Slice]]:
        """Name of a rank's track -> its slices."""
        [process] = [u for u, name in self.processes.items() if name == f"rank {number}"]
        return {
            self.names[u]: self.slices.get(u, [])
            for u, parent in self.parents.items()
            if parent == process
        }

    def operations(self, number: int) -> list[Slice]:
        return [
            s
            for track in self.rank(number).values()
            for s in track
            if s.categories[0].startswith("operation")
        ]


def read(data: bytes) -> Read:
    """Everything in a file; asserts what every valid file must keep to."""
    trace = Trace.FromString(data)
    found = Read(packets=len(trace.packet))
    tables: dict[str, dict[int, object]] = {
        k: {} for k in ("event_names", "event_categories", "debug_annotation_names")
    }
    texts: dict[int, str] = {}
    places: dict[int, tuple[str, str, int]] = {}
    stacks: dict[int, list[Slice]] = {}
    latest: dict[int, int] = {}
    for packet in trace.packet:
        for table, known in tables.items():
            for entry in getattr(packet.interned_data, table):
                assert entry.iid and entry.iid not in known, "interned twice"
                known[entry.iid] = entry.name
        texts |= {
            e.iid: e.str.decode() for e in packet.interned_data.debug_annotation_string_values
        }
        places |= {
            e.iid: (e.function_name, e.file_name, e.line_number)
            for e in packet.interned_data.source_locations
        }
        if packet.HasField("track_descriptor"):
            _track(found, packet.track_descriptor)
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        assert at > 0 and event.track_uuid in found.names, (
            "an event on a track that nobody described"
        )
        assert at >= latest.get(event.track_uuid, 0), "a track goes back in time"
        latest[event.track_uuid] = at
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end = at
            continue
        slice = Slice(
            str(tables["event_names"][event.name_iid]),
            at,
            categories=[str(tables["event_categories"][c]) for c in event.category_iids],
            facts={
                str(tables["debug_annotation_names"][a.name_iid]): texts[a.string_value_iid]
                if a.string_value_iid
                else a.int_value
                for a in event.debug_annotations
            },
            flows=list(event.flow_ids),
            ends=list(event.terminating_flow_ids),
            depth=len(stack),
            place=places[event.source_location_iid] if event.source_location_iid else None,
        )
        if event.type == TrackEvent.TYPE_INSTANT:
            found.instants.setdefault(event.track_uuid, []).append(slice)
        else:
            stack.append(slice)
            found.slices.setdefault(event.track_uuid, []).append(slice)
    assert all(s.end >= s.begin for track in found.slices.values() for s in track if s.end >= 0)
    return found


def _track(found: Read, track: object) -> None:
    assert track.uuid not in found.names, "described twice"  # type: ignore[attr-defined]
    if track.HasField("process"):  # type: ignore[attr-defined]
        name = track.process.process_name  # type: ignore[attr-defined]
    elif track.HasField("thread"):  # type: ignore[attr-defined]
        name = track.thread.thread_name  # type: ignore[attr-defined]
    else:
        name = track.name  # type: ignore[attr-defined]
    found.names[track.uuid] = name  # type: ignore[attr-defined]
    if track.HasField("process"):  # type: ignore[attr-defined]
        found.processes[track.uuid] = name  # type: ignore[attr-defined]
    else:
        found.parents[track.uuid] = track.parent_uuid  # type: ignore[attr-defined]
