"""Find spikes in the log or the event files of a training, this trainer's or Megatron's.

    python -m hangdoctor.train.spikes LOG|EVENTS... [--window N] [--threshold X] [--json FILE|-]

A loss or gradient norm that is --threshold deviations above the median of the points before it; a
loss or norm that is not finite; a loss scale (fp16) that has slid to an eighth. "on": it was not over
when the data ended, or the new level stayed. warm-up: iterations after its end.
Exit codes: 0 none found, 10 spikes, 1 nothing could be read, 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

from ..options import ConfigError
from ..output import write_json
from .read import points
from .watch import Spike, Watch
from .words import sentence, table

FOUND = 10
_SCHEMA = "hangdoctor.spikes/1"


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m train.spikes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "sources",
        type=Path,
        nargs="+",
        metavar="LOG|EVENTS",
        help="in the order of the training: logs, event files, or folders of event files",
    )
    add("--window", type=int, default=50, metavar="N", help="points to compare with (default 50)")
    add("--threshold", type=float, default=6.0, metavar="X", help="in deviations (default 6)")
    add("--json", metavar="FILE|-", help="write what was found as JSON")
    options = parser.parse_args(argv)
    if options.window < 10 or not options.threshold > 0:
        parser.error("--window takes 10 or more points, --threshold a number above 0")
    return options


def plain(spike: Spike) -> dict[str, Any]:
    """JSON has no NaN and no infinity: they are words in it."""
    row = {**dataclasses.asdict(spike), "says": sentence(spike)}
    for name in ("value", "usual", "score"):
        if not math.isfinite(row[name]):
            row[name] = str(row[name])
    return row


def main(argv: list[str] | None = None) -> int:
    """Read and print; the exit code says whether there is a spike."""
    options = parsed(argv)
    watch = Watch(options.window, options.threshold)
    try:
        for source in options.sources:
            for point in points(source):
                watch.add(point)
        if options.json:
            found = [plain(spike) for spike in watch.spikes]
            data = {"points": watch.points, "warm_up_end": watch.warm_up.end, "spikes": found}
            write_json(options.json, {"schema": _SCHEMA, **data})
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json != "-":
        if watch.spikes:
            print("\n".join(table(watch.spikes)))
        print(f"{watch.points} points, {len(watch.spikes)} spikes")
    return FOUND if watch.spikes else 0


if __name__ == "__main__":
    sys.exit(main())
