"""axe finds nothing, and every text has a contrast of 4.5:1, in every state of the page and in both themes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.watch.rank_states import CAUSE, TABLE
from tests.support import axe
from tests.support.incidents import keep
from tests.support.livejob import LiveJob
from tests.support.onpage import log_in, soon, text
from tests.support.recorded import HANG, record
from tests.support.scripted_agent import ScriptedAgent, outside, over, waiting
from tests.support.stage import wait_until

STATIC = Path(__file__).parents[2] / "hangdoctor" / "web" / "static"
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        axe.script() is None, reason="needs axe-core: scripts/setup-web installs it"
    ),
]


@pytest.fixture
def paged(browser: Any, tmp_path: Path) -> Iterator[LiveJob]:
    """A collector with a week and two incidents behind it, and its page open in the browser."""
    record(tmp_path / "job", time.time())
    keep(tmp_path, HANG[0] - 5)
    keep(tmp_path, 20.0)
    with LiveJob(tmp_path, world=0, more=("--stall-after", "3600")) as live:
        log_in(browser, live, live.token)
        wait_until(lambda: browser.current_url == live.address + "/", "the page opens")
        yield live
        set_theme(browser, "light")


def set_theme(browser: Any, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def clean(browser: Any, state: str) -> None:
    for theme in ("light", "dark"):
        set_theme(browser, theme)
        assert axe.findings(browser) == [], f"{state}, {theme}"


def test_axe_finds_what_is_wrong(browser: Any, paged: LiveJob) -> None:
    """The check itself: grey on grey and a picture without a name."""
    browser.execute_script(
        "const p = document.createElement('p'); p.textContent = 'pale'; p.style.color = '#aaa';"
        "p.style.background = '#bbb'; document.querySelector('main').append(p, new Image())"
    )
    found = " ".join(axe.findings(browser))
    assert "color-contrast" in found and "image-alt" in found


def test_login_and_the_page_before_a_job(browser: Any, paged: LiveJob) -> None:
    soon(browser, "sentence", lambda t: t.startswith("No agent"))
    clean(browser, "no agent")
    with ScriptedAgent(paged, "n1", 0, ""):
        soon(browser, "sentence", lambda t: t.startswith("No rank"))
        clean(browser, "no rank")
    browser.delete_all_cookies()
    browser.get(paged.address + "/login")
    clean(browser, "login")
    browser.find_element("id", "token").send_keys("wrong")
    browser.find_element("css selector", "form button").click()
    wait_until(lambda: browser.find_elements("css selector", "[role=alert]") != [], "it was wrong")
    clean(browser, "wrong token")


def test_a_hang_with_everything_open(browser: Any, paged: LiveJob) -> None:
    with ScriptedAgent(paged, "n1", 8) as n1:
        n1.report([outside(r, 60.0) if r == 5 else waiting(r, 60.0) for r in range(8)])
        soon(browser, "pill", lambda t: t == "HANG")
        soon(browser, "axis-summary", lambda t: "stall" in t)
        clean(browser, "hang")
        browser.find_element("css selector", "#axis-table summary").click()
        browser.find_element("css selector", "#standing .pick").click()
        browser.execute_script("document.getElementById('grid').focus()")
        from selenium.webdriver.common.keys import Keys

        browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
        soon(browser, "rank", lambda t: "node" in t)
        n1.beat()
        clean(browser, "hang, rank and table open")
        box = browser.find_element("id", "filter")
        box.clear()
        box.send_keys("nonesuch")
        soon(browser, "empty", lambda t: "No rank matches" in t)
        clean(browser, "no match")


def test_missing_agents_an_end_and_a_lost_connection(browser: Any, paged: LiveJob) -> None:
    with ScriptedAgent(paged, "n1", 8) as n1:
        n1.report([waiting(r) for r in range(4)])
        wait_until(lambda: n1.beat() and "No agent has seen" in text(browser, "banner"), "who")
        clean(browser, "agents missing")
        n1.report([over(r, r != 5) for r in range(8)])
        soon(browser, "pill", lambda t: t == "ENDED")
        clean(browser, "ended")
        paged.processes["collector"].kill()
        soon(browser, "banner", lambda t: "No connection" in t)
        clean(browser, "connection lost")


@pytest.mark.parametrize("width", [390, 700, 860])
def test_narrow_screens(browser: Any, paged: LiveJob, width: int) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    with ScriptedAgent(paged, "n1", 8) as n1:
        n1.report([outside(r, 60.0) if r == 5 else waiting(r, 60.0) for r in range(8)])
        soon(browser, "pill", lambda t: t == "HANG")
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        try:
            clean(browser, f"{width} pixels")
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# ----------------------------------------------------------------- what axe cannot see: the canvas


def luminance(colour: str) -> float:
    """As WCAG 2 has it (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_letters_on_tiles_have_a_contrast_of_4_5() -> None:
    assert contrast("#ffffff", "#ec6440") < 4.5 < contrast("#000000", "#ffffff")
    paints = {state.name: state.paint for state in TABLE} | {"cause": CAUSE}
    for name, paint in paints.items():
        assert contrast(paint.light, paint.light_ink) >= 4.5, f"{name}, light"
        assert contrast(paint.dark, paint.dark_ink) >= 4.5, f"{name}, dark"


def test_numbers_stay_readable_where_colour_shows_iteration_or_lag() -> None:
    """There half of a tile's colour at most is the cause's, and numbers are in the page's ink."""
    unseen = TABLE[0].paint
    inks = re.findall(r"--ink: (#\w+);", (STATIC / "live.css").read_text())
    assert len(inks) == 2
    for ink, plain, strong in zip(
        inks, (unseen.light, unseen.dark), (CAUSE.light, CAUSE.dark), strict=True
    ):
        assert contrast(plain, ink) >= 4.5 and contrast(half(plain, strong), ink) >= 4.5


def half(one: str, other: str) -> str:
    pairs = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{(a + b) // 2:02x}" for a, b in pairs)
