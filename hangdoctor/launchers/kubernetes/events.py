"""The newest warning that the cluster has recorded of a pod, beside what its status says.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from .condition import PodTrouble, sentence
from .kubectl import Kubectl
from .pods import Metadata, Pod

_EVENTS_S = 3.0
_SECONDS = len("2026-11-23T05:00:00")  # times have fractions of a second in some fields alone
_SAME = 60  # characters by which the status and an event are known to say the same
_REPEATED = "BackOff"  # that a container is not started again, which its status says


class _Object(Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Series(Struct, rename="camel", frozen=True):
    last_observed_time: str | None = None


class Event(Struct, rename="camel", frozen=True):
    """One event, as both of the API's event versions print it for kubectl."""

    metadata: Metadata
    involved_object: _Object = _Object()
    type: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    def last(self) -> str:
        """When it was seen last, to the second, in UTC; sorts as text."""
        again = self.series.last_observed_time if self.series is not None else None
        times = (self.last_timestamp, again, self.event_time, self.metadata.creation_timestamp)
        return max((time or "")[:_SECONDS] for time in times)


class _Events(Struct):
    items: list[Event] = []


def explained(
    troubles: Mapping[str, PodTrouble], kubectl: Kubectl, pods: Sequence[Pod]
) -> dict[str, PodTrouble]:
    """The troubles of pods with the newest warning of each, where it says more; as they are where
    the user may not list events, or the cluster is late.
    """
    troubled = [pod for pod in pods if pod.name in troubles]
    if not troubled:
        return dict(troubles)
    fields = "type=Warning,involvedObject.kind=Pod"
    if len(troubled) == 1:
        fields += f",involvedObject.name={troubled[0].name}"
    words = ["get", "events", "--field-selector", fields, "-o", "json"]
    newest = _newest(kubectl.outcome(words, _EVENTS_S).output, troubled)
    return {
        name: _with_event(trouble, newest[name]) if name in newest else trouble
        for name, trouble in troubles.items()
    }


def _newest(printed: str, pods: Sequence[Pod]) -> dict[str, Event]:
    """{pod: its newest warning}, of what kubectl printed; {} where that is something else."""
    try:
        listed = msgspec.json.decode(printed, type=_Events).items
    except msgspec.DecodeError:
        return {}
    by_name = {pod.name: pod for pod in pods}
    newest: dict[str, Event] = {}
    for event in sorted(_of_pods(listed, by_name), key=Event.last):
        newest[event.involved_object.name] = event
    return newest


def _of_pods(listed: Sequence[Event], pods: Mapping[str, Pod]) -> Iterator[Event]:
    """Warnings that still count: not of an earlier pod of that name, and nothing that is over."""
    for event in listed:
        pod = pods.get(event.involved_object.name)
        if pod is None or event.type != "Warning" or event.reason == _REPEATED:
            continue
        uid = event.involved_object.uid
        if uid and pod.metadata.uid and uid != pod.metadata.uid:
            continue
        if event.reason == "FailedScheduling" and pod.spec.node_name:
            continue
        yield event


def _with_event(trouble: PodTrouble, event: Event) -> PodTrouble:
    reason, message = event.reason or "", " ".join((event.message or "").split())
    if not reason or (message and message[:_SAME].rstrip(". ") in trouble.why):
        return trouble
    told = sentence(f"{trouble.why}; event {reason}", message)
    return msgspec.structs.replace(trouble, why=told)
