"""The HTML report in a real browser, of a real hung job: what is seen, clicked, typed, printed; and
what a hostile job cannot do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from benchmarks.report_html.large import capture
from hangdoctor.cli.run import prepare
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.layout import Layout
from hangdoctor.report.html import as_bytes
from hangdoctor.storage import bundle
from tests.support.chromium import Browser
from tests.support.hostile import everywhere
from tests.support.stage import JOB, Stage, hangdoctor, wait_until

LONG = "x" * 3000  # py-spy refuses names of 4,096 characters and more
NAMES = (
    "</script><script>window.pwned=1</script>",
    '"onload="window.pwned=1" autofocus onfocus="window.pwned=1',
    "<img/src=x/onerror=window.pwned=1>",
    "{{7*7}}<!--<script>",
    "load_\u202ehctab\u202c_good",
    LONG,
)
# A chain of functions, each called by the one before it, with names that no source could have.
HOSTILE = textwrap.dedent("""
    import json, os, sys, threading, time
    def stand(inner):
        return inner()
    def sleep():
        open(sys.argv[2], "w").close()
        time.sleep(3600)
    call = sleep
    for name in json.loads(sys.argv[1]):
        code = stand.__code__.replace(co_name=name)
        if hasattr(code, "co_qualname"):
            code = code.replace(co_qualname=name)
        named = type(stand)(code, globals(), name)
        call = (lambda f, g: lambda: f(g))(named, call)
    threading.current_thread().name = "<svg onload=window.pwned=1>"
    call()
