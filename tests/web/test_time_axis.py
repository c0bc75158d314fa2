"""The page's time axis in a real browser: a recorded week, a real job, a restart, and other time zones."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.collector.history_file import FILE
from hangdoctor.watch.job_history import SPANS
from tests.support.incidents import keep
from tests.support.livejob import LiveJob
from tests.support.onpage import complaints, log_in, press, soon, text
from tests.support.recorded import AWAY, HANG, record
from tests.support.scripted_agent import ScriptedAgent, moving
from tests.support.stage import wait_until

pytestmark = pytest.mark.torch


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[LiveJob]:
    """A collector with a week behind it, an incident in it, and no job."""
    record(tmp_path / "job", time.time())
    keep(tmp_path, HANG[0] - 5)
    with LiveJob(tmp_path, world=0, more=("--stall-after", "3600")) as job:
        yield job


@pytest.fixture
def page(browser: Any, recorded: LiveJob) -> Iterator[Any]:
    log_in(browser, recorded, recorded.token)
    wait_until(lambda: browser.current_url == recorded.address + "/", "the page opens")
    browser.get_log("browser")
    soon(browser, "axis-summary", lambda t: "stall" in t)
    yield browser
    assert complaints(browser) == []


def history(live: LiveJob, span: str = "1h") -> dict[str, Any]:
    return dict(json.loads(live.request(f"/api/v1/history?span={span}")[2]))


def of(axis: dict[str, Any], column: str, begin_ago_s: float, end_ago_s: float) -> list[Any]:
    """Values of the buckets that are wholly between two times before the recording."""
    recorded_at = axis["stalls"][0]["end"] + HANG[1]
    times = [axis["begin"] + i * axis["step_s"] for i in range(len(axis[column]))]
    begin, end = recorded_at - begin_ago_s, recorded_at - end_ago_s - axis["step_s"]
    return [v for v, t in zip(axis[column], times, strict=True) if begin < t < end]


def test_the_api_has_what_was_recorded_before_the_start(recorded: LiveJob) -> None:
    axis = history(recorded)
    assert set(of(axis, "watched", *AWAY)) == {0.0} and set(of(axis, "steps", *AWAY)) == {None}
    assert set(of(axis, "steps", *HANG)) == {0.0}
    assert min(of(axis, "steps", 1000.0, 200.0)) > 1.5
    [stall], [capture] = axis["stalls"], axis["captures"]
    assert round(stall["end"] - stall["begin"]) == 180 and not stall["goes_on"]
    assert stall["begin"] < capture["at"] < stall["end"] and capture["status"] == "hang"
    for span, (step_s, length) in SPANS.items():
        told = history(recorded, span)
        assert told["step_s"] == step_s
        for name in ("watched", "alive", "moved", "steps"):
            assert len(told[name]) == length
    assert recorded.request("/api/v1/history?span=nonsense")[0] == 400


def test_every_span_shows_gaps_stalls_and_captures(page: Any) -> None:
    names = {"1h": "hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days"}
    for button in page.find_elements("css selector", "#spans button"):
        button.click()
        drawn(page, f"the last {names.pop(button.get_attribute('data-span'))}:")
        assert button.get_attribute("aria-pressed") == "true"
    assert not names and "not watched" in text(page, "axis").lower()


def test_what_is_usual_is_not_of_the_time_of_a_stall(browser: Any, recorded: LiveJob) -> None:
    """A young recording, most of it a hang."""
    log_in(browser, recorded, recorded.token)
    wait_until(lambda: browser.current_url == recorded.address + "/", "the page opens")
    said = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "const values = [2, 2, 2, 0, 0, 0, 0, 0, 0];"
        "const history = {begin: 1000, step_s: 10, at: 1090, captures: [], watched: values.map(() => 1),"
        " stalls: [{begin: 1030, end: 1090, goes_on: true}]};"
        "import('/static/time_axis_words.js').then(({summary}) =>"
        " done(summary(history, 'the last hour', {values, times: 1, short: 'steps/s'})));"
    )
    assert (
        said
        == "In the last hour: usually 2 steps/s; 1 stall, 60 s in all; no capture. Times are UTC."
    )


def drawn(page: Any, name: str) -> None:
    soon(page, "axis-summary", lambda t: name in t)
    line, stall, away, numbers, everything = page.execute_script(
        "return ['.line', '.stall', '.away', '.number', '*'].map(s =>"
        " document.querySelectorAll(`#axis-picture ${s}`).length)"
    )
    assert (line, stall) == (1, 1) and away >= 1 and numbers >= 5
    assert everything < 120, "whatever the span, the picture stays small"
    [mark] = page.find_elements("css selector", "#axis-marks a")
    assert mark.get_attribute("href").endswith("/report")
    pressed = page.find_elements("css selector", "#spans [aria-pressed=true]")
    assert len(pressed) == 1


def point(page: Any, share: float) -> None:
    page.execute_script(
        "const o = document.getElementById('axis-cursor'), b = o.getBoundingClientRect();"
        "o.dispatchEvent(new PointerEvent('pointermove',"
        " {clientX: b.left + 46 + arguments[0] * (b.width - 58), clientY: b.top + 40}))",
        share,
    )


def test_pointing_says_the_values_and_covers_nothing(page: Any) -> None:
    point(page, 1 - 600 / 3600)
    told = text(page, "axis-tip")
    assert "steps/s" in told and "a step)" in told and told.count("UTC") == 1
    point(page, 1 - (HANG[0] + HANG[1]) / 2 / 3600)
    assert "no step; stalled for 3 min" in text(page, "axis-tip").replace("180 s", "3 min")
    point(page, 1 - (AWAY[0] + AWAY[1]) / 2 / 3600)
    assert "not watched" in text(page, "axis-tip")
    gap = page.execute_script(
        "const box = (id) => document.getElementById(id).getBoundingClientRect();"
        "return box('axis-tip').top - box('axis-picture').bottom"
    )
    assert gap >= -1
    assert page.execute_script("return document.querySelectorAll('#axis [title]').length") == 0


def test_keys_move_in_time_and_the_values_are_accessible(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    slider = page.find_element("id", "axis-cursor")
    slider.send_keys(Keys.END)
    last = int(slider.get_attribute("aria-valuenow"))
    assert last == int(slider.get_attribute("aria-valuemax")) == 359
    press(page, Keys.ARROW_LEFT, Keys.PAGE_UP)
    assert int(slider.get_attribute("aria-valuenow")) == last - 11
    press(page, Keys.HOME)
    assert slider.get_attribute("aria-valuenow") == "0"
    assert slider.get_attribute("aria-valuetext") == text(page, "axis-tip") != ""
    press(page, Keys.ESCAPE)
    assert text(page, "axis-tip") == text(page, "axis-summary")
    page.find_element("css selector", "#axis-table summary").click()
    rows = soon(page, "axis-rows", lambda t: "stalled" in t)
    assert "captured" in rows and "HANG" in rows and "not watched" not in rows.splitlines()[0]


def test_a_mark_says_its_captures_and_keeps_the_focus(page: Any) -> None:
    mark = page.find_element("css selector", "#axis-marks a")
    page.execute_script("arguments[0].focus()", mark)
    assert "captured" in text(page, "axis-tip") and "HANG" in text(page, "axis-tip")
    left = mark.value_of_css_property("left")
    wait_until(lambda: mark.value_of_css_property("left") != left, "the axis moves on")
    assert page.switch_to.active_element == mark and "captured" in text(page, "axis-tip")


def test_all_times_are_of_one_zone_and_say_which(page: Any) -> None:
    page.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    try:
        page.refresh()
        soon(page, "axis-summary", lambda t: "Times are UTC." in t)
        assert "times are UTC, as in the reports" in soon(page, "foot", lambda t: "times" in t)
        page.find_element("id", "zone").click()
        soon(page, "axis-summary", lambda t: "Times are UTC+5:30." in t)
        point(page, 0.9)
        shown = [text(page, id) for id in ("axis-tip", "incidents", "axis-summary")]
        times = " ".join(shown)
        assert "UTC+5:30" in times and "UTC " not in times.replace("UTC+5:30", "")
        assert "UTC+5:30, your local time" in text(page, "foot")
        page.find_element("id", "zone").click()
        soon(page, "axis-summary", lambda t: "Times are UTC." in t)
        assert "+5:30" not in text(page, "incidents")
    finally:
        page.execute_script("localStorage.clear()")
        page.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_an_empty_axis_says_so(browser: Any, tmp_path: Path) -> None:
    with LiveJob(tmp_path, world=0) as live:
        told = history(live, "7d")
        assert set(told["watched"][:-1]) == {0.0} and told["captures"] == []
        log_in(browser, live, live.token)
        soon(browser, "axis-none", lambda t: "Nothing has been recorded" in t or t == "")


@pytest.mark.parametrize("world", [8, 16_384])
def test_the_axis_of_a_large_job_is_as_small(tmp_path: Path, world: int) -> None:
    """What is asked for each few seconds, and drawn, depends on the span and not on the ranks."""
    with LiveJob(tmp_path, world=0) as live, ScriptedAgent(live, "n1", world) as n1:
        for first in range(0, world, 2048):
            n1.report([moving(r, 7) for r in range(first, min(world, first + 2048))])
        wait_until(lambda: n1.beat() and any(history(live)["alive"]), "it is recorded")
        assert len(live.request("/api/v1/history")[2]) < 8000


def test_a_real_job_is_recorded_and_a_restart_keeps_it(browser: Any, tmp_path: Path) -> None:
    with LiveJob(tmp_path, world=2) as live:
        wait_until(
            lambda: any(rate and rate > 0 for rate in history(live)["steps"]), "steps are counted"
        )
        log_in(browser, live, live.token)
        young = soon(browser, "axis-summary", lambda t: "usually" in t)
        assert "recorded since" in young and "step" in young
        assert 12 <= buckets(browser) < 60, "not the whole hour: it has only begun"
        before = history(live)
        assert max(before["moved"]) > 0 and before["stalls"] == []
        collector = live.processes["collector"]
        collector.send_signal(signal.SIGTERM)
        collector.wait(timeout=30)
        path = live.folder / FILE
        assert path.stat().st_mode & 0o777 == 0o600 and path.stat().st_size < 64 << 10
        live.start(
            "collector",
            "-m",
            "hangdoctor",
            "collect",
            "--folder",
            str(live.folder),
            "--bind",
            "tcp://127.0.0.1:*",
            "--web",
            "127.0.0.1:0",
        )
        wait_until((live.folder / "web.json").exists, "the page is there")
        live.read_address()
        old = [i for i, share in enumerate(before["watched"]) if share]
        at = {before["begin"] + i * before["step_s"] for i in old}
        again = history(live)
        there = {again["begin"] + i * again["step_s"] for i, w in enumerate(again["watched"]) if w}
        assert at <= there and again["since"] == before["since"]
        log_in(browser, live, live.token)
        told = soon(browser, "axis-summary", lambda t: "usually" in t)
        assert young.split("since ")[1][:8] == told.split("since ")[1][:8]


def buckets(browser: Any) -> int:
    slider = browser.find_element("id", "axis-cursor")
    return int(slider.get_attribute("aria-valuemax")) + 1
