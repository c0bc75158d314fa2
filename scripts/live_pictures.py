"""The pictures of the live page and of `top`: a real 8-rank training with one rank asleep, watched
by a real sidecar.
"""

from __future__ import annotations

import contextlib
import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from picture_runs import IMAGES, PYTHON, ROOT, fault_of, ready, soon, started
from rich.console import Console
from rich.text import Text

from hangdoctor.web.page_address import Published, published

_COLUMNS, _ROWS = 96, 24
_FAULT = "sleep@5:60"  # late enough for the page to have some progress on its axis
_TABLE_S = 1.5  # a frame of the page or two
_SIZES = (
    ("live", 1280, 1010, False),
    ("live-dark", 1280, 1010, True),
    ("live-phone", 390, 1500, False),
)


@contextlib.contextmanager
def watched(here: Path) -> Iterator[Published]:
    """A job and its sidecar, which has captured the hang by itself."""
    folder = here / "s"
    with started(here, _FAULT) as job:
        command = [*PYTHON, "sidecar", "--local", "--job", ready(job), "--folder", str(folder)]
        with (here / "sidecar.log").open("wb") as log:
            sidecar = subprocess.Popen(
                [*command, "--web", "0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            soon(lambda: published(folder) is not None, "the page")
            fault_of(job)
            soon(lambda: any((folder / "incidents").glob("*/diagnosis.json")), "an incident")
            found = published(folder)
            assert found is not None
            yield found
        finally:
            sidecar.send_signal(signal.SIGTERM)
            sidecar.wait(timeout=30)


def live(browser: Any, here: Path) -> None:
    """The page, light, dark and on a phone; and `top` beside it."""
    with watched(here) as told:
        log_in(browser, told)
        soon(lambda: browser.text("#pill") == "HANG", "the verdict of the hang")
        browser.find("#capture").click()
        soon(lambda: "captured 2 times" in browser.text("#history"), "a second capture")
        for name, width, height, dark in _SIZES:
            log_in(browser, told, width, height, dark)
            soon(lambda: browser.text("#axis-summary") != "", "the time axis")
            time.sleep(_TABLE_S)
            (IMAGES / f"{name}.png").write_bytes(browser.picture(height))
        (IMAGES / "top.svg").write_text(top(here))


def log_in(
    browser: Any, told: Published, width: int = 1280, height: int = 900, dark: bool = False
) -> None:
    """Open the page in this size and theme."""
    browser.open(ROOT / "hangdoctor" / "web" / "static" / "icon.svg", width, height, dark)
    browser.driver.get(told.address + "/")
    if browser.driver.current_url.endswith("/login"):
        browser.find("#token").send_keys(told.token)
        browser.find("form button").click()
    soon(lambda: "8 ranks" in browser.text("#scale"), "the grid")


def top(here: Path) -> str:
    """`top` in a real tmux, as SVG."""
    tmux = ["tmux", "-f", "/dev/null", "-S", str(here / "tmux")]

    def screen() -> str:
        shown = [*tmux, "capture-pane", "-e", "-p", "-t", "t"]
        return subprocess.run(shown, check=True, capture_output=True, text=True).stdout

    server = subprocess.Popen([*tmux, "-D"])
    try:
        soon((here / "tmux").exists, "tmux")
        program = " ".join([*PYTHON, "top", "--folder", str(here / "s")])
        size = ["-x", str(_COLUMNS), "-y", str(_ROWS)]
        session = [*tmux, "new-session", "-d", "-s", "t", *size, program]
        soon(lambda: subprocess.run(session).returncode == 0, "a session of tmux")
        soon(lambda: "outside" in screen(), "a rank that is in no operation")
        return as_svg(screen())
    finally:
        server.terminate()
        server.wait(timeout=20)


def as_svg(screen: str) -> str:
    """A screen with its colours; nothing in it is loaded from elsewhere."""
    console = Console(
        record=True,
        width=_COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text.from_ansi(screen.rstrip("\n")), no_wrap=True, crop=True)
    svg = console.export_svg(title="hangdoctor top")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    return svg.replace("Fira Code", "DejaVu Sans Mono")


if __name__ == "__main__":
    sys.exit("screenshots: start scripts/screenshots")
