"""`hangdoctor trace tail`: the calls of one rank as they happen, and where it is when they stop."""

from __future__ import annotations

import shlex
import time
from typing import Any

import click

from ...diagnosis.findings import Doing
from ...diagnosis.wording import terms
from ...errors import BadInput, NoRanksFound, UsageError
from ...model.calls import CallTrace
from ...readers import proc
from ...readers.calls import CallsReader, calls_path
from ...text.job_names import short_job
from ...text.ranges import format_ranks
from .. import pipes
from ..output import progress_to_stderr
from ..targets import reach_flags_beside_n
from . import nodes as trace_nodes
from .nodes import Where
from .tail_rows import Fold, Rows, where_words
from .target import NEXT_TIME, Traced, TracedRank, again, find, jobid_flag, target_flags

_POLL_S = 0.2
_STATUS_S = 5.0  # to find the node of the rank
_QUIET_S = 3.0  # without a call: then print where the rank is
_NUMBER_S = 2.0  # between two lines about a loop that goes on
_MAX_AT_ONCE = 20_000  # most events to show at once; of more only the last ones


@click.command("tail")
@click.option(
    "--rank", type=click.IntRange(0), required=True, metavar="R", help="The rank to follow."
)
@click.option(
    "-n",
    "--lines",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Number of earlier lines to print first.",
)
@click.option(
    "--all-threads", is_flag=True, help="Show all threads of the rank, not only the main one."
)
@click.option("--no-wait", is_flag=True, help="Print the earlier events and exit.")
@target_flags
@jobid_flag("finds the node of the rank.")
@reach_flags_beside_n
def tail(rank: int, lines: int, all_threads: bool, no_wait: bool, **named: Any) -> None:
    """Follow the calls of one rank, like tail -f; also while it hangs or after it died.

    \b
    > called    < returned    ! left by an exception    = was already in it when tracing started

    Of a loop the first two rounds are printed, and how many came after them.
    Ends with the rank's process, with Ctrl-C, or when the reader has gone (`| head`).
    """
    say, where = progress_to_stderr(False), Where.of(named)
    if where.nodes:
        rows = trace_nodes.ask(where, ["status"], _STATUS_S, say)
        node = _node_of(rows, rank, where)
        flags = [*(["--all-threads"] if all_threads else []), *(["--no-wait"] if no_wait else [])]
        words = ["tail", "--rank", str(rank), "-n", str(lines), *flags]
        trace_nodes.follow(where, node, words, say)
        return
    _tail(_rank(find(where.folder, where.job, say), rank), lines, all_threads, no_wait)


def _node_of(rows: list[TracedRank], rank: int, where: Where) -> str:
    """The node of a rank's newest process.

    Raises:
        NoRanksFound: no node knows of it.
        UsageError: it was never traced.
    """
    own = [r for r in rows if r.rank == rank]
    if not own:
        there = format_ranks(sorted({r.rank for r in rows}))
        help = f"There are: {there}." if there else "Start the job with: hangdoctor run -- CMD"
        raise NoRanksFound(f"rank {rank} was not found with a probe on {where.nodes}", help)
    newest = max(own, key=lambda r: (r.process == "live", r.state != "never traced"))
    if newest.state == "never traced" and not newest.note:
        raise _never_traced(rank, f" {shlex.join(where.target_flags)}")
    return newest.node


def _tail(traced: Traced, lines: int, all_threads: bool, no_wait: bool) -> None:
    view = _View(all_threads)
    with CallsReader(calls_path(traced.box.path), {traced.box.owner}) as reader:
        trace = reader.read_last(max(lines, 200))
        seen = trace.written
        view.begin(trace, lines)
        if no_wait or traced.box.status != "live":
            _say_where(view, traced)
            return
        quiet, told = time.monotonic(), False
        while True:
            more = reader.read(since=max(seen, reader.written() - _MAX_AT_ONCE))
            if more.written > seen:
                if more.written - seen > _MAX_AT_ONCE:
                    view.say_rest()
                    pipes.say(f"... {more.written - seen - _MAX_AT_ONCE:,} events skipped ...")
                seen, quiet, told = more.written, time.monotonic(), False
                view.show(more)
            elif again([traced])[0].box.status != "live":
                _say_where(view, traced)
                return
            elif time.monotonic() - quiet > _QUIET_S and not told:
                _say_where(view, traced)
                told = True
            pipes.pause(_POLL_S)


