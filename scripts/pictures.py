"""Makes the pictures of docs/images: each from a run of its own, in a headless Chromium.

Started by scripts/screenshots.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from live_pictures import live
from picture_runs import IMAGES, PYTHON, fault_of, from_a_copy, ready, started, stragglers_of

from benchmarks.report_html.large import capture
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.layout import Layout
from hangdoctor.storage import bundle
from tests.support.chromium import Browser, missing

WIDTH, HEIGHT, LARGE_HEIGHT = 1280, 880, 1180
DUMPS = 5  # at most


def hangdoctor(*arguments: str) -> str:
    """Run a command; what it printed."""
    return subprocess.run(
        [*PYTHON, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def report(browser: Browser, here: Path) -> None:
    """The demo's job: eight ranks, one asleep in a tensor-parallel all_reduce; light and dark."""
    with started(here, "sleep@5:6") as job:
        key = ready(job)
        fault_of(job)
        _dump_all(key, here / "kept")
    hangdoctor("report", str(here / "kept"), "--html", str(here / "report.html"))
    for name, dark in (("report.png", False), ("report-dark.png", True)):
        shown = browser.open(here / "report.html", WIDTH, HEIGHT, dark)
        (IMAGES / name).write_bytes(shown.picture(HEIGHT))


def _dump_all(key: str, kept: Path) -> None:
    """Dump until all evidence was read in time: without black boxes a report has no layout."""
    dump = ["dump", "--local", "--job", key, "--timeout", "120", "--bundle", str(kept)]
    for _ in range(DUMPS):
        shutil.rmtree(kept, ignore_errors=True)
        hangdoctor(*dump)
        if json.loads((kept / "diagnosis.json").read_text())["job"]["layout"]:
            return
    sys.exit("screenshots: this machine is too busy to read the black boxes in time")


def report_large(browser: Browser, here: Path) -> None:
    """1,024 ranks; simulated, since no machine of ours has them."""
    large = capture(Layout(dp=16, pp=8, tp=8))
    command = ["hangdoctor", "dump", "--jobid", "2180718"]
    kept = bundle.save(here / "kept", large, diagnose(large), "", command=command)
    hangdoctor("report", str(kept), "--html", str(here / "report.html"))
    shown = browser.open(here / "report.html", WIDTH, LARGE_HEIGHT)
    (IMAGES / "report-1024.png").write_bytes(shown.picture(LARGE_HEIGHT))


def stragglers(browser: Browser, here: Path) -> None:
    """The trainer with a rank that is slow from iteration 20 on, to its end; the table is printed."""
    boxes = stragglers_of(here)
    table = hangdoctor("trace", "stragglers", str(boxes), "--svg", str(IMAGES / "stragglers.svg"))
    print(table, file=sys.stderr)


class Picture(NamedTuple):
    """The files that one run makes."""

    make: Callable[[Browser, Path], None]
    files: tuple[str, ...]


PICTURES = {
    "report": Picture(report, ("report.png", "report-dark.png")),
    "report-1024": Picture(report_large, ("report-1024.png",)),
    "live": Picture(live, ("live.png", "live-dark.png", "live-phone.png", "top.svg")),
    "stragglers": Picture(stragglers, ("stragglers.svg",)),
}


def main() -> None:
    """Make those that the command line names, or all; `--list` prints their files."""
    if sys.argv[1:] == ["--list"]:
        print("\n".join(name for picture in PICTURES.values() for name in picture.files))
        return
    names = sys.argv[1:] or list(PICTURES)
    unknown = ", ".join(f"no picture is called {name}" for name in names if name not in PICTURES)
    why = missing() or unknown
    if why:
        sys.exit(f"screenshots: {why}; there are {', '.join(PICTURES)}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with from_a_copy(), Browser() as browser:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
                PICTURES[name].make(browser, Path(folder))
            print(f"screenshots: {', '.join(PICTURES[name].files)}", file=sys.stderr)


if __name__ == "__main__":
    main()
