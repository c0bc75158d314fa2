"""The ranks of this host for the sub-verbs of `trace`, and the state of their rings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct

from ...errors import BadInput, NoRanksFound
from ...model.calls import CallTrace
from ...readers import blackbox, boxes_of_job
from ...readers.blackbox import BlackBox
from ...readers.calls import CallsReader, calls_path
from ...text.job_names import short_job
from ...time_limit import in_time
from .. import complete
from ..shared_flags import Command, Flag, together

_NAMED = 4  # jobs in one line
_AT_ONCE = 8  # folders that are asked for at a time
_FOLDERS_S = 2.0  # and for how long: some file systems do not answer
_START_S = 60.0  # within which the ranks of one run come up
_NO_BOX = "Call tracing needs the probe in the ranks: start the job with `hangdoctor run -- CMD` (or import hangdoctor.probe)."
NEXT_TIME = "To trace the next run from its start: hangdoctor run --trace -- CMD"


class Traced(Struct):
    """A rank on this host: its black box, and its ring if it was ever traced."""

    box: BlackBox
    trace: CallTrace | None
    trouble: str = ""  # why the ring cannot be read

    @property
    def folder(self) -> Path:
        """The folder of its black box, which requests to it are written to."""
        return Path(self.box.path).parent


def target_flags(command: Command) -> Command:
    """--local, --job, --folder."""
    flags = [
        click.option(
            "--local",
            is_flag=True,
            help="The ranks of this user on this host (default; as root: of all users).",
        ),
        click.option(
            "--job",
            default="",
            metavar="KEY",
            shell_complete=complete.jobs_here,
            help="The job, if a host runs several, by its name, its script, or a process id (default: your newest).",
        ),
        click.option(
            "--folder",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="The job's HANGDOCTOR_DIR (default: found from its processes).",
        ),
    ]
    return together(flags)(command)


def jobid_flag(where: str) -> Flag:
    """--jobid: a Slurm job's nodes in place of this host."""
    return click.option(
        "--jobid",
        metavar="J[.STEP]",
        shell_complete=complete.job_ids,
        help=f"A running Slurm job: {where}",
    )


def find(folder: Path | None, job: str, say: Callable[[str], None]) -> list[Traced]:
    """The ranks of one job on this host, by rank; dead ones too, as long as no newer process of theirs is there.

    Raises:
        NoRanksFound: no rank with the probe.
        UsageError: `job` is the script of several.
    """
    found = {
        b.path: b
        for where in ([folder] if folder else [None, *_named_folders()])
        for b in blackbox.find_boxes(where)
    }
    boxes = [b for b in found.values() if b.status != "stale"]
    jobs = boxes_of_job.named(job, boxes)
    chosen = {name: _present(of) for name, of in jobs.items()}
    if not chosen:
        where = f" in {folder}" if folder else " on this host"
        raise NoRanksFound(
            f"no rank{f' of job {job}' if job else ''} with the probe was found{where}",
            f"Jobs with a probe: {', '.join(sorted({short_job(b.job) for b in boxes}))}."
            if boxes
            else _NO_BOX,
        )
    best = max(chosen, key=lambda name: _preference(chosen[name]))
    others = {
        name: of for name, of in chosen.items() if name != best and _runs(of) >= _runs(chosen[best])
    }
    if others:
        say(_choice(best, chosen[best], others))
    return [_traced(b) for b in sorted(chosen[best], key=lambda b: (b.rank, b.created_s))]


def _preference(boxes: list[BlackBox]) -> tuple[bool, bool, float]:
    """Of several jobs the one that runs, is one's own, and began last."""
    return _runs(boxes), any(b.owner == os.geteuid() for b in boxes), _began(boxes)


def _choice(best: str, boxes: list[BlackBox], others: Mapping[str, list[BlackBox]]) -> str:
    """The line that says which job was taken, and which were not."""
    newest = sorted(others, key=lambda name: -_began(others[name]))
    named = ", ".join(boxes_of_job.in_brief(name, others[name]) for name in newest[:_NAMED])
    if len(newest) > _NAMED:
        named += f" and {len(newest) - _NAMED} more"
    whose = "your" if _began(others[newest[0]]) > _began(boxes) else "the"
    which = f"using {whose} newest job, {boxes_of_job.in_brief(best, boxes)}"
    return f"{which}; also here: {named} (choose with --job KEY)"


