"""Which ranks of this host the sub-verbs of `trace` mean, and what their rings say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ..calls_model import CallTrace
from ..errors import BadInput, NoRanksFound
from ..readers import blackbox
from ..readers.blackbox import Box
from ..readers.calls import CallsReader, calls_path

_NO_BOX = "Call tracing needs the probe in the ranks: start the job with `hangdoctor run -- CMD` (or import hangdoctor.probe)."


class Traced(Struct):
    """A rank on this host: its black box, and its ring if it was ever traced."""

    box: Box
    trace: CallTrace | None
    trouble: str = ""  # why the ring cannot be read

    @property
    def folder(self) -> Path:
        return Path(self.box.path).parent


def target_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """--local, --job, --folder."""
    flags = [
        click.option("--local", is_flag=True, help="Ranks of this user on this host (the default; root: of everybody)."),
        click.option("--job", default="", metavar="KEY", help="Which job, where a host runs several; otherwise the newest."),
        click.option("--folder", metavar="DIR", type=click.Path(path_type=Path), help="The job's HANGDOCTOR_DIR."),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


def find(folder: Path | None, job: str, say: Callable[[str], None]) -> list[Traced]:
    """The ranks of one job on this host, by rank; dead ones too, as long as no newer process of theirs is there.

    Raises:
        NoRanksFound: no rank with the probe.
    """
    boxes = [b for b in blackbox.find_boxes(folder) if b.status != "stale"]
    jobs: dict[str, list[Box]] = {}
    for box in boxes:
        jobs.setdefault(f"{box.job}\t{Path(box.path).parent}", []).append(box)
    chosen = {k: v for k, v in jobs.items() if _plain(job) in _plain(k.partition("\t")[0])}
    if not chosen:
        where = f" in {folder}" if folder else " on this host"
        there = ", ".join(sorted({k.partition("\t")[0] for k in jobs}))
        raise NoRanksFound(
            f"no rank{f' of job {job}' if job else ''} that carries the probe was found{where}",
            f"There are: {there}." if there else _NO_BOX,
        )
    best = max(chosen, key=lambda k: (any(b.status == "live" for b in chosen[k]), max(b.created_s for b in chosen[k])))
    others = sorted({k.partition("\t")[0] for k in chosen} - {best.partition("\t")[0]})
    if others:
        say(f"job {best.partition(chr(9))[0]} is taken, the newest; also here: {', '.join(others)} (--job KEY)")
    return [_traced(b) for b in sorted(chosen[best], key=lambda b: (b.rank, b.created_s))]


def _plain(job: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", job.lower())


def _traced(box: Box) -> Traced:
    try:
        with CallsReader(calls_path(box.path)) as reader:
            return Traced(box, reader.summary())
    except FileNotFoundError:
        return Traced(box, None)
    except BadInput as error:
        return Traced(box, None, str(error))


def again(ranks: Sequence[Traced]) -> list[Traced]:
    """The same ranks as they are now."""
    return [_traced(r.box) for r in ranks]
