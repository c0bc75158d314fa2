"""What the page says in every state of a job: before it, in a hang, at its end, and without the
collector.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.incidents import ADVICE, SAYS, keep
from tests.support.livejob import LiveJob
from tests.support.onpage import complaints, log_in, soon, text
from tests.support.scripted_agent import ScriptedAgent, outside, over, waiting
from tests.support.stage import wait_until

pytestmark = pytest.mark.torch


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[LiveJob]:
    """A collector with its page that captures nothing by itself, and no job."""
    (tmp_path / "job").mkdir()
    keep(tmp_path, 4000.0, seq=3)
    keep(tmp_path, 40.0)
    keep(tmp_path, 25.0, seq=11)  # found with less evidence
    keep(tmp_path, 10.0)
    with LiveJob(tmp_path, world=0, more=("--stall-after", "3600")) as job:
        yield job


def opened(browser: Any, live: LiveJob) -> None:
    browser.get(live.address + "/")
    log_in(browser, live, live.token)
    wait_until(lambda: browser.current_url == live.address + "/", "the page opens")
    browser.get_log("browser")


def hidden(browser: Any, id: str) -> bool:
    return bool(browser.execute_script("return document.getElementById(arguments[0]).hidden", id))


def can_capture(browser: Any) -> bool:
    return bool(browser.find_element("id", "capture").is_enabled())


def test_before_a_job_the_page_says_what_is_missing(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    soon(browser, "sentence", lambda t: t == "No agent has connected yet.")
    assert "hangdoctor agent --folder" in text(browser, "explained") and not can_capture(browser)
    with ScriptedAgent(quiet, "n1", 0, ""):
        soon(browser, "sentence", lambda t: t == "No rank has been seen yet.")
        assert "1 of 1 agents" in text(browser, "explained") and not can_capture(browser)
    assert complaints(browser) == []


def test_a_hang_is_one_incident_on_top_of_the_page(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 8) as n1, ScriptedAgent(quiet, "n2", 8) as n2:
        n1.report([waiting(r, 60.0) for r in range(4)])
        n2.report([outside(r, 60.0) if r == 5 else waiting(r, 60.0) for r in range(4, 8)])
        wait_until(
            lambda: n1.beat() and n2.beat() and text(browser, "sentence") == SAYS, "the verdict"
        )
        assert text(browser, "pill") == "HANG" and text(browser, "since").startswith("since ")
        since, _, captured = text(browser, "since").partition(" · ")
        assert "UTC (" in since and ADVICE in text(browser, "do")
        assert captured.startswith("verdict as of ") and captured.endswith(" UTC")
        heads = browser.find_elements("css selector", "#standing th")
        assert [head.text for head in heads if head.is_displayed()][-1] == "blocks"
        history = browser.find_elements("css selector", "#history a")
        assert [a.text for a in history[:1]] == ["Open the report"] and len(history) == 4
        listed = browser.find_elements("css selector", "#incidents li")
        assert len(listed) == 2 and "captured 3 times" in listed[0].text
        wait_until(
            lambda: n1.beat() and n2.beat() and "waiting since" in text(browser, "axis-summary"),
            "the axis does not pass over it",
        )
        legend = " ".join(text(browser, "legend").split())
        assert legend == "◆ 1 culprit 7 waiting in an operation" and can_capture(browser)
        [first, *_] = browser.find_elements("css selector", "#arrange option")
        assert first.get_attribute("value") == "layout"
        filtered(browser)
        n1.report([waiting(r, 30.0) for r in range(4)])
        n2.report([waiting(r, 30.0) for r in range(4, 8)])
        wait_until(
            lambda: n1.beat() and n2.beat() and not heads[-1].is_displayed(), "no rank is to blame"
        )
        n1.report([waiting(r, 0.0) for r in range(4)])
        n2.report([waiting(r, 0.0) for r in range(4, 8)])
        wait_until(lambda: n1.beat() and n2.beat() and text(browser, "pill") != "HANG", "they move")
    assert complaints(browser) == []


def test_a_wrong_clock_of_the_browser_changes_nothing(browser: Any, quiet: LiveJob) -> None:
    ahead = "const told = Date.now; Date.now = () => told() + 3600e3;"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": ahead})
    try:
        opened(browser, quiet)
        with ScriptedAgent(quiet, "n1", 8) as n1:
            n1.report([outside(r, 60.0) if r == 5 else waiting(r, 60.0) for r in range(8)])
            since = soon(browser, "since", lambda t: t.startswith("since"))
            assert " s)" in since and " min)" not in since
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert complaints(browser) == []


def filtered(browser: Any) -> None:
    """A filter that no rank matches says so, where the grid is dimmed."""
    box = browser.find_element("id", "filter")
    box.send_keys("nonesuch")
    assert soon(browser, "empty", lambda t: "No rank matches" in t)
    box.clear()
    box.send_keys("5")
    wait_until(lambda: hidden(browser, "empty"), "a rank matches")
    box.clear()
    box.send_keys(" ")
    assert hidden(browser, "empty")


def test_agents_that_are_missing_are_named(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 8) as n1:
        n1.report([waiting(r) for r in range(4)])
        wait_until(
            lambda: n1.beat() and "No agent has seen ranks 4-7" in text(browser, "banner"), "who"
        )
    assert complaints(browser) == []


def test_nodes_whose_agents_never_came_are_named(browser: Any, quiet: LiveJob) -> None:
    """A sidecar knows the nodes of its job; here the page's own code is given such a status."""
    opened(browser, quiet)
    soon(browser, "sentence", lambda t: t.startswith("No agent"))
    shown = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "const names = Array.from({length: 12}, (_, i) => `n${i}`);"
        "const status = {missing: names, silent: [], counts: {unseen: 0}, ended: null};"
        "import('/static/banner.js').then(({banner}) => {"
        " banner({status, size: 0}, 0); done(document.getElementById('banner').innerText); });"
    )
    assert shown == (
        "No agent has connected from nodes n0, n1, n2, n3, n4, n5, n6, n7, …:"
        " the ranks there cannot be seen."
    )


