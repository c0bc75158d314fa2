"""Go back to an older checkpoint: what is newer moves aside, nothing is deleted.

    python -m hangdoctor.train.rollback DIR --to 6210 [--events FOLDER]... [--dry-run]
    python -m hangdoctor.train.rollback DIR --undo [NAME]

Newer checkpoints go to DIR/rolled_back/NAME and event files to the folder of that name beside them;
an event file that began before the checkpoint leaves a copy that ends with it. Then `latest` and
latest_checkpointed_iteration.txt name the checkpoint. A rollback that was cut off is finished by the
same command and taken back by --undo.
Exit codes: 0 done, or nothing to do; 1 refused, the message says why; 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint import training
from ..options import ConfigError
from ..output import write_json
from ..tb.events import ASIDE
from .journal import DONE, PREPARING, UNDOING, Journal, journals
from .plan import Plan, journal, newer_than, planned

_SCHEMA = "hangdoctor.rollback/1"
_NEWEST = ""


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m train.rollback",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="the checkpoints: what --checkpoint.dir was")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", type=int, metavar="N", help="the iteration to go back to")
    what.add_argument(
        "--undo", nargs="?", const=_NEWEST, metavar="NAME", help="take one back (default: the last)"
    )
    add(
        "--events",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="event files (default: the folder that the checkpoint was trained with)",
    )
    add("--keep-events", action="store_true", help="leave event files as they are")
    add("--dry-run", action="store_true", help="print what would be done, and do nothing")
    add("--force", action="store_true", help="though a job seems to be training there")
    add("--json", metavar="FILE|-", help="write what was done as JSON")
    options = parser.parse_args(argv)
    if options.events and options.keep_events:
        parser.error("--events and --keep-events: give one of them")
    return options


@dataclass
class Outcome:
    """What is printed, and the same as plain data."""

    lines: list[str]
    plain: dict[str, Any]


def lines(plan: Plan, name: str, dry_run: bool) -> Iterator[str]:
    """What is done, or would be."""
    moved, written, named = "moved", "written", "latest names"
    if dry_run:
        moved, written, named = "would be moved", "would be written", "latest would name"
    saved, aside = plan.saved, f"{ASIDE}/{name}"
    samples = saved.meta.get("state", {}).get("consumed_samples")
    yield f"back to {saved.folder} ({samples} consumed samples); latest was {plan.latest}"
    if plan.newer:
        names = ", ".join(path.name for path in plan.newer)
        yield f"  {moved} to {plan.newer[0].parent / aside}: {names}"
    for curve in plan.curves:
        path, span = curve.path, f"iterations {curve.first}-{curve.last}"
        yield f"  {moved} to {path.parent / aside}: {path.name} ({span})"
        if curve.kept:
            copy = f"{path.name}.to_{saved.iteration}"
            yield f"  {written}: {copy}, its {curve.kept} values up to the checkpoint"
    yield f"  {named} {saved.folder.name}"
    yield from (f"  note: {sentence}" for sentence in plan.unread)


def go_back(options: argparse.Namespace) -> Outcome:
    """Plan and do it.

    Raises:
        ConfigError: refused, or the file system refused and all is as before.
    """
    folder = options.folder
    unfinished = _unfinished(folder)
    if unfinished is not None:
        return _finish(unfinished, options)
    plan = planned(folder, options.to, [] if options.keep_events else options.events)
    if not plan.is_needed:
        said = f"nothing to do: latest names {plan.latest}, and nothing is newer"
        return Outcome([said], {"to": options.to, "done": False, "moves": []})
    if options.dry_run:
        moves = [{"from": str(path)} for path in [*plan.newer, *(c.path for c in plan.curves)]]
        plain = {"to": options.to, "done": False, "moves": moves}
        return Outcome(list(lines(plan, "NAME", dry_run=True)), plain)
    made = journal(folder, plan)
    made.prepare()
    try:
        made.forward()
    except OSError as error:
        made.back()
        raise ConfigError(f"{error}; everything is as it was before") from error
    way_back = f"to take it back: python -m train.rollback {folder} --undo"
    return Outcome([*lines(plan, made.name, dry_run=False), way_back], _plain(made))


def _finish(made: Journal, options: argparse.Namespace) -> Outcome:
    if made.state == UNDOING:
        raise ConfigError(f"the undoing of a rollback to {made.to} was cut off: repeat --undo")
    if made.to != options.to:
        raise ConfigError(
            f"a rollback to {made.to} was cut off: finish it with --to {made.to}, or use --undo"
        )
    if options.dry_run:
        said = f"a rollback to {made.to} was cut off; it would be finished"
        return Outcome([said], {"to": made.to, "done": False, "moves": []})
    made.forward()
    said = f"the rollback to {made.to} that was cut off is finished: {made.own}"
    return Outcome([said], _plain(made))


def undo(options: argparse.Namespace) -> Outcome:
    """Take a rollback back.

    Raises:
        ConfigError: there is none, or a training has saved checkpoints since.
    """
    made = _unfinished(options.folder) or _chosen(options)
    own = {source for source, _ in made.moves}
    since = [p.name for p in newer_than(made.folder, made.to) if p.name not in own]
    if since:
        raise ConfigError(
            f"saved since then: {', '.join(since)}; move them aside with --to {made.to}, "
            f"then --undo {made.name}"
        )
    said = f"the rollback to {made.to} would be taken back"
    if not options.dry_run:
        made.back()
        said = f"the rollback to {made.to} is taken back"
    copies = [copy for _, copy in made.copies]
    sources = [source for source, _ in made.moves if source not in copies]
    plain = {"to": made.to, "done": not options.dry_run, "undone": made.name}
    return Outcome([said, *(f"  {source}" for source in sources)], plain)


def _chosen(options: argparse.Namespace) -> Journal:
    there = [made for made in journals(options.folder) if made.state == DONE]
    wanted = [made for made in there if options.undo in (_NEWEST, made.name)]
    if not wanted:
        names = ", ".join(made.name for made in there) or "none"
        raise ConfigError(
            f"no such rollback in {options.folder}; those that can be undone: {names}"
        )
    return wanted[-1]


def _unfinished(folder: Path) -> Journal | None:
    """One that was cut off. Where it had moved nothing, it is forgotten."""
    for made in journals(folder):
        if made.state == PREPARING:
            made.forget()
        elif made.state != DONE:
            return made
    return None


def _plain(made: Journal) -> dict[str, Any]:
    moves = [{"from": source, "to": target} for source, target in made.moves]
    return {"to": made.to, "done": True, "name": made.name, "moves": moves}


def check_no_training(options: argparse.Namespace) -> None:
    """Raises ConfigError: a job is training into the folder."""
    writer = training.who(options.folder)
    if writer and not (options.force or options.dry_run):
        raise ConfigError(
            f"{writer} is training into {options.folder}: end that job first; "
            "if it has ended, repeat this with --force"
        )


def main(argv: list[str] | None = None) -> int:
    """Go back, or undo it."""
    options = parsed(argv)
    try:
        check_no_training(options)
        outcome = go_back(options) if options.undo is None else undo(options)
        if options.json:
            plain = {"schema": _SCHEMA, "folder": str(options.folder), **outcome.plain}
            write_json(options.json, plain)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cut off: repeat the command to finish it, or --undo", file=sys.stderr)
        return 130
    if options.json != "-":
        print("\n".join(outcome.lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
