"""The timeline as a Perfetto trace, written with the protobuf classes of the `perfetto` package.

Tracks: a process for each rank; in it its phases, iterations and micro-batches, a thread track for
each thread with its operations and one for its Python calls, and lanes for operations in flight
(asynchronous ones overlap). Operations of one instance are joined by a flow. An unfinished
operation is a slice that begins and does not end. Names and texts are interned.

Format: TrackEvent of Perfetto's protos (track_event.proto, track_descriptor.proto,
interned_data.proto).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from ..model.capture import JobCapture
from ..model.diagnosis import Cause, Diagnosis
from ..text.plain import visible
from ..text.ranges import format_ranks
from .build import build
from .calltracks import CALLS, call_tracks
from .clocks import clock_words
from .histories import from_capture
from .model import Correction, Lane, Timeline
from .tracks import Slice, Track, tracks_of

_SEQUENCE = 1
_BOOT, _REAL = (
    6,
    1,
)  # builtin_clock.proto: CLOCK_BOOTTIME is what timestamps are of, CLOCK_REALTIME is what people read
_BEGIN, _END, _INSTANT = (
    TrackEvent.TYPE_SLICE_BEGIN,
    TrackEvent.TYPE_SLICE_END,
    TrackEvent.TYPE_INSTANT,
)
_CLOCKS = 1  # uuid of the track that says how clocks were aligned
_ROOM = 1 << 12  # uuids a rank
# A viewer takes equal pids for one process, and nodes number theirs alike: rank 7 is 100007.
_FIRST_PID = 100_000


def as_bytes(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """The trace of a bundle, with the culprits marked, for `report --perfetto`."""
    return b"".join(encode(build(from_capture(capture)), diagnosis.causes))


def encode(
    timeline: Timeline,
    causes: Iterable[Cause] = (),
    more: dict[int, list[Track]] | None = None,
    calls: int = CALLS,
) -> Iterator[bytes]:
    """The file in pieces, one rank after another: only one rank's slices are in memory at a time.

    Args:
        timeline: the histories on one axis.
        causes: what a diagnosis found: marked on the ranks' own tracks.
        more: rank -> further tracks of it (GPU streams).
        calls: N of the last events of each rank's ring of Python calls.
    """
    writer = _Writer()
    yield from writer.head(timeline)
    flows = _flows(timeline)
    culprits = {rank: cause for cause in causes for rank in cause.ranks}
    for i, lane in enumerate(timeline.lanes):
        yield from writer.rank(timeline, lane, culprits.get(lane.trace.rank))
        tracks = tracks_of(timeline, lane, flows.get(i, {})) + call_tracks(
            timeline, lane.trace, calls
        )
        tracks += (more or {}).get(lane.trace.rank, [])
        for number, track in enumerate(tracks[: _ROOM - 2]):
            yield from writer.track(lane.trace.rank, number, track)


def _flows(timeline: Timeline) -> dict[int, dict[int, tuple[int, bool]]]:
    """rank's place -> operation's place -> (flow, whether it ends there).

    A viewer draws them in the order of time.
    """
    found: dict[int, dict[int, tuple[int, bool]]] = {}
    for number, instance in enumerate(timeline.instances, 1):
        ordered = sorted(instance.members, key=lambda m: (timeline.lanes[m[0]].begin[m[1]], m[0]))
        for place, (i, j) in enumerate(ordered):
            found.setdefault(i, {})[j] = (number, place == len(ordered) - 1)
    return found


def uuid_of(rank: int) -> int:
    """The first of the track ids that belong to a rank."""
    return (rank + 1) * _ROOM


class _Writer:
    """Packets of one sequence: what was interned once is referred to by number."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._places: dict[tuple[str, str, int], int] = {}
        # The part of a slice that many share, with what it was made of: an id stands for the object
        # while that is kept.
        self._kinds: dict[tuple[object, ...], tuple[TrackEvent, object]] = {}
        self._tids = iter(range(10_000_000, 1 << 31))

    # ----------------------------------------------------------------- pieces

    def head(self, timeline: Timeline) -> Iterator[bytes]:
        packet = self._packet(0)
        packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.clock_snapshot.primary_trace_clock = _BOOT
        for clock, reading in ((_BOOT, 1), (_REAL, timeline.base_ns + 1)):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=max(1, reading))
        yield _framed(packet)
        packet = self._packet(0)
        packet.track_descriptor.uuid = _CLOCKS
        packet.track_descriptor.name = "clocks of the nodes"
        yield _framed(packet)
        for correction in timeline.clocks:
            yield self._instant(
                _CLOCKS, 0, clock_words(correction), "clock", facts=_clock_facts(correction)
            )

    def rank(self, timeline: Timeline, lane: Lane, cause: Cause | None) -> Iterator[bytes]:
        trace = lane.trace
        packet = self._packet(0)
        track = packet.track_descriptor
        track.uuid = uuid_of(trace.rank)
        track.process.pid = _FIRST_PID + trace.rank
        track.process.process_name = f"rank {trace.rank}"
        labels = [trace.node and f"node {visible(trace.node)}", trace.pid and f"pid {trace.pid}"]
        track.process.process_labels.extend(filter(None, labels))
        track.description = visible(clock_words(timeline.correction(trace)))
        track.sibling_order_rank = trace.rank
        track.child_ordering = TrackDescriptor.EXPLICIT
        yield _framed(packet)
        if cause is not None:
            facts: dict[str, int | str] = {"summary": cause.summary, "advice": cause.advice}
            yield self._instant(
                track.uuid, timeline.end_ns, f"culprit: {cause.kind}", "diagnosis", facts=facts
            )

    def track(self, rank: int, number: int, track: Track) -> Iterator[bytes]:
        packet = self._packet(0)
        told = packet.track_descriptor
        told.uuid = uuid_of(rank) + 1 + number
        told.parent_uuid = uuid_of(rank)
        told.sibling_order_rank = number
        if track.thread:
            told.thread.pid = _FIRST_PID + rank
            told.thread.tid = _FIRST_PID + rank if track.main else next(self._tids)
            told.thread.thread_name = visible(track.name)
        else:
            told.name = visible(track.name)
        yield _framed(packet)
        for at, slice in track.in_order():
            yield self._end(told.uuid, at) if slice is None else self._begin(told.uuid, at, slice)

    def _end(self, uuid: int, at: int) -> bytes:
        packet = self._packet(at)
        packet.track_event.type, packet.track_event.track_uuid = _END, uuid
        return _framed(packet)

    def _begin(self, uuid: int, at: int, slice: Slice) -> bytes:
        packet = self._packet(at)
        event = packet.track_event
        key = (slice.name, slice.category, slice.site, id(slice.kind))
        known = self._kinds.get(key)
        if known is None:
            self._say(packet, slice.name, slice.category, slice.kind or {})
            if slice.site[0]:
                event.source_location_iid = self._place(packet, slice.site)
            if slice.kind is not None:
                self._kinds[key] = TrackEvent.FromString(event.SerializeToString()), slice.kind
        else:
            event.CopyFrom(known[0])
        event.type, event.track_uuid = _BEGIN, uuid
        self._facts(packet, slice.facts)
        if slice.flow:
            (event.terminating_flow_ids if slice.flow[1] else event.flow_ids).append(slice.flow[0])
        return _framed(packet)

    def _instant(
        self, uuid: int, at: int, name: str, category: str, facts: dict[str, int | str]
    ) -> bytes:
        packet = self._packet(at)
        packet.track_event.type, packet.track_event.track_uuid = _INSTANT, uuid
        self._say(packet, name, category, facts)
        return _framed(packet)

    # ----------------------------------------------------------------- packets

    def _packet(self, at: int) -> TracePacket:
        packet = TracePacket()
        packet.timestamp = at + 1  # 0 is no time
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _say(
        self, packet: TracePacket, name: str, category: str, facts: dict[str, int | str]
    ) -> None:
        event = packet.track_event
        event.name_iid = self._intern(packet.interned_data.event_names, self._names, name)
        event.category_iids.append(
            self._intern(packet.interned_data.event_categories, self._categories, category)
        )
        self._facts(packet, facts)

    def _facts(self, packet: TracePacket, facts: dict[str, int | str]) -> None:
        event = packet.track_event
        for key, value in facts.items():
            note = event.debug_annotations.add()
            note.name_iid = self._intern(
                packet.interned_data.debug_annotation_names, self._keys, key
            )
            if isinstance(value, int):
                note.int_value = value
            else:
                iid = self._texts.get(value)
                if iid is None:
                    iid = self._texts[value] = len(self._texts) + 1
                    packet.interned_data.debug_annotation_string_values.add(
                        iid=iid, str=visible(value).encode()
                    )
                note.string_value_iid = iid

    @staticmethod
    def _intern(table: object, known: dict[str, int], text: str) -> int:
        iid = known.get(text)
        if iid is None:
            iid = known[text] = len(known) + 1
            table.add(iid=iid, name=visible(text))  # type: ignore[attr-defined]
        return iid

    def _place(self, packet: TracePacket, site: tuple[str, str, int]) -> int:
        iid = self._places.get(site)
        if iid is None:
            iid = self._places[site] = len(self._places) + 1
            name, file = visible(site[0]), visible(site[1])
            packet.interned_data.source_locations.add(
                iid=iid, function_name=name, file_name=file, line_number=site[2]
            )
        return iid


def _clock_facts(correction: Correction) -> dict[str, int | str]:
    facts: dict[str, int | str] = {
        "clock": correction.clock,
        "ranks": format_ranks(correction.ranks),
        "reference": correction.reference,
        "offset_ns": correction.offset_ns,
    }
    if correction.bound_ns is not None:
        facts["bound_ns"] = correction.bound_ns
    return facts | ({"why": correction.why} if correction.why else {})


def _framed(packet: TracePacket) -> bytes:
    """A packet as the field `packet` (number 1) of the file's message: a trace is the packets one
    after another.
    """
    body: bytes = packet.SerializeToString()
    size, n = bytearray(), len(body)
    while n > 127:
        size.append(n & 127 | 128)
        n >>= 7
    size.append(n)
    return b"\x0a" + bytes(size) + body
