"""Notifications by apprise, to a real HTTP and a real SMTP server on this host."""

from __future__ import annotations

import email
import email.policy
import http.server
import json
import logging
import re
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Diagnosis, Job
from hangdoctor.sidecar import actions, notify
from hangdoctor.sidecar.verdict import Verdict
from hangdoctor.storage.incidents import Incidents
from tests.support.fleet import not_entered

DOCS = Path(__file__).parents[2] / "docs" / "fleet.md"
SECRET = "hunter2-s3cret"


class Web(http.server.BaseHTTPRequestHandler):
    """Takes each POST; its path and body are in `got` of the server."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(self.server.code)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


class Mail(socketserver.StreamRequestHandler):
    """As much of SMTP (RFC 5321) as a client without TLS needs; the texts are in `got`."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    text += part
                self.server.got.append(text)  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 fine\r\n")


@contextmanager
def serving(
    kind: type[socketserver.BaseRequestHandler],
) -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        server.got, server.code = [], 200  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def apprise() -> None:
    pytest.importorskip("apprise", reason="needs the extra notify")


def addresses(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "notify.urls"
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path


def actor(tmp_path: Path, path: Path, more: str = "", dry_run: bool = False) -> actions.Actor:
    text = f'[[action]]\nkind = "notify"\nurls_file = "{path}"\ntimeout_s = 60\n{more}'
    (tmp_path / "hangdoctor.toml").write_text(text)
    return actions.Actor(actions.load(tmp_path / "hangdoctor.toml"), dry_run)


def verdict(bundle: Path = Path("/b/id-1")) -> Verdict:
    cause = not_entered("n2")
    told = Diagnosis("hang", Job("torchrun:run-7", 8, ["n1", "n2"]), cause.summary, [cause])
    return Verdict.of("id-1", told, bundle)


@pytest.mark.usefixtures("apprise")
def test_a_verdict_by_http_and_mail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(Web) as web, serving(Mail) as mail:
        web_port, mail_port = web.server_address[1], mail.server_address[1]
        path = addresses(
            tmp_path,
            "# two services",
            f"json://me:{SECRET}@127.0.0.1:{web_port}/hook",
            f"mailto://127.0.0.1:{mail_port}?from=hd@example.org&to=oncall@example.org",
        )
        act = actor(tmp_path, path)
        lines = act.act(verdict(), 0.0)
        assert "cool-down" in act.act(verdict(), 1.0)[0]
        web.code = 500  # type: ignore[attr-defined]
        failed = actor(tmp_path, path).act(verdict(), 0.0)
        [(where, body), _], [text, _] = web.got, mail.got  # type: ignore[attr-defined]
    assert lines == ["notify: line 2 (JSON) sent, line 3 (E-Mail) sent"]
    assert failed == ["notify: line 2 (JSON) failed, line 3 (E-Mail) sent"]
    told = json.loads(body)
    assert where == "/hook" and told["title"] == "hangdoctor: hang in run-7"
    assert "never reached all_reduce #12" in told["message"] and "/b/id-1" in told["message"]
    letter = email.message_from_bytes(text, policy=email.policy.default)
    assert letter["Subject"] == told["title"] and letter["To"] == "oncall@example.org"
    said = letter.get_body(("plain", "html"))
    assert said is not None and "Ranks: 5; nodes: n2" in said.get_content()
    assert SECRET not in caplog.text


@pytest.mark.usefixtures("apprise")
def test_the_secret_is_in_no_line_and_in_no_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    path = addresses(tmp_path, f"json://me:{SECRET}@127.0.0.1:1/{SECRET}")
    dry = actor(tmp_path, path, dry_run=True).act(verdict(), 0.0)
    assert dry == ["notify: would notify line 1 (JSON)"]
    lines = actor(tmp_path, path).act(verdict(), 0.0)
    assert lines == ["notify: line 1 (JSON) failed"]
    monkeypatch.setattr(sys, "argv", ["hangdoctor", "collect", "--config", str(path)])
    incidents = Incidents(tmp_path / "job")
    kept = incidents.save(
        JobCapture("j", taken=1e9), Diagnosis("hang", Job("j", 1, []), ""), "", ""
    )
    incidents.note_actions(kept.id, "\n".join(lines))
    files = [p for p in incidents.folder.rglob("*") if p.is_file()]
    assert len(files) > 4 and SECRET not in caplog.text
    assert [p for p in files if SECRET.encode() in p.read_bytes()] == []


@pytest.mark.usefixtures("apprise")
def test_a_file_that_others_can_read_or_a_wrong_line_is_refused(tmp_path: Path) -> None:
    path = addresses(tmp_path, "json://127.0.0.1:1/hook", f"nothing://{SECRET}")
    with pytest.raises(BadInput, match=r"line 2 of .* is not an address") as told:
        actor(tmp_path, path)
    assert SECRET not in f"{told.value} {told.value.help}"
    path = addresses(tmp_path, "json://127.0.0.1:1/hook")
    path.chmod(0o640)
    with pytest.raises(BadInput, match="other users can read"):
        actor(tmp_path, path)
    for lines, words in (((), "has no address"), (("\udcff",), "not UTF-8")):
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
        path.chmod(0o600)
        with pytest.raises(BadInput, match=words):
            actor(tmp_path, path)
    with pytest.raises(BadInput, match="cannot be read"):
        actor(tmp_path, tmp_path / "missing")
    (tmp_path / "hangdoctor.toml").write_text('[[action]]\nkind = "notify"\n')
    with pytest.raises(BadInput, match="needs urls_file"):
        actions.load(tmp_path / "hangdoctor.toml")


@pytest.mark.usefixtures("apprise")
def test_the_addresses_of_the_document_are_those_of_their_services(tmp_path: Path) -> None:
    block = DOCS.read_text().split("The addresses are those", 1)[1].split("```")[1]
    made = block
    for name, value in (
        ("TOKEN_A/TOKEN_B/TOKEN_C", "T1234ABCD/A1234ABCD/abcdefghijklmnopqrstuvwx"),
        ("HOST", "host.example.org"),
        ("INTEGRATION_KEY", "a" * 32),
        ("API_KEY", "b" * 20),
    ):
        made = made.replace(name, value)
    lines = [re.sub(r"\s+# .*", "", line) for line in made.strip().splitlines()]
    said = notify.services(addresses(tmp_path, *lines))
    names = re.findall(r"\((.*?)\)(?:,|$)", said)
    assert names[0] == "Slack" and "MSTeams" in names[1] and names[2:] == ["E-Mail", "Pager Duty"]


def test_without_the_library_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(BadInput, match="not installed") as told:
        actor(tmp_path, addresses(tmp_path, "json://127.0.0.1:1"))
    assert told.value.help == "In a checkout of hangdoctor: pip install '.[notify]'"
