"""Makes the pictures of docs/images: each from a run of its own, in a headless Chromium.

Started by scripts/screenshots.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from live_pictures import live, top

from benchmarks.report_html.large import capture
from hangdoctor.cli import demo
from hangdoctor.cli.run import prepare
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.layout import Layout
from hangdoctor.storage import bundle
from tests.support.chromium import Browser, missing

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 880


def hangdoctor(*arguments: str) -> None:
    """Run the program quietly.

    Raises:
        CalledProcessError: it failed.
    """
    subprocess.run(
        [sys.executable, "-m", "hangdoctor", *arguments], check=True, stdout=subprocess.DEVNULL
    )


def report(browser: Browser, here: Path) -> None:
    """The demo's job with the black box: eight ranks, one asleep in a tensor-parallel all_reduce;
    light and dark.
    """
    os.environ["HANGDOCTOR_DIR"] = str(here / "boxes")
    prepare(os.environ)
    with demo.running_job(demo._command(None, "", 8), str(here)) as job:
        demo._wait_for_fault(job, demo.follow(job), 200)
        hangdoctor("dump", "--local", "--job", demo._rest(100), "--bundle", str(here / "kept"))
    hangdoctor("report", str(here / "kept"), "--html", str(here / "report.html"))
    for name, dark in (("report.png", False), ("report-dark.png", True)):
        (IMAGES / name).write_bytes(
            browser.open(here / "report.html", WIDTH, HEIGHT, dark).picture(HEIGHT)
        )


def report_large(browser: Browser, here: Path) -> None:
    """1,024 ranks; simulated, since no machine of ours has them."""
    large = capture(Layout(dp=16, pp=8, tp=8))
    kept = bundle.save(
        here / "kept", large, diagnose(large), "", ["hangdoctor", "dump", "--jobid", "2180718"]
    )
    hangdoctor("report", str(kept), "--html", str(here / "report.html"))
    (IMAGES / "report-1024.png").write_bytes(
        browser.open(here / "report.html", WIDTH, 1180).picture(1180)
    )


# Name on the command line -> what makes its files.
PICTURES: dict[str, Callable[[Browser, Path], None]] = {
    "report": report,
    "report-1024": report_large,
    "live": live,
    "top": top,
}


def main() -> None:
    """Make the pictures that are named, or all."""
    names = sys.argv[1:] or list(PICTURES)
    why = missing() or ", ".join(f"no picture is called {n}" for n in names if n not in PICTURES)
    if why:
        sys.exit(f"screenshots: {why}; there are {', '.join(PICTURES)}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
                PICTURES[name](browser, Path(folder))
            print(f"screenshots: {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
