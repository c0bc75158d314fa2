"""Incidents for OpenTelemetry: a real receiver on this host decodes what the exporter sends."""

from __future__ import annotations

import gzip
import http.server
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hangdoctor.cli import incidents
from hangdoctor.collector.capture_reason import stall
from hangdoctor.collector.instructions import Conclude
from hangdoctor.collector.training_events import Said
from hangdoctor.errors import BadInput
from hangdoctor.model.capture import JobCapture, NodeCapture
from hangdoctor.sidecar import actions
from hangdoctor.sidecar.concluding import Concluder
from hangdoctor.storage.event_rows import EventRow
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport.messages import EventNow
from tests.support.captures import LOAD, WAIT, still
from tests.support.fleet import keep_fleet

NOW = 1_700_000_000.0


class Receiver:
    """An OTLP receiver: what came to each path, decoded, and the headers it came with."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        kinds = {"/v1/logs": ExportLogsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
        got: list[tuple[str, Any, str]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                message = kinds[self.path]()
                message.ParseFromString(body)
                got.append((self.path, message, self.headers.get("authorization", "")))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self.got = got
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self) -> list[Any]:
        return [
            span
            for path, message, _ in self.got
            if path == "/v1/traces"
            for span in message.resource_spans[0].scope_spans[0].spans
        ]

    def records(self) -> list[Any]:
        return [
            message.resource_logs[0].scope_logs[0].log_records[0]
            for path, message, _ in self.got
            if path == "/v1/logs"
        ]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


def attributes(one: Any) -> dict[str, Any]:
    values = {a.key: a.value for a in one.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


def configured(tmp_path: Path, text: str) -> actions.Config:
    (tmp_path / "hangdoctor.toml").write_text(text)
    return actions.load(tmp_path / "hangdoctor.toml")


def captured() -> Conclude:
    """Rank 3 is in its data, the others wait."""
    ranks = [still(rank, LOAD if rank == 3 else WAIT) for rank in range(4)]
    capture = JobCapture("slurm:7.0", [NodeCapture("n1", ranks=ranks)], [], 4, taken=time.time())
    capture.took_s = 1.5
    return Conclude("1", capture, stall("no progress for 9 s", time.monotonic() - 9))


def test_an_event_of_the_training_is_a_log_record_live_and_by_export(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    text = f'[otel]\nendpoint = "{receiver.address}"\n'
    folder = tmp_path / "jobs" / "gpt-1"
    store = Incidents(folder)
    row = EventRow(
        5, 1, 1, job="run-gpt", node="n2", at=NOW, kind="spike", iteration=812, text="loss 9.1"
    )
    store.put({}, [row])
    event = EventNow(5, 1, 1, kind="spike", text="loss 9.1", iteration=812, at=NOW)
    Concluder(store, actions.Actor(configured(tmp_path, text))).said([Said(event, "n2", "run-gpt")])
    assert "otel: events sent" in caplog.text
    words = ["export", "spike", "--root", str(folder.parent), "--otlp", receiver.address]
    assert CliRunner().invoke(incidents.command, words).exit_code == 0
    live, sent = receiver.records()
    assert live == sent and live.event_name == "hangdoctor.event"
    assert live.body.string_value == "loss 9.1"
    assert attributes(live) == {
        "hangdoctor.job": "run-gpt",
        "hangdoctor.node": "n2",
        "hangdoctor.rank": 5,
        "hangdoctor.kind": "spike",
        "hangdoctor.iteration": 812,
    }


def test_events_are_searched_by_their_words(tmp_path: Path) -> None:
    for number, kind in enumerate(("spike", "rollback")):
        row = EventRow(
            number,
            1,
            1,
            job=f"run-{kind}",
            node="n2",
            at=NOW,
            kind=kind,
            iteration=8,
            text="the loss rose",
        )
        Incidents(tmp_path / f"job-{number}").put({}, [row])
    damaged = Incidents(tmp_path / "job-9").folder / "index.sqlite"
    damaged.write_bytes(b"x" * 4096)

    def found(*words: str) -> list[str]:
        told = CliRunner().invoke(
            incidents.command, ["search", "--events", "--root", str(tmp_path), *words]
        )
        assert "left out: " in told.stderr and "job-9" in told.stderr
        return [line.split()[2] for line in told.stdout.splitlines()[1:]]

    assert sorted(found()) == ["job-0", "job-1"]
    assert found("spike") == found("rank0", "loss") == found("sp*") == ["job-0"]
    assert found("--job", "run-roll") == ["job-1"]
    assert found("rose", "loss rank9") == found("--node", "n3") == []


def test_an_incident_is_a_log_record_and_a_trace(
    tmp_path: Path,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret")
    caplog.set_level(logging.DEBUG)
    text = f'[[action]]\nkind = "command"\ncommand = ["true"]\n[otel]\nendpoint = "{receiver.address}/"\n'
    conclude = Concluder(Incidents(tmp_path), actions.Actor(configured(tmp_path, text)))
    assert conclude(captured()) == "hang"
    assert "otel: sent" in caplog.text and "s3cret" not in caplog.text
    assert {header for _, _, header in receiver.got} == {"Bearer s3cret"}
    [record], spans = receiver.records(), {s.name: s for s in receiver.spans()}
    assert list(spans) == ["incident", "stall", "capture", "diagnosis", "actions"]
    root = spans.pop("incident")
    assert {s.parent_span_id for s in spans.values()} == {root.span_id} and not root.parent_span_id
    assert {s.trace_id for s in spans.values()} == {root.trace_id} == {record.trace_id}
    order = [spans[name] for name in ("stall", "capture", "diagnosis", "actions")]
    assert root.start_time_unix_nano == order[0].start_time_unix_nano
    assert root.end_time_unix_nano == order[-1].end_time_unix_nano
    assert all(s.start_time_unix_nano <= s.end_time_unix_nano for s in order)
    stalled = order[0].end_time_unix_nano - order[0].start_time_unix_nano
    assert abs(stalled / 1e9 - 7.5) < 0.5, "from the last progress to the begin of the capture"
    assert [e.name for e in spans["actions"].events] == ["command: true exited with code 0"]
    told = attributes(record)
    assert told["hangdoctor.kind"] == "not_entered" and told["hangdoctor.ranks"] == "3"
    assert told["hangdoctor.job"] == "slurm:7.0" and told == attributes(root)
    assert record.severity_text == "ERROR" and "Rank 3" in record.body.string_value


def test_saved_incidents_are_sent_with_the_same_ids(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = keep_fleet(tmp_path / "jobs")
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["export", "--root", str(root), "--otlp", receiver.address, "rank5"]
    for _ in range(2):
        said = CliRunner().invoke(incidents.command, words, catch_exceptions=False).output
        assert said == f"2 incidents sent to {receiver.address}\n"
    ids = [(span.name, span.span_id) for span in receiver.spans()]
    assert len(ids) == 12 and ids[:6] == ids[6:] and len(set(ids)) == 6
    assert {name for name, _ in ids} == {"incident", "capture", "diagnosis"}


def test_no_receiver_delays_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")
    caplog.set_level(logging.INFO)
    text = '[otel]\nendpoint = "http://127.0.0.1:1"\ntimeout_s = 0.2\n'
    conclude = Concluder(Incidents(tmp_path), actions.Actor(configured(tmp_path, text)))
    assert conclude(captured()) == "hang" and "otel: refused, or not reached" in caplog.text
    assert len(Incidents(tmp_path).rows()) == 1


def test_without_the_library_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BadInput, match="not installed") as told:
        configured(tmp_path, '[otel]\nendpoint = "http://127.0.0.1:4318"\n')
    assert told.value.help == "In a checkout of hangdoctor: pip install '.[otel]'"


@pytest.mark.parametrize(
    "wrong", ["localhost:4318", "http://u:pw@h:1", "http://h/?k=v", "grpc://h"]
)
def test_what_is_no_endpoint_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(BadInput, match="not an address"):
        configured(tmp_path, f'[otel]\nendpoint = "{wrong}"\n')
