"""The page's own process: half-open connections, its death, its end with the collector."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hangdoctor.web.connection_limits import AN_ADDRESS, REQUEST_S
from tests.support.livejob import LiveJob
from tests.support.stage import wait_until


@pytest.fixture
def page(tmp_path: Path) -> Iterator[LiveJob]:
    """A collector with its page and no job."""
    with LiveJob(tmp_path, world=0) as job:
        job.status()
        yield job


def page_process(page: LiveJob) -> psutil.Process:
    [found] = [
        p
        for p in psutil.Process(page.processes["collector"].pid).children()
        if any("page_process" in w for w in p.cmdline())
    ]
    return found


def opened(page: LiveJob, say: bytes = b"") -> socket.socket:
    host, port = page.address.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=30)
    found.sendall(say)
    return found


def is_cut(connection: socket.socket) -> bool:
    connection.settimeout(0.0)
    try:
        return connection.recv(65_536) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_half_open_requests_hold_nothing(page: LiveJob) -> None:
    host = page.address.removeprefix("http://")
    starts = (
        b"",
        b"GET / HTTP/1.1\r\nHost:",
        f"POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Length: 90\r\n\r\nx".encode(),
    )
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(page, starts[i % 3])) for i in range(3 * AN_ADDRESS)]
        assert page.status()["status"]["agents"] == 0, "who sends its request at once is served"
        wait_until(lambda: sum(map(is_cut, held)) >= 2 * AN_ADDRESS, "the oldest are cut off")
        assert sum(map(is_cut, held)) < len(held), "not all at once: a slow network is no attack"
        begin = time.monotonic()
        wait_until(lambda: all(map(is_cut, held)), "all are cut off", REQUEST_S + 20)
        assert time.monotonic() - begin > 1.0
        wait_until(
            lambda: len(page_process(page).net_connections()) == 1,
            "only the listening socket is open",
        )


def test_a_reader_with_the_token_is_no_stranger(page: LiveJob) -> None:
    host = page.address.removeprefix("http://")
    ask = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {page.token}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(opened(page, ask)) for _ in range(2 * AN_ADDRESS)]
        for reader in readers:
            assert b"200 OK" in reader.recv(4096)
        held = [stack.enter_context(opened(page)) for _ in range(2 * AN_ADDRESS)]
        wait_until(lambda: sum(map(is_cut, held)) >= AN_ADDRESS, "strangers are cut off")
        for reader in readers:
            reader.settimeout(30)
            assert reader.recv(65_536), "a reader stays"


def test_a_page_that_dies_comes_again_at_the_same_address(page: LiveJob) -> None:
    first = page_process(page)
    assert page.status()["status"]["agents"] == 0
    first.send_signal(signal.SIGKILL)
    wait_until(
        lambda: "the page's process has ended" in page.log("collector"), "the collector notices"
    )
    assert page.status()["status"]["agents"] == 0
    assert page_process(page).pid != first.pid
    assert page.processes["collector"].poll() is None


def test_a_page_that_hangs_delays_no_one_and_a_dead_collector_leaves_no_page(page: LiveJob) -> None:
    process = page_process(page)
    process.suspend()
    collector = page.processes["collector"]
    asked = page.log("collector").count("requested by SIGUSR1")
    os.kill(collector.pid, signal.SIGUSR1)
    wait_until(
        lambda: page.log("collector").count("saved in") > asked,
        "the collector captures all the same",
    )
    process.resume()
    wait_until(lambda: page.status()["concluded"] == 1, "the page goes on where it was")
    collector.kill()
    collector.wait()
    wait_until(
        lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
        "the page has ended, too",
    )


def test_a_capture_that_the_page_asks_for_is_made(page: LiveJob) -> None:
    asked = page.request("/api/v1/capture", b"{}")
    assert asked[0] == 202
    wait_until(lambda: page.status()["concluded"] == 1, "the capture is dealt with")
    assert "requested on the page" in page.request("/api/v1/incidents")[2].decode()
