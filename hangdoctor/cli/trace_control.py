"""`hangdoctor trace start`, `stop` and `status`: the switch, and what it did."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from ..errors import UsageError
from ..probe.calls import request as requests
from ..probe.calls.request import Request
from ..ranges import format_ranks, parse_ranks
from ..readers.calls import CallsReader, calls_path
from .output import progress_to_stderr
from .trace_flags import choice_flags
from .trace_target import Traced, again, find, target_flags

_POLL_S = 0.1


def _ranks(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return format_ranks(parse_ranks(value)) if value else None


@click.command("start")
@choice_flags()
@click.option("--ranks", callback=_ranks, metavar="R", help="Only these ranks, as 0-7,12 (default: all).")
@click.option("--size", "size_mb", type=click.FloatRange(1, 4096), metavar="MB", help="Size of each rank's ring (default 16).")
@click.option("--wait", "wait_s", default=5.0, show_default=True, type=click.FloatRange(0), metavar="S",
              help="Seconds to wait for the ranks to say that they trace.")  # fmt: skip
@target_flags
@click.option("--quiet", "-q", is_flag=True, help="Nothing but errors.")
def start(
    follow: tuple[str, ...], ignore: tuple[str, ...], from_iteration: int | None, ranks: str | None, size_mb: float | None,
    wait_s: float, **target: Any,
) -> None:  # fmt: skip
    """Trace Python calls in a running job that carries the probe.

    Every rank keeps its last calls in a ring beside its black box, from about a second after this command on, until
    `trace stop` or the end of the job. They can be read while the rank hangs, is stopped or after it died: `trace tail`,
    and in every `dump`. A second `start` replaces the choice of the first.
    """
    request = Request(time.time_ns(), True, follow, ignore, from_iteration, ranks, size_mb)
    _switch(request, wait_s, **target)


@click.command("stop")
@click.option("--wait", "wait_s", default=5.0, show_default=True, type=click.FloatRange(0), metavar="S",
              help="Seconds to wait for the ranks to say that they have stopped.")  # fmt: skip
@target_flags
@click.option("--quiet", "-q", is_flag=True, help="Nothing but errors.")
def stop(wait_s: float, **target: Any) -> None:
    """Stop tracing in all ranks. What was recorded stays readable until the job ends."""
    _switch(Request(time.time_ns(), False), wait_s, **target)


def _switch(request: Request, wait_s: float, folder: Path | None, job: str, local: bool, quiet: bool) -> None:
    say = progress_to_stderr(quiet)
    ranks = [r for r in find(folder, job, say) if r.box.status == "live"]
    if not ranks:
        raise UsageError("no rank of this job is alive", "What they recorded can be read: hangdoctor trace tail --rank R")
    for where in sorted({r.folder for r in ranks}):
        requests.write(where, request)
    concerned = [r for r in ranks if requests.concerns(request, r.box.rank) and (request.on or r.trace is not None)]
    ranks = _wait(concerned, request.serial, wait_s)
    for line in _outcome(request, ranks):
        say(line)


def _wait(ranks: list[Traced], serial: int, wait_s: float) -> list[Traced]:
    """Until every rank has obeyed, or the time is over."""
    end = time.monotonic() + wait_s
    while True:
        ranks = again(ranks)
        late = [
            r for r in ranks if not (r.trace is not None and r.trace.request >= serial) and "call tracing" not in r.box.note
        ]
        if not late or time.monotonic() > end:
            return ranks
        time.sleep(_POLL_S)


def _outcome(request: Request, ranks: list[Traced]) -> list[str]:
    """What became of a request, as lines."""
    obeyed = [r for r in ranks if r.trace is not None and r.trace.request >= request.serial]
    by_state: dict[str, list[int]] = {}
    for rank in obeyed:
        by_state.setdefault(rank.trace.state if rank.trace is not None else "", []).append(rank.box.rank)
    words = {"tracing": "tracing", "stopped": "stopped", "waiting": f"waiting for iteration {request.from_iteration}",
             "switched_off": "switched off after an internal error (hangdoctor trace status)"}  # fmt: skip
    lines = [f"ranks {format_ranks(of)}: {words[state]}" for state, of in sorted(by_state.items())]
    slow = [r.box.rank for r in obeyed if r.trace is not None and r.trace.python and r.trace.state == "tracing"]
    if slow:
        lines.append(
            f"ranks {format_ranks(slow)} trace in pure Python, several times slower: the C extension was not built for their interpreter"
        )
    late = [r.box.rank for r in ranks if r not in obeyed]
    if late:
        lines.append(
            f"ranks {format_ranks(late)} have not answered yet: stopped, or something holds their interpreter's lock. They will when they can"
        )
    return lines or ["no rank was concerned"]


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a rank.")
@target_flags
def status(as_json: bool, folder: Path | None, job: str, local: bool) -> None:
    """Who traces, what, how much, and how far back the rings reach."""
    ranks = find(folder, job, progress_to_stderr(False))
    rows = [_row(r) for r in ranks]
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
        return
    click.echo(f"job {ranks[0].box.job}, {ranks[0].folder}")
    chosen = {(r["follow"], r["ignore"]) for r in rows if r["state"] not in ("never traced", "stopped")}
    for follow, ignore in sorted(chosen):
        click.echo(f"follows {follow or 'everything but the standard library'}{f', ignores {ignore}' if ignore else ''}")
    click.echo(f"{'rank':>5} {'pid':>8}  {'process':<7}  {'tracing':<13} {'events':>12} {'reaches back':>13} {'last call':>11}")
    for row in rows:
        back, last = (f"{row[k]:.1f} s" if row[k] is not None else "-" for k in ("reaches_back_s", "last_call_s"))
        click.echo(
            f"{row['rank']:>5} {row['pid']:>8}  {row['process']:<7}  {row['state']:<13} {row['events']:>12,} {back:>13} {last:>11}"
            + (f"  {row['note']}" if row["note"] else "")
        )


def _row(rank: Traced) -> dict[str, Any]:
    """One rank as numbers and words; times in seconds before now, None where nothing was recorded."""
    trace, box = rank.trace, rank.box
    row: dict[str, Any] = {
        "rank": box.rank, "pid": box.pid, "process": box.status, "state": "never traced", "events": 0, "follow": "", "ignore": "",
        "variant": "", "reaches_back_s": None, "last_call_s": None, "note": rank.trouble or box.note,
    }  # fmt: skip
    if trace is None:
        return row
    state = f"from iter {trace.from_iteration}" if trace.state == "waiting" else trace.state.replace("_", " ")
    row |= {
        "state": state, "events": trace.written, "follow": ",".join(trace.follow), "ignore": ",".join(trace.ignore),
        "variant": "python" if trace.python else "extension", "note": trace.note or row["note"],
    }  # fmt: skip
    with CallsReader(calls_path(box.path)) as reader:
        newest, oldest = reader.read(last=1), reader.read_oldest()
    now = time.time()
    if newest.events:
        row["last_call_s"] = round(max(0.0, now - newest.base_ns / 1e9), 2)
    if oldest.events:
        row["reaches_back_s"] = round(max(0.0, now - oldest.base_ns / 1e9), 2)
    return row
