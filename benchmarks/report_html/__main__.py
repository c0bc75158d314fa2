"""The HTML report of a large job: seconds of `hangdoctor report --html`, start to end, and the size
of the page.

    python -m benchmarks.report_html [--rounds 5] [--keep FOLDER]

1,024 ranks on 128 nodes, dp 16 x pp 8 x tp 8, 50 operations, nine threads and py-spy's output of
every rank. Beside it the same command with --json, which reads and diagnoses the same bundle and
writes no page: the difference is the page's own share.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.progress import say
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.layout import Layout
from hangdoctor.storage import bundle

from .large import capture


def timed(folder: Path, *flags: str) -> float:
    """Seconds of one `hangdoctor report`."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "hangdoctor", "report", str(folder), "--quiet", *flags], check=True
    )
    return time.perf_counter() - begin


def main() -> None:
    """Measure in turns, and print seconds and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--layout", type=int, nargs=3, default=(16, 8, 8), metavar=("DP", "PP", "TP")
    )
    parser.add_argument("--kind", default="not_entered")
    parser.add_argument("--keep", type=Path, help="keep the bundle and the page here")
    args = parser.parse_args()
    layout = Layout(*args.layout)
    with tempfile.TemporaryDirectory() as name:
        where = args.keep or Path(name)
        say(f"making a bundle of {layout.world_size:,} ranks")
        large = capture(layout, args.kind)
        folder = bundle.save(
            where / "bundle",
            large,
            diagnose(large),
            "",
            ["hangdoctor", "dump", "--jobid", "2180718"],
        )
        page = where / "report.html"
        both = []
        for i in range(args.rounds):
            say(f"round {i + 1} of {args.rounds}")
            both.append((timed(folder, "--html", str(page)), timed(folder, "--json", os.devnull)))
        print(
            f"{layout.world_size:,} ranks, {args.kind}, load {os.getloadavg()[0]:.1f}, {args.rounds} rounds: median (least - most)"
        )
        for what, values in (
            ("report --html", [h for h, _ in both]),
            ("report --json", [j for _, j in both]),
        ):
            print(
                f"  {what:<15} {statistics.median(values):6.2f} s  ({min(values):.2f} - {max(values):.2f})"
            )
        print(
            f"  the page        {page.stat().st_size / 1e6:6.2f} MB; the bundle's capture {(folder / 'capture.json').stat().st_size / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()
