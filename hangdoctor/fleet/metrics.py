"""Prometheus metrics of all jobs (https://prometheus.io/docs/practices/naming/)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ..storage.incident_words import Entry
from ..text.plain import visible
from .board import Sample
from .jobs import STATES, JobRow

_JOB = ["job", "user", "folder"]
_FIGURES: tuple[tuple[str, str, Callable[[JobRow], float]], ...] = (
    ("ranks", "Ranks that run.", lambda row: row.living),
    ("nodes", "Nodes with an agent.", lambda row: row.nodes),
    ("iteration", "Iteration of the job; -1 if unknown.", lambda row: row.iteration),
    (
        "progress_age_seconds",
        "Time since any rank made progress; -1 if unknown.",
        lambda row: row.idle_s,
    ),
    ("iteration_seconds", "Time of the last iteration; 0 if unknown.", lambda row: row.pace_s),
)
_WATCHED = ("stalled", "running", "starting")


class _Samples:
    """The figures of one sample, for a registry."""

    def __init__(self, now: Sample) -> None:
        self.now = now

    def describe(self) -> Iterable[Metric]:
        """Nothing: `collect` says it all."""
        return []

    def collect(self) -> Iterator[Metric]:
        """By job, by node, and in all."""
        jobs = self.now.jobs
        counts = Counter(row.state for row in jobs)
        states = GaugeMetricFamily("hangdoctor_fleet_jobs", "Jobs by state.", labels=["state"])
        for name in STATES:
            states.add_metric([name], counts[name])
        yield states
        yield from _of_jobs(jobs)
        yield _incidents(jobs, self.now.entries)
        yield from _of_nodes(self.now)


def text(now: Sample) -> bytes:
    """All of them in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(now))
    return bytes(generate_latest(registry))


def _of_jobs(jobs: Sequence[JobRow]) -> Iterator[Metric]:
    watched = [row for row in jobs if row.state in _WATCHED]
    state = GaugeMetricFamily(
        "hangdoctor_fleet_job_state", "1 for the state of a job.", labels=[*_JOB, "state"]
    )
    for row in jobs:
        state.add_metric([*_labels(row), row.state], 1)
    yield state
    for name, help, value in _FIGURES:
        family = GaugeMetricFamily(f"hangdoctor_fleet_job_{name}", help, labels=_JOB)
        for row in watched:
            family.add_metric(_labels(row), value(row))
        yield family


def _labels(row: JobRow) -> list[str]:
    return [visible(text) for text in (row.place, row.user, row.folder)]


def _incidents(jobs: Iterable[JobRow], entries: Iterable[Entry]) -> Metric:
    family = GaugeMetricFamily(
        "hangdoctor_fleet_job_incidents",
        "Incidents that are saved now.",
        labels=[*_JOB, "kind", "status"],
    )
    shown = {row.folder: row for row in jobs}
    counts: Counter[tuple[str, str, str]] = Counter()
    for entry in entries:
        counts[entry.folder, entry.kind, entry.status] += 1
    for (folder, kind, status), number in sorted(counts.items()):
        if folder in shown:
            family.add_metric([*_labels(shown[folder]), visible(kind), visible(status)], number)
    return family


def _of_nodes(now: Sample) -> Iterator[Metric]:
    incidents = GaugeMetricFamily(
        "hangdoctor_fleet_node_incidents",
        "Incidents with a culprit on the node, of nodes with two or more.",
        labels=["node"],
    )
    jobs = GaugeMetricFamily(
        "hangdoctor_fleet_node_jobs", "Jobs with such an incident.", labels=["node"]
    )
    for one in now.nodes:
        incidents.add_metric([visible(one.node)], one.incidents)
        jobs.add_metric([visible(one.node)], one.jobs)
    yield from (incidents, jobs)
