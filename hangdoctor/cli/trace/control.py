"""`hangdoctor trace start`, `stop` and `status`: switch tracing and show its state."""

from __future__ import annotations

import difflib
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from ...errors import NoRanksFound, UsageError
from ...probe.calls import request as requests
from ...probe.calls.request import Request
from ...text import plural, printable
from ...text.durations import duration
from ...text.job_names import short_job
from ...text.ranges import format_ranks, parse_ranks
from .. import pipes
from ..output import progress_to_stderr
from ..shared_flags import Flag, seconds
from . import nodes as trace_nodes
from .flags import choice_flags
from .nodes import Where, where_flags
from .target import NEXT_TIME, Traced, TracedRank, again, find, row_of

_POLL_S = 0.1
_OFFERED = 8  # names in one line


def _ranks(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return format_ranks(parse_ranks(value)) if value else None


_rows_flag = click.option(
    "--rows", is_flag=True, hidden=True, help="Print rows, for the node that asks."
)
_quiet_flag = click.option("--quiet", "-q", is_flag=True, help="Print only errors.")


def _wait_flag(done: str) -> Flag:
    text = f"Seconds to wait until the ranks have {done} tracing."
    return seconds("--wait", "wait_s", default=5.0, help=text)


@click.command("start")
@choice_flags()
@click.option(
    "--ranks",
    callback=_ranks,
    metavar="R",
    help="Only these ranks, for example 0-7,12 (default: all).",
)
@click.option(
    "--size",
    "size_mb",
    type=click.FloatRange(1, 4096),
    metavar="MB",
    help="Size of each rank's ring buffer in MB (default: 16).",
)
@_wait_flag("started")
@where_flags
@_quiet_flag
@_rows_flag
def start(
    follow: tuple[str, ...],
    ignore: tuple[str, ...],
    from_iteration: int | None,
    ranks: str | None,
    size_mb: float | None,
    **where: object,
) -> None:
    """Trace Python calls in a running job that was started with `hangdoctor run`.

    Every rank records its last calls in a ring buffer until `trace stop` or the end of the job.
    `trace tail` and `dump` read them, also while the rank hangs or is stopped and after it
    died. A second `start` replaces the settings of the first.
    """
    request = Request(
        serial=time.time_ns(),
        on=True,
        follow=follow,
        ignore=ignore,
        from_iteration=from_iteration,
        ranks=ranks,
        size_mb=size_mb,
    )
    _switch(request, **where)  # type: ignore[arg-type]


@click.command("stop")
@_wait_flag("stopped")
@where_flags
@_quiet_flag
@_rows_flag
def stop(**where: object) -> None:
    """Stop tracing in all ranks; recorded calls stay readable until the job ends."""
    _switch(Request(time.time_ns(), False), **where)  # type: ignore[arg-type]


def _switch(request: Request, wait_s: float, quiet: bool, rows: bool, **named: Any) -> None:
    say, where = progress_to_stderr(quiet or rows), Where.of(named)
    if where.nodes:
        answers = trace_nodes.ask(where, _as_arguments(request, wait_s), wait_s, say)
        if not answers:
            raise NoRanksFound(
                f"no rank of {where.nodes} has the probe",
                "Start the job with: hangdoctor run -- CMD",
            )
    else:
        answers = _switch_here(request, where, wait_s, say)
    if rows:
        trace_nodes.answer(answers)
    for line in outcome_lines(request, answers):
        say(line)
    tracing = [r for r in answers if r.obeyed and r.state in ("tracing", "waiting")]
    if tracing:
        first = min(tracing, key=lambda row: row.rank)
        say(f"to see the calls: {_tail_of(first, where)}")


def _tail_of(row: TracedRank, where: Where) -> str:
    """The command that shows the calls of a rank, with the target of this one; it names the job, so
    that a newer one is not taken.
    """
    words = ["hangdoctor", "trace", "tail", "--rank", str(row.rank), *where.target_flags]
    job = where.job if where.jobid else row.job
    named = (("--job", job), ("--folder", where.folder))
    return shlex.join(words + [w for flag, value in named if value for w in (flag, str(value))])


def _switch_here(
    request: Request, where: Where, wait_s: float, say: Callable[[str], None]
) -> list[TracedRank]:
    """Ask the running ranks of this host, and what each has done after at most `wait_s` seconds."""
    found = find(where.folder, where.job, say)
    ranks = [r for r in found if r.box.status == "live"]
    if not ranks:
        traced = sorted(r.box.rank for r in found if r.trace is not None)
        job = short_job(found[0].box.job)
        command = (
            f"hangdoctor trace tail --job {shlex.quote(job)} --rank {traced[0] if traced else 0}"
        )
        read = f"To read what they recorded: {command}"
        raise UsageError(f"no rank of job {job} is running", read if traced else NEXT_TIME)
    for folder in sorted({r.folder for r in ranks}):
        requests.write(folder, request)
    meant = [r for r in ranks if requests.concerns(request, r.box.rank)]
    concerned = [r for r in meant if request.on or r.trace is not None]
    return [row_of(r, request.serial) for r in _wait(concerned, request.serial, wait_s)]


def _as_arguments(request: Request, wait_s: float) -> list[str]:
    """The command line that makes the same request on a node."""
    words = ["start" if request.on else "stop", "--wait", str(wait_s)]
    for flag, names in (("--follow", request.follow), ("--ignore", request.ignore)):
        words += [flag, ",".join(names)] if names else []
    numbers = (
        ("--from-iteration", request.from_iteration),
        ("--ranks", request.ranks),
        ("--size", request.size_mb),
    )
    return words + [
        word for flag, value in numbers if value is not None for word in (flag, str(value))
    ]


def _wait(ranks: list[Traced], serial: int, wait_s: float) -> list[Traced]:
    """Wait until every rank has switched, or the time is over."""
    end = time.monotonic() + wait_s
    while True:
        ranks = again(ranks)
        late = [
            r
            for r in ranks
            if not (r.trace is not None and r.trace.request >= serial)
            and "call tracing" not in r.box.note
        ]
        if not late or time.monotonic() > end:
            return ranks
        time.sleep(_POLL_S)


def outcome_lines(request: Request, rows: Sequence[TracedRank]) -> Iterator[str]:
    """What became of a request, as lines."""
    waits = f"tracing starts at iteration {request.from_iteration}"
    words = {
        "waiting": waits,
        "switched off": f"off after an internal error; details: {_status_of(rows)}",
    }
    obeyed = [r for r in rows if r.obeyed]
    for state in sorted({r.state for r in obeyed}):
        yield f"{_named(r for r in obeyed if r.state == state)}: {words.get(state, state)}"
    slow = [r for r in obeyed if r.state == "tracing" and r.variant == "python"]
    if slow:
        yield (
            f"{_named(slow)}: tracing in pure Python, 10 to 20 times slower: "
            "there is no C extension for this interpreter"
        )
    yield from _followed_lines(request, obeyed)
    yield from _unseen_lines(obeyed)
    yield from _late_lines([r for r in rows if not r.obeyed])
    if not rows:
        yield "no rank was selected"


def _late_lines(rows: Sequence[TracedRank]) -> Iterator[str]:
    """Why ranks have not switched."""
    silent = [r for r in rows if not r.note]
    if silent:
        yield (
            f"{_named(silent)}: no answer yet: stopped, or a thread holds the GIL. "
            "They will switch when they run again"
        )
    for row in rows:
        if row.note:
            yield f"rank {row.rank}: {row.note}"


def _followed_lines(request: Request, rows: Sequence[TracedRank]) -> Iterator[str]:
    """What the ranks chose to follow, where no name was given."""
    names = sorted({r.follow for r in rows if r.follow})
    if request.on and not request.follow and names:
        yield f"follows the script's own code: {'; '.join(names)} (others: --follow NAMES)"


def _unseen_lines(rows: Sequence[TracedRank]) -> Iterator[str]:
    """Which of the chosen names no traced rank has imported. If some ranks have, nothing is wrong:
    others may never do.
    """
    traced = [r.unseen.split(",") for r in rows if r.state in ("tracing", "waiting")]
    by_all = set.intersection(*map(set, traced)) if traced else set()
    names = [n for n in traced[0] if n and n in by_all] if traced else []
    if names:
        unseen = ", ".join(names)
        yield f"no traced rank has imported {unseen}: misspelt, or imported later; check with: {_status_of(rows)}"
        offers = _offers(names, [n for n in rows[0].offered.split(",") if n])
        if offers:
            yield f"names that would match: {', '.join(offers)}"


def _status_of(rows: Sequence[TracedRank]) -> str:
    """The command that shows these ranks again."""
    job = next((row.job for row in rows if row.job and not row.node), "")
    return shlex.join(["hangdoctor", "trace", "status", *(["--job", job] if job else [])])


def _offers(wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names to try: those that are spelt alike first, then the script's own."""
    alike = [n for name in wanted for n in difflib.get_close_matches(name, known, _OFFERED)]
    return list(dict.fromkeys([*alike, *known]))[:_OFFERED]


def _named(rows: Iterable[TracedRank]) -> str:
    return plural.ranks(r.rank for r in rows)


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per rank.")
@where_flags
@_rows_flag
def status(as_json: bool, rows: bool, **named: Any) -> None:
    """Show which ranks trace, what they follow, and how far back their calls reach."""
    say, where = progress_to_stderr(rows), Where.of(named)
    if where.nodes:
        found = trace_nodes.ask(where, ["status"], 5.0, say)
    else:
        ranks = find(where.folder, where.job, say)
        say(f"job {ranks[0].box.job} in {', '.join(sorted({str(r.folder) for r in ranks})[:3])}")
        found = [row_of(r) for r in ranks]
    if rows:
        trace_nodes.answer(found)
    elif as_json:
        sys.stdout.buffer.write(printable.as_json(found))
        sys.stdout.flush()
    else:
        for line in _table(found):
            pipes.say(line)


def _table(rows: Sequence[TracedRank]) -> Iterator[str]:
    traced = [r for r in rows if r.state not in ("never traced", "stopped")]
    for follow, ignore in sorted({(r.follow, r.ignore) for r in traced}):
        whose = follow or "the script's own code"
        yield f"follows {whose}, ignores {ignore}" if ignore else f"follows {whose}"
    yield from _unseen_lines(rows)
    width = max((len(r.node) for r in rows), default=0)
    node = f"{'node':<{width}}  " if width else ""
    yield f"{'rank':>5}  {node}{'pid':>8}  {'process':<7}  {'tracing':<13} {'events':>14} {'reaches back':>13} {'last call':>11}"
    for r in rows:
        back, last = ("-" if s < 0 else duration(s) for s in (r.reaches_back_s, r.last_call_s))
        node = f"{r.node:<{width}}  " if width else ""
        state = f"from iter {r.from_iteration}" if r.state == "waiting" else r.state
        line = f"{r.rank:>5}  {node}{r.pid:>8}  {r.process:<7}  {state:<13} {r.events:>14,} {back:>13} {last:>11}"
        yield f"{line}  {r.note}".rstrip()
