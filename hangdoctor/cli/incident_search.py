"""`hangdoctor incidents search` and `export`: the incidents of all jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from msgspec import Struct

from ..errors import BadInput, UsageError
from ..files import read_regular
from ..model.diagnosis import Diagnosis
from ..report import telemetry
from ..storage import event_search
from ..storage.event_search import Event
from ..storage.incident_search import IncidentSearch, Query
from ..storage.incident_words import Entry
from ..text import printable
from ..text.job_names import short_job
from ..text.plural import count
from ..text.ranges import format_hosts
from ..text.times import time_of
from ..transport import address
from . import complete, pipes
from .columns import aligned
from .shared_flags import Command, Flag, together

SCHEMA = "hangdoctor.incidents/1"
_MAX_DIAGNOSIS = 512 << 20
_UNREAD = 3  # named
_AT_ONCE = 500  # events in one request
_OF_EVENTS = ("TIME", "JOB", "KIND", "ITERATION", "RANK", "NODE", "TEXT")


class Named(Struct):
    """The folder of the command line, given before or after the sub-verb; the one after it wins."""

    folder: str = ""
    job: str = ""
    where: str = ""


def root_flag(command: Command) -> Command:
    """--root DIR, as often as wanted."""
    return click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Folder with folders of jobs, or of one job, or with bundles (default: ~/.hangdoctor/jobs).",
    )(command)


def _filters(command: Command) -> Command:
    """The words, --root, --job, --user, --node and --since."""
    flags: list[Flag] = [
        click.argument("words", nargs=-1),
        root_flag,
        click.option(
            "--job",
            default="",
            metavar="TEXT",
            shell_complete=complete.collectors,
            help="Only jobs with TEXT in their name, folder or script.",
        ),
        click.option("--user", default="", metavar="NAME", help="Only incidents of this user."),
        click.option(
            "--node", default="", metavar="NAME", help="Only incidents with a culprit on this node."
        ),
        click.option(
            "--since",
            default="",
            metavar="WHEN",
            help="Only incidents since then: 30m, 12h, 7d ago, or a local time such as 2026-11-22T03:10.",
        ),
    ]
    return together(flags)(command)


@click.command("search")
@_filters
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Print at most N incidents.",
)
@click.option(
    "--events",
    "of_events",
    is_flag=True,
    help="Search what training jobs said of themselves, such as spikes of the loss, instead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def search(limit: int, of_events: bool, as_json: bool, **asked: Any) -> None:
    """Search the incidents of all jobs, newest first.

    All WORDS must match. They are ranks (rank5), nodes, kinds, operations, groups, functions,
    files, names of jobs, and words of the verdict; all_red* matches what begins so.
    """
    found: Sequence[Entry | Event] = _events(asked) if of_events else _found(asked)
    if as_json:
        sys.stdout.buffer.write(printable.as_json(found[:limit]))
        sys.stdout.flush()
        return
    for line in _table(found[:limit]):
        pipes.say(line)
    if len(found) > limit:
        pipes.say(f"{len(found) - limit} older ones are not shown (--limit N)", err=True)
    if not found:
        pipes.say("no event matches" if of_events else "no incident matches", err=True)


@click.command("export")
@_filters
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Export only the newest N incidents (default: all).",
)
@click.option(
    "--output",
    "-o",
    default="-",
    metavar="FILE|-",
    help="File to write (default: standard output).",
)
@click.option(
    "--otlp",
    default="",
    metavar="URL",
    help="Send them to this OpenTelemetry collector instead, by OTLP over HTTP.",
)
def export(limit: int | None, output: str, otlp: str, **asked: Any) -> None:
    """Export incidents of all jobs with their whole diagnoses, and events of training jobs, as JSON,
    newest first.

    WORDS and flags choose incidents as in `incidents search`.
    """
    if otlp:
        to = telemetry.Endpoint(otlp)
        telemetry.check(to, "--otlp")
        _send(_found(asked)[:limit], to)
        _send_events(_events(asked)[:limit], to)
        return
    found, events = _found(asked)[:limit], _events(asked)[:limit]
    if output == "-":
        _write(sys.stdout.buffer, found, events)
        sys.stdout.flush()
        return
    try:
        with Path(output).open("wb") as file:
            _write(file, found, events)
    except OSError as error:
        raise BadInput(
            f"{output} cannot be written: {error.strerror}", "Choose another: --output FILE"
        ) from error
    pipes.say(f"{count(len(found), 'incident')} written to {output}", err=True)


def _found(asked: dict[str, Any]) -> list[Entry]:
    """What the flags ask for; prints on standard error what could not be searched."""
    roots, query = _asked(asked)
    index = IncidentSearch(roots)
    found = index.find(query)
    if index.trouble:
        pipes.say(f"hangdoctor: {index.trouble}: the folders themselves were searched", err=True)
    _left_out(index.unread)
    return found


def _events(asked: dict[str, Any]) -> list[Event]:
    """The same of events."""
    roots, query = _asked(asked)
    found, unread = event_search.find(roots, query)
    _left_out(unread)
    return found


def _asked(asked: dict[str, Any]) -> tuple[list[Path], Query]:
    """(where to search, for what)."""
    named = click.get_current_context().ensure_object(Named)  # before the sub-verb
    roots = list(asked["roots"])
    if named.folder and not roots:
        roots = [Path(named.folder)]
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder", "Pass a folder of jobs: --root DIR")
    query = Query(
        words=asked["words"],
        job=asked["job"] or named.job,
        user=asked["user"],
        node=asked["node"],
        since=time_of(asked["since"], time.time()),
    )
    return roots or [address.job_folder("-").parent], query


def _left_out(unread: Sequence[str]) -> None:
    for line in unread[:_UNREAD]:
        pipes.say(f"hangdoctor: left out: {line}", err=True)
    if len(unread) > _UNREAD:
        pipes.say(f"hangdoctor: {len(unread) - _UNREAD} more are left out", err=True)


def _table(found: Sequence[Entry | Event]) -> Iterator[str]:
    """The names of the columns, then a line for each incident, then where the first one is; of
    events these alone.
    """
    events = [one for one in found if isinstance(one, Event)]
    if events:
        yield from aligned([_OF_EVENTS, *map(_event_cells, events)])
    incidents = [one for one in found if isinstance(one, Entry)]
    if incidents:
        yield from _incident_table(incidents)


def _event_cells(one: Event) -> tuple[str, ...]:
    row = one.event
    iteration = str(row.iteration) if row.iteration >= 0 else "-"
    return (_clock(row.at), one.place, row.kind, iteration, str(row.rank), row.node, row.text)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _incident_table(found: Sequence[Entry]) -> Iterator[str]:
    names = (f"TIME ({time.strftime('%Z')})", "JOB", "USER", "KIND", "RANKS", "NODES", "VERDICT")
    yield from aligned([names, *map(_cells, found)])
    yield ""
    yield f"The first in full: hangdoctor diagnose {found[0].bundle}"


def _cells(entry: Entry) -> tuple[str, ...]:
    at = _clock(entry.at)
    kind, ranks, nodes = entry.kind or entry.status, entry.ranks or "-", format_hosts(entry.nodes)
    watched = Path(entry.bundle).parent.name == "incidents"  # in the folder of its job
    name = entry.place if watched else short_job(entry.job)
    job = " ".join(filter(None, (name, entry.script)))
    return (at, job, entry.user, kind, ranks, nodes or "-", entry.summary)


def _send(found: Sequence[Entry], to: telemetry.Endpoint) -> None:
    """Raises BadInput: one could not be sent; those before it were."""
    for number, entry in enumerate(found):
        data = _diagnosis(entry)
        if data is None:
            continue
        diagnosis = msgspec.json.decode(data, type=Diagnosis)
        spans = telemetry.saved_spans(entry.at, diagnosis)
        told = telemetry.Told(entry.id, entry.bundle, at=entry.at, diagnosis=diagnosis, spans=spans)
        said = telemetry.send(told, to)
        if said != telemetry.SENT:
            raise BadInput(
                f"incident {entry.id} was not sent: {said}",
                f"{count(number, 'incident')} before it went out. Is an OTLP receiver for HTTP at {to.endpoint}?",
            )
    pipes.say(f"{count(len(found), 'incident')} sent to {to.endpoint}", err=True)


def _send_events(found: Sequence[Event], to: telemetry.Endpoint) -> None:
    """Raises BadInput: they could not be sent."""
    for begin in range(0, len(found), _AT_ONCE):
        rows = [one.event for one in found[begin : begin + _AT_ONCE]]
        said = telemetry.send_events(rows, to)
        if said != telemetry.SENT:
            raise BadInput(
                f"events of training jobs were not sent: {said}",
                f"Is an OTLP receiver for HTTP at {to.endpoint}?",
            )
    if found:
        pipes.say(f"{count(len(found), 'event')} sent to {to.endpoint}", err=True)


def _diagnosis(entry: Entry) -> bytes | None:
    """The whole diagnosis; None, and a line on standard error, where it was removed since."""
    path = Path(entry.bundle) / "diagnosis.json"
    try:
        return read_regular(path, _MAX_DIAGNOSIS)
    except OSError as error:
        pipes.say(f"hangdoctor: left out: {path}: {error.strerror}", err=True)
        return None


def _write(file: BinaryIO, found: Sequence[Entry], events: Sequence[Event]) -> None:
    """One document, an incident after the other: each may have megabytes."""
    file.write(f'{{"schema": "{SCHEMA}", "incidents": ['.encode())
    between = b"\n"
    for entry in found:
        data = _diagnosis(entry)
        if data is None:
            continue
        one = {**msgspec.structs.asdict(entry), "diagnosis": msgspec.Raw(data)}
        file.write(between + printable.as_json(one).rstrip())
        between = b",\n"
    file.write(b'\n], "events": ' + printable.as_json(events).rstrip() + b"}\n")
