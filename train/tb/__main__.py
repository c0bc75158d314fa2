"""Rewrite TensorBoard's event files into a new folder; what is read is never changed.

    python -m hangdoctor.train.tb rename IN... --to OUT --map FILE
    python -m hangdoctor.train.tb cut    IN... --to OUT --after N | --from N
    python -m hangdoctor.train.tb merge  IN... --to OUT

rename: each chart that the map names gets its new name, in one pass over all. cut: events after
iteration N, or from N on, are left out, those of charts by samples with them. merge: the events of
all files in one, by time. IN is an event file or a folder; rename and cut keep the folders below it.
OUT must not be there yet: it appears when all of it is written.
A line of the map is "old name" "new name"; # begins a comment.
Exit codes: 0 done, 1 refused, the message says why, 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..options import ConfigError
from ..output import write_json
from .rewrite import Done, cut, merge, read_map, rename

_SCHEMA = "hangdoctor.event_files/1"


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m train.tb",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="rename|cut|merge")
    renaming = verbs.add_parser("rename", help="give charts other names")
    renaming.add_argument("--map", type=Path, required=True, metavar="FILE", help="old and new")
    cutting = verbs.add_parser("cut", help="leave out what came after an iteration")
    where = cutting.add_mutually_exclusive_group(required=True)
    where.add_argument("--after", type=int, metavar="N", help="N is the last that stays")
    where.add_argument("--from", type=int, dest="start", metavar="N", help="N is the first to go")
    merging = verbs.add_parser("merge", help="put all events into one file, by time")
    for verb in (renaming, cutting, merging):
        verb.add_argument("sources", type=Path, nargs="+", metavar="IN", help="files or folders")
        verb.add_argument("--to", type=Path, required=True, metavar="OUT", help="a new folder")
        verb.add_argument("--json", metavar="FILE|-", help="write what was done as JSON")
    return parser.parse_args(argv)


def act(options: argparse.Namespace) -> Done:
    """Do what the verb says.

    Raises:
        ConfigError: refused; OUT is not there.
    """
    if options.verb == "rename":
        return rename(options.sources, options.to, read_map(options.map))
    if options.verb == "cut":
        last = options.after if options.start is None else options.start - 1
        return cut(options.sources, options.to, last)
    return merge(options.sources, options.to)


def main(argv: list[str] | None = None) -> int:
    """Rewrite and print the counts."""
    options = parsed(argv)
    try:
        done = act(options)
        if options.json:
            plain = {"schema": _SCHEMA, "to": str(options.to), **done.plain()}
            write_json(options.json, plain)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json != "-":
        print("\n".join(done.lines(options.to)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
