"""Compare what `--log.digests` has written.

    python -m hangdoctor.train.digests compare A B --after 805 [--before 806] [--json FILE|-]
    python -m hangdoctor.train.digests replicas A --after 805 [--json FILE|-]

compare: the state after iteration 805 of the run in folder A with that before 806 of the run in B
(with one of the two flags: both at that moment). replicas: ranks of one run that must hold the same.
Only what differs is printed. Exit codes: 0 equal, 10 something differs, 1 no digests there, 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from pathlib import Path

from ..options import ConfigError
from ..output import write_json
from .compare import Mismatch, between, replicas, sentence
from .files import read

DIFFERS = 10
_SCHEMA = "hangdoctor.digest_comparison/1"
Moment = tuple[int, str]


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m train.digests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="compare|replicas")
    compare = verbs.add_parser("compare", help="print what differs between two runs or moments")
    compare.add_argument("folders", type=Path, nargs=2, metavar="A B", help="folders of digests")
    same = verbs.add_parser("replicas", help="print what differs between ranks of one run")
    same.add_argument("folders", type=Path, nargs=1, metavar="A", help="a folder of digests")
    for verb in (compare, same):
        verb.add_argument("--after", type=int, metavar="N", help="the moment after iteration N")
        verb.add_argument("--before", type=int, metavar="N", help="the moment before iteration N")
        verb.add_argument("--json", metavar="FILE|-", help="write the result as JSON")
    options = parser.parse_args(argv)
    if options.after is None and options.before is None:
        parser.error("--after N or --before N is missing")
    if options.verb == "replicas" and None not in (options.after, options.before):
        parser.error("replicas are compared at one moment: give --after or --before")
    return options


def moments(options: argparse.Namespace) -> tuple[Moment, Moment]:
    """Of A and of B."""
    given = [
        (number, when)
        for number, when in ((options.after, "after"), (options.before, "before"))
        if number is not None
    ]
    return given[0], given[-1]


def main(argv: list[str] | None = None) -> int:
    """Compare; the exit code says whether anything differs."""
    options = parsed(argv)
    first, second = moments(options)
    try:
        lines = read(options.folders[0], *first)
        if options.verb == "compare":
            found = between(lines, read(options.folders[1], *second))
        else:
            found = replicas(lines)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        _write_json(options.json, found)
    if options.json != "-":
        for mismatch in found:
            print(sentence(mismatch))
        count = len(lines)
        print(f"{count} tensors compared: {'equal' if not found else 'they differ'}")
    return DIFFERS if found else 0


def _plain(norm: float | None) -> float | str | None:
    """JSON has no NaN and no infinity: they are words in it."""
    return norm if norm is None or math.isfinite(norm) else str(norm)


def _write_json(target: str, found: list[Mismatch]) -> None:
    rows = [{**dataclasses.asdict(m), "says": sentence(m)} for m in found]
    for row, mismatch in zip(rows, found, strict=True):
        row["at"] = [dict(place) for place in mismatch.at]
        row["of"] = [dict(place) for place in mismatch.of]
        row["sizes"] = [[_plain(norm) for norm in pair] for pair in mismatch.sizes]
    write_json(target, {"schema": _SCHEMA, "equal": not found, "mismatches": rows})


if __name__ == "__main__":
    sys.exit(main())