""")


def report(folder: Path, page: Path) -> Path:
    hangdoctor("report", str(folder), "--html", str(page), cwd=page.parent)
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight gloo ranks with black boxes, their calls traced, rank 3 asleep; captured by `dump`,
    shown by `report`.
    """
    here = tmp_path_factory.mktemp("seen")
    environ = {
        "HANGDOCTOR_DIR": str(here / "boxes"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    prepare(environ)
    with Stage(here / "job", environ=environ) as job:
        job.wait_ready()
        hangdoctor(
            "trace",
            "start",
            "--follow",
            "stage",
            "--wait",
            "60",
            "--folder",
            str(here / "boxes"),
            cwd=here,
        )
        job.play("sleep", 3)
        once = ("--settle", "1")  # a sleeping rank is else looked at again
        kept = ("--bundle", str(here / "kept"))
        hangdoctor("dump", "--local", "--job", job.key, *once, *kept, cwd=here)
    return report(here / "kept", here / "report.html")


@pytest.fixture
def seen(browser: Browser, page: Path) -> Iterator[Browser]:
    """The page freshly opened; afterwards it has asked for nothing but itself, and the console is
    empty.
    """
    browser.open(page)
    yield browser
    assert browser.requests() == [page.as_uri()]
    assert browser.console() == []


def marked(browser: Browser, selector: str) -> list[int]:
    return [
        int(n)
        for n in browser.js(
            "return [...document.querySelectorAll(arguments[0])].map(c => c.dataset.r)", selector
        )
    ]


def focused(browser: Browser) -> str:
    return str(browser.js("const e = document.activeElement; return e.dataset.r ?? e.id"))


def test_the_sentence_comes_first_and_the_culprit_is_marked(seen: Browser) -> None:
    assert "Rank 3" in seen.text("h1") and "all_reduce" in seen.text("h1")
    assert seen.text(".pill") == "Hang"
    assert marked(seen, ".grid:not([hidden]) .c.cause") == [3]
    assert sorted(marked(seen, ".grid:not([hidden]) .c.wait:not(.cause)")) == [0, 1, 2, 4, 5, 6, 7]
    # Not by colour alone: a sign in the cell, words for who listens.
    assert "◆" in seen.js(
        "return getComputedStyle(document.querySelector('.c.cause'), '::after').content"
    )
    assert "culprit" in seen.js("return document.querySelector('[data-r=\"3\"]').ariaLabel")
    assert "rank 3" in seen.text("svg.waits .cause") and "0-2" in seen.text("svg.waits")
    row = seen.js(
        "return [...document.querySelectorAll('.lane tr.cause .m')].map(m => m.className)"
    )
    assert row[-1] == "m not" and row[0] == "m left"


def test_pointing_clicking_and_arrows_show_a_rank(seen: Browser) -> None:
    assert "Rank 3" in seen.text("#details") and "sleep" in seen.text("#details .stack li")
    seen.find('[data-r="6"]').click()
    assert "Rank 6" in seen.text("#details h3") and "all_reduce" in seen.text("#details")
    assert "waits for3" in seen.text("#details table")
    assert marked(seen, ".c.peer") == [3]
    seen.keys(Keys.ARROW_LEFT)
    assert focused(seen) == "5" and "Rank 5" in seen.text("#details h3")
    seen.keys(Keys.HOME, "c")
    assert focused(seen) == "3"
    seen.js(
        "document.querySelector('[data-r=\"0\"]').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
    )
    assert "Rank 0" in seen.text("#details h3")
    seen.js("document.querySelector('.grid').dispatchEvent(new MouseEvent('mouseleave'))")
    assert "Rank 3" in seen.text("#details h3")


def test_the_last_calls_of_the_culprit_stand_beside_those_of_a_healthy_rank(seen: Browser) -> None:
    assert seen.text("#calls h2") == "Last Python calls, and where they differ"
    assert seen.find("nav a[href='#calls']").is_displayed()
    assert "events, until they returned from say (jobs/stage.py:" in seen.text("#calls .alike")
    culprit, peer = seen.all("#calls article")
    assert culprit.accessible_name.split() == ["Rank", "3", "culprit"]
    assert "for comparison" in peer.accessible_name and "◆" in culprit.text and "◆" not in peer.text
    assert (
        "called sleep (jobs/stage.py:" in culprit.text
        and "called step (jobs/stage.py:" in peer.text
    )
    inside = seen.js(
        "return [...arguments[0].querySelectorAll('.inside li')].map(e => e.textContent)", culprit
    )
    assert inside[-1].startswith("sleep (jobs/stage.py:") and any(
        line.startswith("play (") for line in inside
    )
    assert seen.js(
        "return [...document.querySelectorAll('.evidence .source')].some(e => e.textContent == 'Python calls')"
    )
    boxes = seen.js(
        "return [...document.querySelectorAll('#calls article')].map(e => e.getBoundingClientRect().left)"
    )
    assert boxes[0] < boxes[1], "side by side where there is room"


def test_on_a_phone_the_two_stand_below_one_another(browser: Browser, page: Path) -> None:
    browser.open(page, width=390, height=844)
    fork = "return [...document.querySelectorAll('#calls article')].map(e => getComputedStyle(e, '::before').display)"
    assert browser.js(fork) == ["block", "none"]
    lefts = browser.js(
        "return [...document.querySelectorAll('#calls article')].map(e => e.getBoundingClientRect().left)"
    )
    assert lefts[0] == lefts[1]


def test_search_by_keyboard_finds_frames_and_ranks(seen: Browser) -> None:
    seen.keys("/")
    assert focused(seen) == "q"
    seen.keys("time.sleep")
    assert seen.text("#found") == "no match"
    seen.js("document.getElementById('q').value = ''")
    asleep = 2 + JOB.read_text().splitlines().index(
        "def sleep(n):"
    )  # the line in it that rank 3 stands at
    seen.keys(f"stage.py:{asleep}")
    assert marked(seen, ".c.hit") == [3] and "1 rank match" in seen.text("#found")
    assert len(seen.all("#icicle .hit")) == 1
    seen.keys(Keys.ENTER)
    assert focused(seen) == "3"
    seen.keys("/")
    seen.keys(Keys.ESCAPE)
    assert (
        seen.text("#found") == "" and marked(seen, ".c.hit") == [] and not seen.all("#icicle .hit")
    )


def test_the_stacks_open_and_close(seen: Browser) -> None:
    before = len(seen.all("#icicle svg.f"))
    guilty = seen.all("#icicle .guilty")
    assert guilty and "sleep" in guilty[-1].text
    width = guilty[-1].size["width"]
    seen.js("document.getElementById('stacks').scrollIntoView()")
    seen.js("arguments[0].focus()", guilty[-1])
    seen.keys(Keys.ENTER)
    assert seen.all("#icicle .guilty")[-1].size["width"] > 2 * width
    assert seen.js("return document.activeElement.getAttribute('aria-label')")
    seen.keys(Keys.ESCAPE, Keys.ESCAPE)
    assert len(seen.all("#icicle svg.f")) == before
    seen.find("#unfold").click()
    assert len(seen.all("#icicle svg.f")) >= before and not seen.all("#icicle .fold")


def test_copying_theme_and_raw_captures(seen: Browser) -> None:
    assert "HANG: job" in seen.js("return document.getElementById('chat').value")
    seen.cdp(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    seen.find("#copy").click()
    wait_until(lambda: seen.text("#copied") == "Copied", "the text is copied", 10)
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = seen.js(paper)
    seen.find("#theme").click()
    assert seen.js(paper) != light
    seen.find("#theme").click()
    assert seen.js(paper) == light
    seen.js("localStorage.clear(); document.getElementById('rawbox').open = true")
    wait_until(lambda: len(seen.all("#rawlist button")) == 16, "the raw files are listed", 10)
    assert json.loads(seen.text("#rawtext"))[0]["frames"]


def test_dark_phone_and_paper(browser: Browser, page: Path) -> None:
    luminance = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
    assert browser.open(page).js(luminance) > 700
    assert browser.open(page, dark=True).js(luminance) < 100
    browser.open(page, width=390, height=844)
    assert browser.js("return document.scrollingElement.scrollWidth") <= 390
    cut_off = "e => e.scrollWidth > e.clientWidth"
    parts = "[...document.querySelectorAll('.grids, #waitbox, .lane, h1')]"
    assert browser.js(f"return {parts}.filter({cut_off}).map(e => e.className)") == []
    browser.js("document.querySelector('[data-r=\"2\"]').scrollIntoView({block: 'center'})")
    browser.find('[data-r="2"]').click()
    assert "Rank 2" in browser.text("#details h3")
    pdf = browser.open(page, dark=True).paper()
    assert (
        pdf.startswith(b"%PDF")
        and pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") >= 2
        and len(pdf) > 20_000
    )
    assert browser.console() == []


def test_the_policy_refuses_foreign_scripts_and_connections(browser: Browser, page: Path) -> None:
    browser.open(page)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        browser.js(
            "const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s);"
            "document.body.insertAdjacentHTML('beforeend', `<img src='http://127.0.0.1:${arguments[0]}/' onerror='window.pwned = 1'>`);"
            "fetch(`http://127.0.0.1:${arguments[0]}/`).catch(() => { window.refused = 1 });",
            server.getsockname()[1],
        )
        wait_until(
            lambda: browser.js("return window.refused") == 1, "the connection is refused", 10
        )
        with pytest.raises(TimeoutError):
            server.accept()
    assert browser.js("return window.pwned") is None
    browser.console()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real processes whose functions have hostile names, captured and shown."""
    here = tmp_path_factory.mktemp("hostile")
    script = here / "job.py"
    script.write_text(HOSTILE)
    job = "<b onmouseover=window.pwned=1>127.0.0.1"
    started = []
    try:
        for rank in range(2):
            environ = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": job,
                "MASTER_PORT": "1",
            }
            up = here / f"up.{rank}"
            started.append(
                subprocess.Popen(
                    [sys.executable, str(script), json.dumps(NAMES), str(up)], env=environ
                )
            )
        wait_until(
            lambda: all((here / f"up.{r}").exists() for r in range(2)),
            "the hostile ranks stand still",
            30,
        )
        pids = [word for p in started for word in ("--pid", str(p.pid))]
        hangdoctor("dump", *pids, "--settle", "0.1", "--bundle", str(here / "kept"), cwd=here)
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
    return report(here / "kept", here / "report.html")


def test_a_hostile_job_neither_breaks_nor_scripts_the_page(browser: Browser, hostile: Path) -> None:
    browser.open(hostile)
    assert browser.js("return document.scripts.length") == 3
    tree = browser.text("#icicle") + browser.text("#stacks pre")
    browser.find("#unfold").click()
    tree += "".join(
        browser.js("return [...document.querySelectorAll('#icicle title')].map(t => t.textContent)")
    )
    for name in NAMES[:4]:
        assert name in tree
    assert "load_\\u{202e}hctab\\u{202c}_good" in tree and "\u202e" not in hostile.read_text()
    browser.js("document.getElementById('ranks').scrollIntoView()")  # not below the header
    for cell in browser.all(".grid:not([hidden]) .c"):
        cell.click()
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true")
    assert NAMES[0] in browser.text("#details")
    assert LONG in browser.text("#details .long") or LONG in tree
    asked = browser.requests()
    for width in (1280, 390):
        browser.open(hostile, width=width)
        assert browser.js("return document.scrollingElement.scrollWidth") <= width
        asked += browser.requests()
    attributes = browser.js(
        "return [...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).filter(a => a.name.startsWith('on')).map(a => a.name)"
    )
    assert attributes == [] and browser.js("return window.pwned") is None
    assert browser.console() == [] and asked == [hostile.as_uri()] * 3


def test_ten_thousand_characters_in_every_field_are_cut_and_harmless(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    page.write_bytes(as_bytes(*everywhere(tmp_path)))
    for width in (1280, 390):
        browser.open(page, width=width)
        assert browser.js("return document.scrollingElement.scrollWidth") <= width
        assert browser.js("return document.querySelector('h1').offsetHeight") < 1200
    browser.js(
        "for (const b of document.querySelectorAll('.c, svg.f, .box')) b.dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true")
    wait_until(lambda: "window.pwned" in browser.text("#rawtext"), "the raw file is shown", 10)
    assert (
        browser.js("return window.pwned") is None
        and browser.js("return document.scripts.length") == 3
    )
    assert browser.console() == [] and browser.requests() == [page.as_uri()]


def test_a_thousand_ranks_are_small_enough_and_the_culprit_is_seen(
    browser: Browser, tmp_path: Path
) -> None:
    layout = Layout(dp=16, pp=8, tp=8)
    large = capture(layout)
    diagnosis = diagnose(large)
    [culprit] = diagnosis.causes[0].ranks
    folder = bundle.save(tmp_path / "kept", large, diagnosis, "", ["hangdoctor", "dump"])
    data = as_bytes(large, diagnosis, folder)
    assert len(data) < 2_000_000
    page = tmp_path / "report.html"
    page.write_bytes(data)
    browser.open(page)
    assert len(browser.all(".grid:not([hidden]) .c")) == 1024
    assert len(browser.all(".grid:not([hidden]) .block")) == 8
    assert marked(browser, ".grid:not([hidden]) .c.cause") == [culprit]
    assert marked(browser, ".grid:not([hidden]) .c.miss") == list(range(1016, 1024))
    assert len(browser.all("svg.waits .box")) < 25 and len(browser.all(".lane")) <= 8
    assert browser.all("#icicle .guilty")[-1].size["width"] > 60  # one rank of a thousand
    browser.find("[data-arrange=node]").click()
    assert len(browser.all(".grid:not([hidden]) .block")) == 128
    browser.js("document.querySelector('.grid:not([hidden]) .c').focus()")
    browser.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert focused(browser) not in ("", "0", "2") and f"Rank {focused(browser)}" == browser.text(
        "#details h3"
    )
    assert browser.console() == []
