"""Prometheus metrics of the collector (https://prometheus.io/docs/practices/naming/): read when
they are scraped.

Series for each rank are given for jobs of up to `per_rank` ranks; larger ones get the totals, and
the extremes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric

from .._version import __version__
from ..text.plain import visible
from ..watch.arrival_lag import lag_of
from ..watch.live_ranks import RankRow
from ..watch.rank_states import STATES
from .hub import Hub
from .snapshot import Board, Look

_MOST_KINDS = 50  # of events: the job makes their names
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    """A collector of its own registry; nothing of this process but hangdoctor's own figures."""

    def __init__(self, board: Board, hub: Hub, per_rank: int) -> None:
        self.board, self.hub, self.per_rank = board, hub, per_rank
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format
        (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        return bytes(generate_latest(self.registry))

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry that asked `collect` for it would have the job looked at."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The job, its ranks where they are not too many, the watch and its traffic, as of one
        look.
        """
        look = self.board.look()
        self.board.rows()
        self.board.events()
        yield from self._job(look)
        if len(look.rows) <= self.per_rank:
            yield from _ranks(look.rows)
        yield from self._watch(look)
        yield from self._traffic(look)

    def _job(self, look: Look) -> Iterator[Metric]:
        picture, rows = look.picture, look.rows
        yield InfoMetricFamily(
            "hangdoctor_build", "The collector's version.", {"version": __version__}
        )
        info = InfoMetricFamily("hangdoctor_job", "The watched job.", labels=["job"])
        if picture.job:
            info.add_metric([visible(picture.job[:200])], {"world_size": str(picture.world_size)})
        yield info
        states = GaugeMetricFamily("hangdoctor_ranks", "Ranks by state.", labels=["state"])
        for state in STATES:
            states.add_metric([state], picture.counts.get(state, 0))
        yield states
        yield GaugeMetricFamily(
            "hangdoctor_world_size", "Number of ranks of the job.", picture.world_size
        )
        low, high = picture.iteration
        yield GaugeMetricFamily(
            "hangdoctor_iteration_min", "Lowest iteration of any rank; -1 if unknown.", low
        )
        yield GaugeMetricFamily(
            "hangdoctor_iteration_max", "Highest iteration of any rank; -1 if unknown.", high
        )
        yield GaugeMetricFamily(
            "hangdoctor_progress_age_seconds",
            "Time since any rank entered or left an operation.",
            picture.idle_s,
        )
        yield GaugeMetricFamily(
            "hangdoctor_iteration_seconds",
            "Time of an iteration over the last half minute.",
            look.pace_s,
        )
        yield GaugeMetricFamily(
            "hangdoctor_arrival_lag_max_seconds",
            "The arrival lag of the latest rank.",
            max((lag_of(r) for r in rows), default=0.0),
        )

    def _watch(self, look: Look) -> Iterator[Metric]:
        now, captures = look.now, self.board.view.captures
        yield GaugeMetricFamily(
            "hangdoctor_stalled",
            "1 while the watchdog considers the job stalled.",
            int(now.stalled),
        )
        yield GaugeMetricFamily(
            "hangdoctor_rhythm_known",
            "1 once the watchdog has learned the job's normal step times.",
            int(now.warm),
        )
        incidents = CounterMetricFamily(
            "hangdoctor_incidents", "Saved incidents.", labels=["kind", "status"]
        )
        for (kind, status), count in sorted(self.board.kinds.items()):
            incidents.add_metric([visible(kind), visible(status)], count)
        yield incidents
        events = CounterMetricFamily(
            "hangdoctor_training_events", "Events of the training.", labels=["kind"]
        )
        for kind, count in sorted(self.board.event_kinds.items())[:_MOST_KINDS]:
            events.add_metric([visible(kind)], count)
        yield events
        yield CounterMetricFamily(
            "hangdoctor_false_alarms",
            "Stalls that turned out to be false alarms.",
            now.counters.false_alarms,
        )
        yield SummaryMetricFamily(
            "hangdoctor_capture_duration_seconds",
            "Time from the request to the last node's answer.",
            captures.count,
            captures.capture_s,
        )
        yield SummaryMetricFamily(
            "hangdoctor_diagnosis_duration_seconds",
            "Time to diagnose and save a capture.",
            captures.count,
            captures.diagnose_s,
        )

    def _traffic(self, look: Look) -> Iterator[Metric]:
        now = look.now
        yield GaugeMetricFamily("hangdoctor_agents_connected", "Connected agents.", now.agents)
        yield GaugeMetricFamily(
            "hangdoctor_nodes", "Nodes with a report from an agent.", len(now.nodes)
        )
        for name, help, value in (
            ("messages_received", "Messages received from agents.", now.counters.messages),
            ("received_bytes", "Bytes received from agents.", now.counters.bytes),
            ("reports", "Reports accepted.", now.counters.reports),
        ):
            yield CounterMetricFamily(f"hangdoctor_{name}", help, value)
        refused = CounterMetricFamily(
            "hangdoctor_messages_refused", "Messages rejected.", labels=["reason"]
        )
        for reason in ("malformed", "other_protocol", "unknown", "flooded"):
            refused.add_metric([reason], getattr(now.counters, reason))
        yield refused
        yield GaugeMetricFamily("hangdoctor_page_readers", "Open pages.", len(self.hub.readers))
        yield CounterMetricFamily(
            "hangdoctor_page_readers_cut_off",
            "Pages disconnected because they were too slow.",
            self.hub.cut_off,
        )
        yield GaugeMetricFamily(
            "hangdoctor_page_frame_seconds",
            "Processor time of the last page update.",
            self.hub.step_s,
        )


def _ranks(rows: Iterable[RankRow]) -> Iterator[Metric]:
    labels = ["rank", "node"]
    step = GaugeMetricFamily("hangdoctor_rank_iteration", "Iteration of a rank.", labels=labels)
    idle = GaugeMetricFamily(
        "hangdoctor_rank_progress_age_seconds",
        "Time since the rank's last progress.",
        labels=labels,
    )
    lag = GaugeMetricFamily(
        "hangdoctor_rank_arrival_lag_seconds",
        "How much later than its peers the rank enters operations.",
        labels=labels,
    )
    for row in rows:
        if row.state == "unseen":
            continue
        values = [str(row.rank), visible(row.node)]
        if row.iteration >= 0:
            step.add_metric(values, row.iteration)
        if row.state not in ("finished", "gone"):
            idle.add_metric(values, round(row.idle_s, 3))
            lag.add_metric(values, round(lag_of(row), 3))
    yield from (step, idle, lag)
