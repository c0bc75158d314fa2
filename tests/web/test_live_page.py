"""The page of a real job in a real browser: it moves, captures, shows the report, takes keys, and nothing scripts it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from hangdoctor.train.faults import outside
from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg
from tests.support.livejob import LiveJob
from tests.support.onpage import complaints, log_in, press, soon, text
from tests.support.stage import wait_until

pytestmark = pytest.mark.torch


@pytest.fixture
def page(browser: Any, live: LiveJob) -> Iterator[Any]:
    """The page, logged in and with ranks on it."""
    browser.get(live.address + "/")
    if browser.current_url.endswith("/login"):
        log_in(browser, live, live.token)
    wait_until(lambda: "4 ranks" in text(browser, "scale"), "the grid is there")
    browser.get_log("browser")
    yield browser
    assert complaints(browser) == []


def test_only_the_token_opens_the_page(browser: Any, live: LiveJob) -> None:
    browser.delete_all_cookies()
    browser.get(live.address + "/")
    assert browser.current_url == live.address + "/login"
    log_in(browser, live, "not-the-token")
    wait_until(
        lambda: browser.find_elements("css selector", "[role=alert]") != [],
        "the page says that it was wrong",
    )
    assert "not the current token" in browser.find_element("css selector", "[role=alert]").text
    assert browser.get_cookies() == []
    log_in(browser, live, live.token)
    wait_until(lambda: browser.current_url == live.address + "/", "the page opens")
    [cookie] = browser.get_cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert live.token not in cookie["value"]
    assert browser.execute_script("return document.cookie") == ""
    assert live.token not in live.log("collector")


def test_the_page_moves_and_loads_nothing_from_elsewhere(page: Any, live: LiveJob) -> None:
    assert live.run_id in text(page, "job")

    def iteration() -> int:
        return int(text(page, "figures").split()[1])

    before, picture = (
        iteration(),
        page.execute_script("return document.getElementById('grid').toDataURL()"),
    )
    wait_until(lambda: iteration() > before + 2, "the iteration moves")
    assert picture != page.execute_script("return document.getElementById('grid').toDataURL()")
    assert "4 moving" in " ".join(text(page, "legend").split())
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert loaded and all(url.startswith(live.address) for url in loaded)


def test_keys_move_open_filter_and_close(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(page, "g")
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER)  # the first one selects rank 0
    soon(page, "rank", lambda t: "Rank 1" in t and "iteration" in t)
    press(page, Keys.ESCAPE)
    wait_until(
        lambda: page.execute_script("return document.getElementById('rank').hidden"),
        "the panel closes",
    )
    press(page, "/")
    assert page.switch_to.active_element.get_attribute("id") == "filter"
    press(page, "2-3")
    assert page.execute_script("return document.getElementById('filter').value") == "2-3"
    press(page, Keys.ESCAPE)
    assert page.execute_script("return document.getElementById('filter').value") == ""


def test_a_click_captures_a_hung_rank_and_its_report_opens(page: Any, live: LiveJob) -> None:
    with outside.stopped(live.pid(2)):
        soon(page, "sentence", lambda t: t.startswith("Rank 2 (n1) is stopped"))
        table = soon(page, "standing", lambda t: "2" in t and "waiting in " in t)
        assert "blocks" in table
        assert page.find_element("css selector", "tr.culprit").text.split()[:2] == ["◆", "2"]
        page.find_element("id", "capture").click()
        shown = soon(page, "incidents", lambda t: "requested on the page" in t)
    assert "Rank 2" in shown and "is stopped" in shown and "HANG" in shown.upper()
    soon(page, "note", lambda t: t.startswith("Captured: Rank 2"))
    first = page.current_window_handle
    page.find_element("css selector", "#incidents a").click()
    wait_until(lambda: len(page.window_handles) == 2, "the report opens beside it")
    page.switch_to.window(next(h for h in page.window_handles if h != first))
    try:
        wait_until(
            lambda: "is stopped" in page.find_element("tag name", "body").text,
            "the report is there",
            40,
        )
        assert (
            page.execute_script("try { return document.cookie } catch (e) { return 'sandboxed' }")
            == "sandboxed"
        )
        assert complaints(page) == []
    finally:
        page.close()
        page.switch_to.window(first)
    wait_until(live.trains, "the job goes on")
    soon(page, "sentence", lambda t: t.startswith("All 4 ranks"))


def test_a_click_switches_call_traces(page: Any, live: LiveJob) -> None:
    from hangdoctor.errors import BadInput
    from hangdoctor.readers.blackbox import find_boxes
    from hangdoctor.readers.calls import CallsReader, calls_path

    def states() -> list[str]:
        found = []
        for box in find_boxes(live.base / "boxes"):
            if calls_path(box.path).exists():
                with (
                    contextlib.suppress(BadInput),
                    CallsReader(calls_path(box.path)) as reader,
                ):  # it is being made
                    found.append(reader.summary().state)
        return found

    page.find_element("id", "trace").click()
    wait_until(lambda: states() == ["tracing"] * 4, "all ranks trace their calls")
    assert page.find_element("id", "trace").text == "Trace off"
    page.find_element("id", "trace").click()
    wait_until(lambda: "tracing" not in states(), "no rank traces any more")
    assert page.find_element("id", "trace").text == "Trace on"


HOSTILE = "<img src=x onerror=window.pwned=1>\"'><script>window.pwned=2</script>"


def test_hostile_names_are_text(browser: Any, tmp_path: Path) -> None:
    """An agent with the job's key reports names full of markup, long ones and control characters."""
    with LiveJob(tmp_path, world=0) as live:
        log_in(browser, live, live.token)
        wait_until(lambda: browser.current_url == live.address + "/", "the page opens")
        browser.get_log("browser")
        tell_hostile_names(browser, live)
        assert complaints(browser) == []


