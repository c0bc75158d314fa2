"""Everything that only a GPU can show, in one command that fits a borrowed machine.

    python -m benchmarks.gpu [--minutes 7] [--only SECTION[:PART] ...] [--out gpu.json] [--add]
    python -m benchmarks.gpu --device cpu --smoke
    python -m benchmarks.gpu --render gpu.json

Five sections, the most valuable first: fingerprint (peak of matrix products, copy bandwidth), model
(the 1.3B training), kernels, hangs (hangdoctor on a GPU), parity (losses, overflow, resume). Each
has its share of the minutes. Whatever is measured is in gpu.json at once; what crashes, hangs or
does not fit costs its own row. --render prints Markdown, with what is met and what is not. Where
HANGDOCTOR_GPU_KEEP names a folder, what hangs captured of its jobs is copied there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.progress import say

from .children import run_section
from .options import Options
from .plan import SECTIONS, Section, budget, selected
from .processes import until
from .render import markdown
from .results import Results, read
from .worker import reason

_INTERRUPTED = 130


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=7.0, help="for all of it (default 7)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SECTION[:PART]", help="these sections, or units"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="default gpu.json")
    parser.add_argument(
        "--add", action="store_true", help="measure what the file at --out does not have yet"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--smoke", action="store_true", help="the smallest sizes of everything")
    parser.add_argument("--render", type=Path, metavar="FILE", help="print its tables, and end")
    options = parser.parse_args(argv)
    names = [section.name for section in SECTIONS]
    unknown = [word for word in options.only if word.partition(":")[0] not in names]
    if unknown:
        parser.error(f"--only {unknown[0]}: the sections are {', '.join(names)}")
    return options


def measured(earlier: dict[str, Any], section: str) -> set[str]:
    """Units that an earlier run has brought to their end."""
    return set(earlier.get("sections", {}).get(section, {}).get("seconds", {}))


def run(
    sections: Sequence[Section],
    options: Options,
    results: Results,
    *,
    only: Sequence[str] = (),
    seconds: float,
    skip: dict[str, set[str]],
) -> None:
    """Measure section after section until the time is over."""
    end = time.monotonic() + seconds
    ahead = []
    for section in sections:
        try:
            units = importlib.import_module(section.module).units(options)
        except Exception as error:  # a package that is missing here costs its own section alone
            say(f"{section.name}: {reason(error)}")
            results.skip(section.name, reason(error), [])
            continue
        wanted = selected(units, only, section.name)
        wanted = [unit for unit in wanted if unit not in skip.get(section.name, set())]
        if wanted:
            ahead.append((section, wanted))
    while ahead:
        (section, units), given = ahead[0], budget([s for s, _ in ahead], until(end))
        ahead.pop(0)
        if not given:
            say(f"{section.name}: not reached, {until(end):.0f} s are left")
            why = f"{until(end):.0f} s were left, it takes {section.least_s:.0f} s at least"
            results.skip(section.name, why, units)
            continue
        say(f"{section.name}: {len(units)} units, at most {given:.0f} s")
        try:
            run_section(section, units, options, given, results)
        except KeyboardInterrupt:
            results.end(section.name, "interrupted")
            for other, its in ahead:
                results.skip(other.name, "interrupted", its)
            raise


def main(argv: list[str] | None = None) -> int:
    """Measure, or print what was measured."""
    words = parsed(argv)
    if words.render is not None:
        print(markdown(read(words.render)))
        return 0
    options = Options(words.device, words.smoke)
    os.environ.update(options.environment())  # before a section is imported
    earlier = read(words.out) if words.add and words.out.exists() else {}
    skip = {section.name: measured(earlier, section.name) for section in SECTIONS}
    made = {
        "at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "minutes": words.minutes,
        "device": words.device,
        "smoke": words.smoke,
    }
    results = Results(words.out, made, earlier)
    results.save()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        run(SECTIONS, options, results, only=words.only, seconds=60 * words.minutes, skip=skip)
    except KeyboardInterrupt:
        say(f"interrupted; what was measured is in {words.out}")
        return _INTERRUPTED
    say(f"written: {words.out}")
    print(markdown(results.as_dict()))
    return 0


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
