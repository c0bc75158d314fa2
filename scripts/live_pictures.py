"""The pictures of the live page and of `top`: a real 8-rank training with one rank asleep, watched
by a real sidecar.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hangdoctor.cli import demo
from hangdoctor.cli.run import prepare
from hangdoctor.web.page_address import Published, published

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
_COLUMNS, _ROWS = 96, 24


@contextlib.contextmanager
def watched(here: Path) -> Iterator[Published]:
    """The demo's job and its sidecar, from before the fault until a capture has named it."""
    os.environ["HANGDOCTOR_DIR"] = str(here / "boxes")
    prepare(os.environ)
    with demo.running_job(demo._command(None, "", 8), str(here)) as job:
        command = [
            sys.executable,
            "-m",
            "hangdoctor",
            "sidecar",
            "--local",
            "--job",
            demo._RUN_ID,
            "--folder",
            str(here / "s"),
            "--web",
            "0",
        ]
        with (here / "sidecar.log").open("wb") as log:
            sidecar = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            demo._wait_for_fault(job, demo.follow(job), 200)
            demo._rest(100)
            soon(lambda: published(here / "s") is not None, "the page")
            found = published(here / "s")
            assert found is not None
            yield found
        finally:
            sidecar.send_signal(signal.SIGTERM)
            sidecar.wait(timeout=30)


def soon(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    """Return once `condition` holds.

    Raises:
        TimeoutError: it did not within `seconds`.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come: {what}")
        time.sleep(0.2)


def log_in(browser: Any, told: Published, width: int, height: int, dark: bool) -> None:
    """Open the page with its token, and return when it shows the ranks."""
    browser.open(ROOT / "hangdoctor" / "web" / "static" / "icon.svg", width, height, dark)
    browser.driver.get(told.address + "/login")
    if browser.driver.current_url.endswith("/login"):
        browser.find("#token").send_keys(told.token)
        browser.find("form button").click()
    soon(lambda: "8 ranks" in browser.text("#scale"), "the grid")


def live(browser: Any, here: Path) -> None:
    """The page, light, dark and on a phone."""
    with watched(here) as told:
        log_in(browser, told, 1280, 720, False)
        soon(lambda: "wait" in browser.text("#sentence"), "who waits")
        browser.find("#capture").click()
        soon(lambda: "Captured: Rank" in browser.text("#note"), "the verdict")
        for name, width, height, dark in (
            ("live", 1280, 720, False),
            ("live-dark", 1280, 720, True),
            ("live-phone", 390, 844, False),
        ):
            if name != "live":  # that one shows the verdict that was just asked for
                log_in(browser, told, width, height, dark)
            time.sleep(1.5)  # a frame or two more
            (IMAGES / f"{name}.png").write_bytes(browser.picture(height if width > 600 else 1500))


def top(browser: Any, here: Path) -> None:
    """`top` in a real tmux, as SVG."""
    tmux = ["tmux", "-f", "/dev/null", "-S", str(here / "tmux")]
    with watched(here) as told:
        server = subprocess.Popen([*tmux, "-D"])
        try:
            soon((here / "tmux").exists, "tmux")
            time.sleep(1)
            program = f"{sys.executable} -m hangdoctor top --folder {here / 's'}"
            subprocess.run(
                [
                    *tmux,
                    "new-session",
                    "-d",
                    "-s",
                    "t",
                    "-x",
                    str(_COLUMNS),
                    "-y",
                    str(_ROWS),
                    program,
                ],
                check=True,
            )

            def screen() -> str:
                return subprocess.run(
                    [*tmux, "capture-pane", "-e", "-p", "-t", "t"],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout

            soon(lambda: "wait" in screen(), f"who waits, at {told.address}")
            time.sleep(1)
            subprocess.run([*tmux, "send-keys", "-t", "t", "c"], check=True)
            soon(
                lambda: "never reached" in screen() or "Rank" in screen().splitlines()[-4],
                "the verdict",
            )
            time.sleep(2)
            picture(screen(), IMAGES / "top.svg")
        finally:
            server.terminate()
            server.wait(timeout=20)


def picture(screen: str, path: Path) -> None:
    """Save the text of a terminal, with its colours, as a picture."""
    console = Console(
        record=True,
        width=_COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text.from_ansi(screen.rstrip("\n")), no_wrap=True, crop=True)
    svg = console.export_svg(title="hangdoctor top")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S).replace(
        "Fira Code", "DejaVu Sans Mono"
    )  # nothing is loaded from elsewhere
    path.write_text(svg)