def tell_hostile_names(page: Any, live: LiveJob) -> None:
    made, context = keys.load(live.folder), zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IDENTITY, b"hostile")
    socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = (
        made.collector.public,
        made.agent.public,
        made.agent.secret,
    )
    socket.connect(address.published(live.folder))
    try:
        socket.send_multipart(msg.encode(msg.Hello("hostile", "evil", (HOSTILE * 4)[:400], 8)))
        assert socket.poll(20_000)
        ranks = [
            msg.RankNow(
                4, idle_s=50.0, op=HOSTILE, phase=(HOSTILE * 9)[:400], inside=True, box=True, seq=7
            ),
            msg.RankNow(
                5,
                idle_s=60.0,
                op="x" * 400,
                phase="\x1b[31m\x00\u202e" + "y" * 300,
                box=True,
                iteration=1 << 61,
            ),
            msg.RankNow(6, over=True),
            msg.RankNow(7, idle_s=9.0, busy=True, op="constructor", phase="__proto__", box=True),
        ]
        socket.send_multipart(msg.encode(msg.Report(1, 1, 0.0, ranks)))
        table = soon(page, "standing", lambda t: "<img src=x" in t and "xxxx" in t)
        assert "onerror" in table and "</script>" not in page.find_element(
            "id", "standing"
        ).get_attribute("innerHTML")
        assert page.execute_script(
            "return [window.pwned, document.querySelectorAll('main img, main script').length]"
        ) == [
            None,
            0,
        ]
        press(page, "g")
        from selenium.webdriver.common.keys import Keys

        press(page, Keys.END, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ENTER)
        soon(page, "rank", lambda t: "<script>" in t)
        wide = page.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, "the page must not grow sideways"
        press(page, Keys.ESCAPE)
        status, _, metrics = live.request("/metrics")
        assert status == 200 and metrics.count(b"\n# HELP hangdoctor_job_info") == 1
    finally:
        context.destroy(linger=0)


def test_what_the_training_said_is_on_the_page_as_text(page: Any, live: LiveJob) -> None:
    (live.control / "event").write_text("lm loss 14 is <i>high</i>")
    soon(page, "events", lambda t: "lm loss 14 is <i>high</i>" in t)
    said = text(page, "events")
    assert said.startswith("SPIKE") and "rank 0 (n1)" in said and "iteration " in said
    assert page.find_elements("css selector", "#events i") == []
    assert page.find_element("id", "events-card").is_displayed()
