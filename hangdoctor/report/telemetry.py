"""An incident for OpenTelemetry: a log record, and a trace of what was done about it.

The exporter is OpenTelemetry's own (extra `otel`), imported when it is used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from .._version import __version__
from ..errors import BadInput
from ..model.diagnosis import Diagnosis
from ..storage.event_rows import EventRow
from ..text.ranges import format_ranks
from ..time_limit import OutOfTime, within

SENT = "sent"
_SEVERITY = {"hang": "ERROR", "failed": "ERROR", "slow": "WARN", "unknown": "WARN"}
_GRACE_S = 1.0  # the exporter's own limit comes first
_NS = 1_000_000_000
_Attributes = dict[str, str | int | float | list[str]]


class Endpoint(Struct, forbid_unknown_fields=True):
    """[otel] of hangdoctor.toml."""

    endpoint: str
    timeout_s: float = 10.0


class Span(Struct, frozen=True):
    """One part of the trace; `begin` and `end` are times of day."""

    name: str
    begin: float
    end: float
    events: Sequence[str] = ()


class Told(Struct):
    """An incident, and the parts of its trace."""

    id: str
    bundle: str
    at: float  # time of day of the capture
    diagnosis: Diagnosis
    spans: list[Span]


def saved_spans(at: float, diagnosis: Diagnosis) -> list[Span]:
    """The parts that a bundle knows of: capture and diagnosis."""
    took = diagnosis.took
    return [
        Span("capture", at - max(0.0, took.capture_s), at),
        Span("diagnosis", at, at + max(0.0, took.diagnose_s)),
    ]


def check(told: Endpoint, where: str) -> None:
    """Raises BadInput: it is no address, or the exporter is not installed."""
    try:
        parts = urlsplit(told.endpoint)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.username is not None:
        raise BadInput(
            f"{where}: the OpenTelemetry endpoint is not an address",
            "For example http://127.0.0.1:4318; credentials belong into OTEL_EXPORTER_OTLP_HEADERS.",
        )
    try:
        import opentelemetry.exporter.otlp.proto.http._log_exporter
        import opentelemetry.sdk._logs  # noqa: F401
    except ImportError as error:
        raise BadInput(
            f"{where}: the OpenTelemetry exporter is not installed ({error})",
            "In a checkout of hangdoctor: pip install '.[otel]'",
        ) from error


def send(told: Told, to: Endpoint) -> str:
    """Send one incident; says in words what came of it. It takes `timeout_s`, or a little more."""
    try:
        return within(to.timeout_s + _GRACE_S, lambda: _sent(told, to))
    except OutOfTime:
        return f"no answer after {to.timeout_s:.0f} s"
    except Exception as error:  # a library's own trouble must not end the watch
        return f"failed: {type(error).__name__}"


def send_events(rows: Sequence[EventRow], to: Endpoint) -> str:
    """Send what the training said of itself, as log records; says in words what came of it."""
    try:
        return within(to.timeout_s + _GRACE_S, lambda: _logged(rows, to))
    except OutOfTime:
        return f"no answer after {to.timeout_s:.0f} s"
    except Exception as error:  # as for an incident
        return f"failed: {type(error).__name__}"


def _logged(rows: Sequence[EventRow], to: Endpoint) -> str:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs.export import LogRecordExportResult

    endpoint = f"{to.endpoint.rstrip('/')}/v1/logs"
    logs = OTLPLogExporter(endpoint=endpoint, timeout=to.timeout_s)
    resource = _resource()
    try:
        done = logs.export([_event_record(row, resource) for row in rows])
    finally:
        logs.shutdown()
    return SENT if done is LogRecordExportResult.SUCCESS else "refused, or not reached"


def _event_record(row: EventRow, resource: Any) -> Any:
    known = {"job": row.job, "node": row.node, "rank": row.rank, "kind": row.kind}
    if row.iteration >= 0:
        known["iteration"] = row.iteration
    if row.actions:
        known["actions"] = row.actions
    return _log_record(
        resource,
        timestamp=_ns(row.at),
        observed_timestamp=_ns(row.at),
        severity="INFO",
        body=row.text or row.kind,
        attributes={f"hangdoctor.{name}": value for name, value in known.items()},
        event_name="hangdoctor.event",
    )


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    what = {"service.name": "hangdoctor", "service.version": __version__}
    return Resource.create({**what, "host.name": os.uname().nodename})


def _sent(told: Told, to: Endpoint) -> str:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs.export import LogRecordExportResult
    from opentelemetry.sdk.trace.export import SpanExportResult

    base = to.endpoint.rstrip("/")
    spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=to.timeout_s)
    logs = OTLPLogExporter(endpoint=f"{base}/v1/logs", timeout=to.timeout_s)
    resource = _resource()
    try:
        traced = spans.export(_trace(told, resource))
        logged = logs.export([_record(told, resource)])
    finally:
        spans.shutdown()
        logs.shutdown()
    if traced is SpanExportResult.SUCCESS and logged is LogRecordExportResult.SUCCESS:
        return SENT
    return "refused, or not reached"


def _attributes(told: Told) -> _Attributes:
    diagnosis = told.diagnosis
    found: _Attributes = {
        "job": diagnosis.job.id,
        "incident": told.id,
        "status": diagnosis.status,
        "world_size": diagnosis.job.world_size,
        "bundle": told.bundle,
    }
    if diagnosis.causes:
        first = diagnosis.causes[0]
        where = first.where
        cause = {
            "kind": first.kind,
            "ranks": format_ranks(first.ranks),
            "nodes": first.nodes,
            "confidence": first.confidence,
            "operation": where.op,
            "sequence": where.seq,
            "group": where.group,
            "iteration": where.iteration,
            "frame": where.frame,
            "advice": first.advice or None,
        }
        found |= {name: value for name, value in cause.items() if value is not None}  # type: ignore[misc]
    return {f"hangdoctor.{name}": value for name, value in found.items()}


def _number(told: Told, name: str, bits: int) -> int:
    """An id of the trace or a span: the same whenever this incident is sent."""
    text = f"{told.diagnosis.job.id}\0{told.id}\0{told.at:.3f}\0{name}"
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[: bits // 8], "big") or 1


def _context(told: Told, name: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    trace, span = _number(told, "", 128), _number(told, f"span {name}", 64)
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _trace(told: Told, resource: Any) -> list[Any]:
    """The whole incident as a span, and its parts below it."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Status, StatusCode

    root = _context(told, "incident")
    begin = min([told.at, *(span.begin for span in told.spans)])
    end = max([told.at, *(span.end for span in told.spans)])
    failed = told.diagnosis.status in ("hang", "failed")
    status = Status(StatusCode.ERROR, told.diagnosis.summary) if failed else Status()
    spans = []
    for span in [Span("incident", begin, end), *told.spans]:
        whole = span.name == "incident"
        made = ReadableSpan(
            name=span.name,
            context=root if whole else _context(told, span.name),
            parent=None if whole else root,
            resource=resource,
            attributes=_attributes(told) if whole else None,
            events=[Event(said, timestamp=_ns(span.end)) for said in span.events],
            status=status if whole else Status(),
            start_time=_ns(span.begin),
            end_time=_ns(span.end),
            instrumentation_scope=InstrumentationScope("hangdoctor", __version__),
        )
        spans.append(made)
    return spans


def _record(told: Told, resource: Any) -> Any:
    severity = _SEVERITY.get(told.diagnosis.status, "INFO")
    at = _context(told, "incident")
    return _log_record(
        resource,
        timestamp=_ns(told.at),
        observed_timestamp=_ns(told.at),
        trace_id=at.trace_id,
        span_id=at.span_id,
        trace_flags=at.trace_flags,
        severity=severity,
        body=told.diagnosis.summary,
        attributes=_attributes(told),
        event_name="hangdoctor.incident",
    )


def _log_record(resource: Any, *, severity: str, **fields: Any) -> Any:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    number = SeverityNumber[severity]
    record = LogRecord(severity_text=severity, severity_number=number, **fields)
    return ReadableLogRecord(record, resource, InstrumentationScope("hangdoctor", __version__))


def _ns(at: float) -> int:
    return max(0, round(at * _NS))
