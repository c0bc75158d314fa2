"""Who may speak to the page, and that every route answers as docs/openapi.json says."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.support.livejob import ROOT, LiveJob
from tests.support.stage import hangdoctor, wait_until

pytestmark = pytest.mark.torch
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())


def test_nothing_is_reported_without_the_token(live: LiveJob) -> None:
    for path in DOCUMENT["paths"]:
        path = path.replace("{rank}", "0").replace("{id}", "x")
        method = "POST" if "post" in DOCUMENT["paths"].get(path, {}) else "GET"
        for token in ("", "wrong", live.token[:-1], live.token + "x"):
            body = b"{}" if method == "POST" else None
            status, headers, said = live.request(path, body, token=token)
            assert status in (401, 403) and live.token.encode() not in said, (path, status)
            assert "set-cookie" not in headers
    status, headers, _ = live.request("/", token="")
    assert (status, headers["location"]) == (303, "/login")
    assert live.request("/metrics", token="")[0] == 401
    scraper = (live.folder / "metrics.token").read_text().strip()
    assert live.request("/metrics", token=scraper)[0] == 200
    assert live.request("/api/v1/status", token=scraper)[0] == 401, (
        "the scraper's token is for the metrics only"
    )


def test_the_token_is_in_private_files_and_in_no_address(live: LiveJob) -> None:
    for name in ("web.json", "metrics.token"):
        assert (live.folder / name).stat().st_mode & 0o777 == 0o600
    assert live.request(f"/api/v1/status?token={live.token}", token="")[0] == 401
    assert live.token not in live.log("collector")


def test_other_names_and_other_sites_are_refused(live: LiveJob) -> None:
    host = live.address.removeprefix("http://")
    port = host.rpartition(":")[2]
    for name in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "",
        "[::1",
        "user@evil",
    ):
        assert live.request("/api/v1/status", Host=name)[0] in (400, 403), name
    for name in (host, f"localhost:{port}", "localhost:9999", f"[::1]:{port}"):
        assert live.request("/api/v1/status", Host=name)[0] == 200, name
    status, headers, _ = live.request(
        "/login", b"token=" + live.token.encode(), token="", Origin=live.address
    )
    assert status == 303
    whole = (live.folder / "web.json").read_bytes()
    form = b"token=" + urllib.parse.quote(whole).encode()
    assert live.request("/login", form, token="", Origin=live.address)[0] == 303
    torn = b"token=" + urllib.parse.quote(whole[:-3]).encode()
    assert live.request("/login", torn, token="", Origin=live.address)[0] == 401
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie.replace("Strict", "strict")
    session = cookie.split(";")[0]
    assert live.request("/api/v1/status", token="", Cookie=session)[0] == 200
    concluded = live.status()["concluded"]
    for more in (
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://{host}0"},
        {"Origin": live.address, "Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        assert live.request("/api/v1/capture", b"{}", token="", Cookie=session, **more)[0] == 403, (
            more
        )
        assert (
            live.request("/login", b"token=" + live.token.encode(), token="", **more)[0] == 403
        ), more
    assert live.status()["concluded"] == concluded
    assert live.request("/logout", b"", token="", Cookie=session, Origin=live.address)[0] == 303
    assert live.request("/api/v1/status", token="", Cookie=session)[0] == 401


def test_headers_and_files(live: LiveJob) -> None:
    status, headers, _ = live.request("/")
    assert (
        status == 200
        and headers["cache-control"] == "no-store"
        and headers["x-content-type-options"] == "nosniff"
    )
    assert (
        "script-src 'self'" in headers["content-security-policy"]
        and "unsafe" not in headers["content-security-policy"]
    )
    assert (
        "frame-ancestors 'none'" in headers["content-security-policy"] and "server" not in headers
    )
    for name in ("..%2fserver.py", "%2e%2e/server.py", "index.html", "nothing.js", "../api.py"):
        assert live.request(f"/static/{name}")[0] == 404, name
    static = ROOT / "hangdoctor" / "web" / "static"
    for path in static.iterdir():
        said = path.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", said), (
            f"{path.name} must load nothing from elsewhere"
        )
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", said), (
                f"{path.name}: the policy forbids inline"
            )
        if path.suffix == ".js":
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", said
            ), path.name
    assert (
        live.request("/login", b"token=" + b"x" * 20_000, token="", Origin=live.address)[0] == 413
    )
    assert live.request("/healthz", token="")[0] == 200


# ----------------------------------------------------------------- the API as documented


def test_the_document_is_made_of_the_routes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "openapi"), str(tmp_path)],
        check=True,
        capture_output=True,
    )
    for made in tmp_path.iterdir():
        assert made.read_text() == (ROOT / "docs" / made.name).read_text(), "run scripts/openapi"
    assert len(list(tmp_path.iterdir())) == 2


def faults(value: Any, schema: dict[str, Any], place: str = "answer") -> list[str]:
    """Where a value is not what a schema of the document says, for the words that the document
    uses.
    """
    known = {
        "$ref",
        "type",
        "title",
        "description",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "anyOf",
        "default",
        "prefixItems",
        "minItems",
        "maxItems",
    }
    if unknown := set(schema) - known:
        return [f"{place}: the test does not understand {sorted(unknown)}"]
    if "$ref" in schema:
        return faults(
            value, DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]], place
        )
    if "anyOf" in schema:
        found = [faults(value, one, place) for one in schema["anyOf"]]
        return [] if [] in found else [f"{place}: fits none of {len(found)}"]
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }
    wanted = schema.get("type")
    if wanted and (
        not isinstance(value, kinds[wanted]) or (isinstance(value, bool) and wanted != "boolean")
    ):
        return [f"{place}: {value!r:.60} is no {wanted}"]
    if isinstance(value, dict):
        return _object_faults(value, schema, place)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1 << 30):
            return [f"{place}: {len(value)} items"]
        inner = schema.get("items") or {}
        parts = schema.get("prefixItems") or [inner] * len(value)
        return [
            f
            for i, (v, s) in enumerate(zip(value, parts, strict=False))
            for f in faults(v, s or {}, f"{place}[{i}]")
        ]
    return []


def _object_faults(value: dict[str, Any], schema: dict[str, Any], place: str) -> list[str]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties")
    found = [
        f"{place}.{name} is missing" for name in schema.get("required", []) if name not in value
    ]
    for name, inner in value.items():
        if name in properties:
            found += faults(inner, properties[name], f"{place}.{name}")
        elif isinstance(more, dict):
            found += faults(inner, more, f"{place}.{name}")
        elif properties:
            found.append(f"{place}.{name} is not in the document")
    return found


def check(live: LiveJob, path: str, status: int, asked: str = "", body: bytes | None = None) -> Any:
    method = "get" if body is None else "post"
    documented = DOCUMENT["paths"][path][method]["responses"]
    got, headers, said = live.request(asked or path, body)
    assert got == status and str(status) in documented, (asked or path, got, said[:200])
    [(media, content)] = documented[str(status)]["content"].items()
    assert headers["content-type"].split(";")[0] in (
        media,
        "text/plain" if media == "text/html" else media,
    )
    if media != "application/json":
        return said
    value = json.loads(said)
    assert faults(value, content["schema"]) == []
    return value


def test_every_route_answers_as_documented(live: LiveJob) -> None:
    assert faults({"status": 1, "more": 2}, {"$ref": "#/components/schemas/StatusAnswer"}), (
        "the check itself must find faults"
    )
    assert check(live, "/api/v1/status", 200)["status"]["world_size"] == 4
    assert [
        r["rank"]
        for r in check(live, "/api/v1/ranks", 200, "/api/v1/ranks?ranks=1-2&node=n1")["ranks"]
    ] == [1, 2]
    assert check(live, "/api/v1/ranks", 200, "/api/v1/ranks?state=gone")["total"] == 0
    check(live, "/api/v1/ranks", 400, "/api/v1/ranks?ranks=nonsense")
    many = ",".join(
        f"{i}0000000-{i}9999999" for i in range(1, 400)
    )  # as numbers they would fill the collector's memory
    assert [
        r["rank"]
        for r in check(live, "/api/v1/ranks", 200, f"/api/v1/ranks?ranks=1,{many}")["ranks"]
    ] == [1]
    assert check(live, "/api/v1/ranks/{rank}", 200, "/api/v1/ranks/3")["node"] == "n1"
    check(live, "/api/v1/ranks/{rank}", 404, "/api/v1/ranks/4000")
    for number in ("9" * 5000, "-1", "x", "%C2%B2"):
        check(live, "/api/v1/ranks/{rank}", 400, f"/api/v1/ranks/{number}")
        check(live, "/api/v1/ranks", 400, f"/api/v1/ranks?ranks={number}")
    asked = check(live, "/api/v1/capture", 202, body=b"{}")
    wait_until(lambda: live.status()["concluded"] > asked["concluded"], "the capture is dealt with")
    found = check(live, "/api/v1/incidents", 200)["incidents"]
    assert found[0]["reason"] == "requested on the page"
    one = f"/api/v1/incidents/{found[0]['id']}"
    check(live, "/api/v1/incidents/{id}", 200, one)
    assert b"healthy" in check(live, "/api/v1/incidents/{id}/report", 200, f"{one}/report").lower()
    assert "sandbox" in live.request(f"{one}/report")[1]["content-security-policy"]
    for wrong in ("nothing", "..", "%2e%2e%2f%2e%2e", found[0]["id"] + "x"):
        assert live.request(f"/api/v1/incidents/{wrong}/report")[0] in (404, 401)
    check(live, "/api/v1/incidents/{id}", 404, "/api/v1/incidents/nothing")
    check(live, "/api/v1/incidents/{id}/report", 404, "/api/v1/incidents/nothing/report")
    if not live.status()["status"]["can_trace"]:
        check(live, "/api/v1/trace", 409, body=b'{"on": true}')
    assert live.request("/api/v1/nothing")[0] == 404


def test_the_stream_is_as_documented_and_small(live: LiveJob) -> None:
    schema = DOCUMENT["paths"]["/api/v1/stream"]["get"]["responses"]["200"]["content"][
        "text/event-stream"
    ]["schema"]
    host, port = live.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as open_page:
        open_page.sendall(
            f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {live.token}\r\n\r\n".encode()
        )
        data, end = b"", time.monotonic() + 30
        while data.count(b"event: delta") < 3 and time.monotonic() < end:
            data += open_page.recv(65_536)
    events = re.findall(rb"event: (\w+)\nid: (\d+)\ndata: (\{.*?\})\n\n", data)
    assert [kind for kind, _, _ in events[:3]] == [b"full", b"delta", b"delta"]
    for _, _, said in events:
        assert faults(json.loads(said), schema) == []
    assert set(json.loads(events[0][2])["columns"]["state"]) == {0, 4, 1}, (
        "one run: from rank 0 on, four that move"
    )


def test_wrong_addresses_are_refused_with_a_way_out(live: LiveJob, tmp_path: Path) -> None:
    where = ("collect", "--folder", str(tmp_path / "f"), "--web")
    open_one = hangdoctor(*where, "0.0.0.0:0", cwd=tmp_path, code=2)
    assert "reachable from the network" in open_one.stderr and "ssh -L" in open_one.stderr
    assert "not an address" in hangdoctor(*where, "http://x", cwd=tmp_path, code=2).stderr
    taken = hangdoctor(*where, live.address.removeprefix("http://"), cwd=tmp_path, code=1)
    assert "cannot listen" in taken.stderr and "127.0.0.1:0" in taken.stderr
    refused = hangdoctor(
        *where, "0.0.0.0:0", "--web-anywhere", "--metrics-open", cwd=tmp_path, code=2
    )
    assert "--metrics-open works only on the loopback" in refused.stderr


def test_an_end_takes_the_page_along(live: LiveJob, tmp_path: Path) -> None:
    """A second collector, ended with a reader on it: the file with the token goes, the port is
    free, the log has no trouble.
    """
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hangdoctor",
                "collect",
                "--folder",
                str(tmp_path / "f"),
                "--bind",
                "tcp://127.0.0.1:*",
                "--web",
                "0",
                "--metrics-open",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_until((tmp_path / "f" / "web.json").exists, "the page is there")
        told = json.loads((tmp_path / "f" / "web.json").read_text())
        host, port = told["address"].removeprefix("http://").split(":")
        reader = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        reader.sendall(
            f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {told['token']}\r\n\r\n".encode()
        )
        assert b"200 OK" in reader.recv(100)
        scraper = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        scraper.sendall(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        assert b"200 OK" in scraper.recv(100), "--metrics-open asks for no token"
        process.terminate()
        assert process.wait(timeout=20) == 0
        while reader.recv(65_536):
            pass
    assert not (tmp_path / "f" / "web.json").exists()
    assert "Traceback" not in (tmp_path / "log").read_text()