def _rank(ranks: list[Traced], rank: int) -> Traced:
    """The rank's newest process.

    Raises:
        UsageError: it is not here, or was never traced.
        BadInput: its file cannot be read.
    """
    own = [r for r in ranks if r.box.rank == rank]
    if not own:
        there = sorted({r.box.rank for r in ranks})
        raise UsageError(
            f"rank {rank} is not on this host", f"This host has ranks {', '.join(map(str, there))}."
        )
    traced = max(own, key=lambda r: r.box.created_s)
    if traced.trouble:
        raise BadInput(traced.trouble)
    if traced.trace is None and traced.box.status != "live":
        raise UsageError(f"rank {rank} has ended and was never traced", NEXT_TIME)
    if traced.trace is None:
        raise _never_traced(rank, f" --job {shlex.quote(short_job(traced.box.job))}")
    return traced


def _never_traced(rank: int, where: str = "") -> UsageError:
    return UsageError(
        f"rank {rank} was never traced",
        f"Start tracing: hangdoctor trace start{where} --follow PACKAGES",
    )


class _View:
    """Prints the calls of one rank."""

    def __init__(self, all_threads: bool) -> None:
        self.rows, self._fold = Rows(all_threads), Fold()
        self._numbered = time.monotonic()

    def begin(self, trace: CallTrace, last: int) -> None:
        """The last lines of what there is."""
        self.rows.begin(trace)
        lines = [*self._fold.lines(self.rows.of(trace, trace.events)), *self._fold.rest()]
        for line in lines[len(lines) - min(last, len(lines)) :]:
            pipes.say(line)

    def show(self, trace: CallTrace) -> None:
        """What has come; of a loop that goes on for long, now and then how many rounds came."""
        for line in self._fold.lines(self.rows.of(trace, trace.events)):
            pipes.say(line)
            self._numbered = time.monotonic()
        if time.monotonic() - self._numbered > _NUMBER_S:
            self.say_rest()

    def say_rest(self) -> None:
        """Print what waits to be folded: nothing comes any more, or not soon."""
        self._numbered = time.monotonic()
        for line in self._fold.rest():
            pipes.say(line)


def _say_where(view: _View, traced: Traced) -> None:
    """Print on stderr since when nothing was recorded, what the rank is still in, and what it does."""
    view.say_rest()
    now, rows = again([traced])[0], view.rows
    state = {"live": "", "dead": " (the process has ended)"}.get(now.box.status, "")
    off = ""
    if now.trace is not None and now.trace.state != "tracing":
        off = f" [tracing: {now.trace.state.replace('_', ' ')}]"
    quiet_s = max(0.0, time.time() - rows.last_s) if rows.last_s else -1.0
    lives = now.box.status == "live" and not off
    doing = _doing(now.box.pid, rows.main) if lives else ""
    said = where_words(rows.stacks.get(rows.main, []), quiet_s, doing)
    pipes.say(f"hangdoctor: rank {traced.box.rank}{state}: {said}{off}", err=True)


def _doing(pid: int, tid: int) -> str:
    """What the thread does now, by /proc; "" where that cannot be read."""
    thread = proc.sample_thread(pid, tid)
    if thread is None:
        return ""
    blocked = thread.state != "R" and thread.syscall not in ("", "running")
    return terms.doing(Doing("blocked", thread.syscall) if blocked else Doing("running"))