def _began(boxes: Sequence[BlackBox]) -> float:
    return max(box.created_s for box in boxes)


def _runs(boxes: list[BlackBox]) -> bool:
    return any(b.status == "live" for b in boxes)


def _present(boxes: list[BlackBox]) -> list[BlackBox]:
    """Without boxes of an earlier run of the same name; ranks of one run may have separate folders."""
    live = [b.created_s for b in boxes if b.status == "live"]
    began = min(live) if live else max(b.created_s for b in boxes)
    return [b for b in boxes if b.status == "live" or b.created_s > began - _START_S]


def _named_folders() -> list[Path]:
    """Folders that processes of this host name in HANGDOCTOR_DIR, as far as they may be read."""
    named = {os.environ.get("HANGDOCTOR_DIR", "")}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            data = path.read_bytes()
        except OSError:
            continue  # another user's, or gone
        for entry in data.split(b"\0"):
            if entry.startswith(b"HANGDOCTOR_DIR="):
                named.add(
                    str(blackbox.named_folder(os.fsdecode(entry[15:]), int(path.parent.name)))
                )
    folders = sorted(Path(name) for name in named if name)
    there, _ = in_time(folders, Path.is_dir, _AT_ONCE, _FOLDERS_S)
    return [folder for place, folder in enumerate(folders) if there.get(place)]


def _traced(box: BlackBox) -> Traced:
    try:
        with CallsReader(calls_path(box.path), {box.owner}) as reader:
            return Traced(box, reader.summary())
    except FileNotFoundError:
        return Traced(box, None)
    except BadInput as error:
        return Traced(box, None, str(error))


def again(ranks: Sequence[Traced]) -> list[Traced]:
    """The same ranks as they are now."""
    return [_traced(r.box) for r in ranks]


class TracedRank(Struct):
    """One rank in a few numbers and words; times in seconds before now, -1 where nothing was recorded."""

    rank: int
    pid: int
    process: str  # live or dead
    state: str = "never traced"
    obeyed: bool = False  # the request that was asked about
    events: int = 0
    follow: str = ""
    ignore: str = ""
    unseen: str = ""  # of the names that are followed, those that the rank has not imported
    offered: str = ""  # names that do match, where some are unseen
    variant: str = ""  # extension or python
    job: str = ""
    from_iteration: int = -1
    reaches_back_s: float = -1.0
    last_call_s: float = -1.0
    note: str = ""
    node: str = ""


def row_of(rank: Traced, serial: int = 0) -> TracedRank:
    """The state of a rank's ring; `obeyed` is about the request with this serial number."""
    trace, box = rank.trace, rank.box
    note = rank.trouble or box.note
    row = TracedRank(box.rank, box.pid, box.status, note=note, job=short_job(box.job))
    if trace is None:
        return row
    row.state, row.events, row.obeyed = (
        trace.state.replace("_", " "),
        trace.written,
        trace.request >= serial,
    )
    row.follow, row.ignore = ",".join(trace.follow), ",".join(trace.ignore)
    row.unseen, row.offered = ",".join(trace.unseen), ",".join(trace.offered)
    row.variant, row.from_iteration = (
        "python" if trace.python else "extension",
        trace.from_iteration,
    )
    row.note = trace.note or row.note
    try:
        with CallsReader(calls_path(box.path), {box.owner}) as reader:
            newest, oldest = reader.read(last=1), reader.read_oldest()
    except (FileNotFoundError, BadInput):  # its rank has ended meanwhile and removed it
        return row
    if newest.events:
        row.last_call_s = round(max(0.0, newest.read_s - newest.base_ns / 1e9), 2)
    if oldest.events:
        row.reaches_back_s = round(max(0.0, oldest.read_s - oldest.base_ns / 1e9), 2)
    return row