def test_a_node_that_does_not_answer_is_named(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 8) as n1, ScriptedAgent(quiet, "n2", 8) as n2:
        n1.report([waiting(r) for r in range(4)])
        n2.report([waiting(r) for r in range(4, 8)])
        wait_until(
            lambda: n1.beat() and "No answer from node n2" in text(browser, "banner"), "which"
        )
        legend = " ".join(text(browser, "legend").split())
        assert "1 culprit" in legend and "3 its node does not answer" in legend
        assert "no answer from n2" in text(browser, "figures")
        wait_until(lambda: n1.beat() and n2.beat() and hidden(browser, "banner"), "it is back")
    assert complaints(browser) == []


@pytest.mark.parametrize("finished", [True, False])
def test_an_ended_job_says_when_how_and_what_was_lost(
    browser: Any, quiet: LiveJob, finished: bool
) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 8) as n1:
        n1.report([over(r, finished or r != 5) for r in range(8)])
        told = soon(browser, "sentence", lambda t: t.startswith("The job has ended."))
        explained = text(browser, "explained")
        assert "Iteration 99 was the last." in explained
        assert "Its last rank ended at" in explained and "UTC, after 30 s without" in explained
        if finished:
            assert told.endswith("All 8 ranks finished.") and "lost" not in explained
        else:
            assert "Rank 5 ended without finishing" in told
            assert "since the last checkpoint is lost" in explained
        assert not can_capture(browser) and text(browser, "pill") == "ENDED"
        for link in browser.find_elements("css selector", "#incidents a"):
            path = link.get_attribute("href").removeprefix(quiet.address)
            status, _, page = quiet.request(path)
            assert status == 200 and b"run-7" in page, "reports stay readable"
    assert complaints(browser) == []


def test_without_the_collector_the_page_says_what_it_shows(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 4) as n1:
        n1.report([waiting(r) for r in range(4)])
        soon(browser, "sentence", lambda t: "waiting" in t or t == SAYS)
        assert can_capture(browser)
        quiet.processes["collector"].kill()
        told = soon(browser, "banner", lambda t: "No connection to the collector" in t)
        assert f"hangdoctor incidents list --folder {quiet.folder}" in told
        assert "lost" in text(browser, "link") and not can_capture(browser)
    browser.get_log("browser")  # what it says of the lost connection


def test_the_header_is_one_line_from_700_pixels_on(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 4, "a-long-name-of-a-job-" * 6) as n1:
        n1.report([waiting(r) for r in range(4)])
        soon(browser, "job", lambda t: t.startswith("a-long-name"))
        try:
            for width in (390, 700, 740, 780, 820, 860, 961, 1280):
                fits(browser, width)
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert complaints(browser) == []


def fits(browser: Any, width: int) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    told = browser.execute_script(
        "const page = document.documentElement, bar = document.querySelector('.bar');"
        "return [page.scrollWidth - page.clientWidth, bar.getBoundingClientRect().height]"
    )
    assert told[0] <= 0, f"the page is wider than {width} pixels"
    assert width < 700 or told[1] <= 60, f"the header breaks at {width} pixels"


def test_the_tip_covers_nothing(browser: Any, quiet: LiveJob) -> None:
    opened(browser, quiet)
    with ScriptedAgent(quiet, "n1", 4) as n1:
        n1.report([waiting(r) for r in range(4)])
        soon(browser, "scale", lambda t: "4 ranks" in t)
        browser.execute_script(
            "const g = document.getElementById('grid'), b = g.getBoundingClientRect();"
            "g.dispatchEvent(new MouseEvent('mousemove', {clientX: b.left + 60, clientY: b.top + 40, bubbles: true}))"
        )
        assert "Rank " in soon(browser, "tip", lambda t: "Rank" in t)
        gap = browser.execute_script(
            "const box = (id) => document.getElementById(id).getBoundingClientRect();"
            "return [box('tip').top - box('frame').bottom, box('scale').top - box('tip').bottom]"
        )
        assert gap[0] >= -5 and gap[1] >= -1  # the frame is drawn 4 pixels over its edge
    assert complaints(browser) == []
