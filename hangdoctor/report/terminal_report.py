"""The report on a terminal: where each rank is, what is missing, the evidence; at the end, where the
prompt comes, the verdict, what to do and the bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..model.capture import JobCapture
from ..model.diagnosis import Cause, Diagnosis, LogLine, Missing
from ..text import alike
from ..text.durations import duration
from ..text.job_names import short_job
from ..text.plain import visible
from ..text.plural import choose, count
from ..text.printable import cleaned
from ..text.ranges import format_hosts, format_ranks
from . import tree
from .fit import Section, fit, wrapped

_COLOURS = {
    "hang": "bold red",
    "slow": "bold yellow",
    "failed": "bold red",
    "healthy": "bold green",
    "unknown": "bold magenta",
}
_MAX_CAUSES = 5
_MAX_TABLE = 16  # more ranks than these are shown by place only
_MAX_NOTES = 4
_ONE = "1 rank 0"  # how the tree calls the only process
_LINE = 140  # characters of a line of a log


def render(
    diagnosis: Diagnosis,
    console: Console,
    bundle: str = "",
    rows: int = 0,
    more: Sequence[str] = (),
) -> None:
    """Print the report, in at most `rows` rows (0: whole); `console` decides on colours and width.

    `bundle` is the line about it, `more` are lines for just before the verdict.
    """
    for section in report_sections(diagnosis, console, bundle, rows=rows, more=more):
        for line in section.lines:
            for row in wrapped(line, console):
                console.print(row, highlight=False, soft_wrap=True)


def report_sections(
    diagnosis: Diagnosis,
    console: Console,
    bundle: str = "",
    rows: int = 0,
    more: Sequence[str] = (),
) -> list[Section]:
    """The report in sections, with rich's markup; text from the job is escaped.

    The last one is the verdict, DO and the bundle, and is never shortened.
    """
    diagnosis = cleaned(diagnosis)  # one place for all texts, also of fields that are added later
    parts = (
        _job,
        _chain,
        _around,
        _pointed,
        _stacks,
        _table,
        _missing,
        _evidence,
        _calls,
        _notes,
        _also,
    )
    sections = [Section(list(part(diagnosis))) for part in parts]
    sections.append(Section([escape(visible(line)) for line in more], whole=True))
    closing = list(_verdict(diagnosis, visible(bundle)))
    sections = [section for section in sections if section.lines]
    sections.append(Section(["", *closing], whole=True))
    return fit(sections, console, rows) if rows else sections


def plain(diagnosis: Diagnosis, bundle: str = "") -> str:
    """The report as text without colours."""
    import io

    out = io.StringIO()
    render(
        diagnosis,
        Console(file=out, no_color=True, width=160, force_terminal=False, emoji=False),
        bundle,
    )
    return out.getvalue()


def as_bytes(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """The same for `report --text`."""
    return plain(diagnosis).encode()


def _verdict(diagnosis: Diagnosis, bundle: str) -> Iterator[str]:
    colour = _COLOURS[diagnosis.status]
    first = diagnosis.causes[0] if diagnosis.causes else None
    sure = f" [dim]({_sure(first)})[/]" if first is not None else ""
    yield f"[{colour}]{diagnosis.status.upper()}[/] {escape(diagnosis.summary)}{sure}"
    advice = first.advice if first is not None else diagnosis.advice
    if advice:
        yield f"[bold]DO[/]   {escape(advice)}"
    if bundle:
        yield f"[dim]bundle[/] {escape(bundle)}"


def _sure(cause: Cause) -> str:
    """``not_entered, confidence 94 %``."""
    return f"{cause.kind}, confidence {cause.confidence * 100:.0f} %"


def _also(diagnosis: Diagnosis) -> Iterator[str]:
    """The other causes, least likely last; of what is left open, the others."""
    colour = _COLOURS[diagnosis.status]
    if diagnosis.open and not diagnosis.causes:
        yield from (
            f"[{colour}]ALSO[/] {escape(one.summary)}" for one in diagnosis.open[1:_MAX_CAUSES]
        )
    if len(diagnosis.causes) > 1:
        yield ""
    said = {cause.advice for cause in diagnosis.causes[:1]}
    for cause in diagnosis.causes[1:_MAX_CAUSES]:
        yield f"[{colour}]ALSO[/] {escape(cause.summary)} [dim]({_sure(cause)})[/]"
        if cause.advice and cause.advice not in said:
            said.add(cause.advice)
            yield f"     {escape(cause.advice)}"
    if len(diagnosis.causes) > _MAX_CAUSES:
        rest = sorted({r for c in diagnosis.causes[_MAX_CAUSES:] for r in c.ranks})
        more = len(diagnosis.causes) - _MAX_CAUSES
        yield f"[{colour}]ALSO[/] {more} more causes: ranks {_cut(format_ranks(rest))} (--json lists them)"


def _job(diagnosis: Diagnosis) -> Iterator[str]:
    job = diagnosis.job
    layout = (
        f", layout dp={job.layout.dp} pp={job.layout.pp} tp={job.layout.tp}" if job.layout else ""
    )
    nodes = "nodes unknown"
    if job.nodes:
        nodes = f"{count(len(job.nodes), 'node')} {_cut(format_hosts(job.nodes), 60)}"
    size = f"world size {job.world_size}" if job.world_size else "world size unknown"
    yield f"[bold]job[/]  {escape(short_job(job.id))}: {size}, {escape(nodes)}{layout}"


_CHAIN = {
    "progress": "dim",
    "cause": "bold red",
    "wait": "yellow",
    "consequence": "cyan",
    "end": "cyan",
}


def _chain(diagnosis: Diagnosis) -> Iterator[str]:
    """What happened in the order of time, as the job's logs tell it."""
    if not diagnosis.chain:
        return
    yield ""
    of_boxes = all(h.file.endswith((".blackbox", ": exit codes")) for h in diagnosis.chain)
    source = "black boxes and exit codes" if of_boxes else "logs"
    yield f"[bold]what happened[/] (from the {source}; clocks of nodes may differ)"
    width = max(len(f"{h.file}:{h.line}") for h in diagnosis.chain)
    for happening in diagnosis.chain:
        ranks = _cut(format_ranks(happening.ranks), 24)
        who = f"{choose(happening.ranks, 'rank', 'ranks')} {ranks}: " if ranks else ""
        at = f"{happening.at:<19}  " if happening.at else f"{'':<19}  "
        place = f"{happening.file}:{happening.line}"
        colour = _CHAIN[happening.role]
        said = escape(f"{who}{happening.says}")
        yield f"  {at}[dim]{escape(place):<{width}}[/]  [{colour}]{happening.role:<11}[/]  {said}"


def _around(diagnosis: Diagnosis) -> Iterator[str]:
    """The lines of the log around the one that the verdict rests on."""
    around = diagnosis.around
    if around is None or not around.lines:
        return
    yield ""
    place = f"around {around.file}:{around.line}" if around.line else f"last lines of {around.file}"
    yield f"[bold]{escape(place)}[/]"
    yield from _log_lines(around.lines, around.line)


def _pointed(diagnosis: Diagnosis) -> Iterator[str]:
    """Other lines that speak of a failure, where the verdict has little evidence."""
    for one in diagnosis.pointed:
        yield ""
        yield f"[bold]{escape(f'lines of {one.file} that speak of a failure')}[/]"
        yield from _log_lines(one.lines)


def _log_lines(lines: Sequence[LogLine], own: int = 0) -> Iterator[str]:
    """Each with its number; the one with the number `own` is marked."""
    width = len(str(lines[-1].line))
    for one in lines:
        says = one.says if len(one.says) <= _LINE else one.says[: _LINE - 1] + "…"
        text = f"{'>' if one.line == own else ' '} {one.line:>{width}}  {says}"
        yield f"[{'bold' if one.line == own else 'dim'}]{escape(text)}[/]"


def _stacks(diagnosis: Diagnosis) -> Iterator[str]:
    groups = diagnosis.stacks
    if not groups:
        return
    yield ""
    number = sum(len(g.ranks) for g in groups)
    stacks = count(len(groups), "different stack")
    if diagnosis.called:
        yield f"[bold]where {escape(diagnosis.called)} is[/] (which rank it is does not show)"
    else:
        yield f"[bold]where the ranks are[/] ({count(number, 'rank')}, {stacks})"
    culprits = {r for c in diagnosis.causes for r in c.ranks}
    guilty = {format_ranks(g.ranks) for g in groups if set(g.ranks) <= culprits}
    for label, frames in tree.lines(tree.build(groups)):
        ranks = label.rpartition(" ")[2]
        label = label.replace(_ONE, diagnosis.called) if diagnosis.called else label
        mark = "[bold red]" if ranks in guilty else "[cyan]"
        yield f"  {mark}{escape(label)}[/]  {escape(frames)}"


def _table(diagnosis: Diagnosis) -> Iterator[str]:
    """Rank, node, process and GPU of everyone in a small job, else of the culprits."""
    culprits = {r for c in diagnosis.causes for r in c.ranks}
    everybody = len(diagnosis.ranks) <= _MAX_TABLE and not diagnosis.called
    rows = [r for r in diagnosis.ranks if everybody or r.rank in culprits][:_MAX_TABLE]
    if not rows:
        return
    yield ""
    has_gpus = any(r.gpu for r in rows)
    width = max(4, *(len(r.node) for r in rows))
    device = "gpu  " if has_gpus else ""
    yield f"[bold]{'rank':>5}  {'node':<{width}}  {'pid':>7}  {device}{'state':<11}  place[/]"
    for row in rows:
        device = f"{row.gpu or '-':<3}  " if has_gpus else ""
        node = f"{escape(row.node):<{width}}"
        line = f"{row.rank:>5}  {node}  {row.pid or '-':>7}  {device}{row.state:<11}  {escape(row.place)}"
        yield f"[bold red]{line}[/]" if row.rank in culprits else line


def _missing(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.missing:
        yield ""
    told = ""
    every = _joined(diagnosis.missing)
    for missing in every[:_MAX_CAUSES]:
        at = f" on {missing.node}" if missing.node else ""
        ranks = _ranks(missing.ranks) if missing.ranks else "unknown ranks"
        why = f": {missing.why}"
        if missing.why in diagnosis.summary:
            why = ", see the verdict"
        elif missing.why in told:
            why = ", see above"
        of = "" if missing.what == "ranks" else f"{missing.what} of "
        yield f"[yellow]missing[/] {of}{ranks}{escape(at + why)}"
        told += missing.why
    if len(every) > _MAX_CAUSES:
        yield f"[yellow]missing[/] {len(every) - _MAX_CAUSES} more entries (--json lists them)"


def _joined(entries: Sequence[Missing]) -> list[Missing]:
    """Nodes that are missing for one reason as one entry."""
    shared = alike.grouped((m.node or "", m.why) for m in entries if m.what == "node")
    joined = []
    for nodes, why in shared:
        ranks = [
            r for m in entries if m.what == "node" and (m.node or "") in nodes for r in m.ranks
        ]
        several = f" ({count(len(nodes), 'node')})" if len(nodes) > 1 else ""
        joined.append(Missing(sorted(ranks), f"{format_hosts(nodes)}{several}", "node", why))
    return joined + [m for m in entries if m.what != "node"]


def _evidence(diagnosis: Diagnosis) -> Iterator[str]:
    for n, cause in enumerate((diagnosis.causes or diagnosis.open)[:2]):
        yield ""
        yield f"[bold]evidence{f' of the other: {_named(cause)}' if n else ''}[/]"
        for evidence in cause.evidence[: 2 if n else 6]:
            of_stacks = evidence.source != "log"  # a log's ranks are its own
            who = (of_stacks and diagnosis.called) or _ranks(evidence.ranks, 24)
            who = f"{who}: " if evidence.ranks else ""
            yield f"  {evidence.source:<7} {who}{escape(evidence.says)}"
        more = len(cause.evidence) - (2 if n else 6)
        if more > 0:
            yield f"  [dim]and     {more} more (--json and the page list them)[/]"
        yield from _alternatives(cause)


def _named(cause: Cause) -> str:
    return _ranks(cause.ranks, 24)


def _ranks(ranks: list[int], room: int = 48) -> str:
    """``rank 3``, ``ranks 0-3,8``; a long list is cut."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {_cut(format_ranks(ranks), room)}"


def _alternatives(cause: Cause) -> Iterator[str]:
    for other in cause.alternatives[:3]:
        ranks = f" of {_ranks(other.ranks, 24)}" if other.ranks else ""
        yield f"  not     {other.kind}{ranks}: {escape(other.why_not)}"


def _calls(diagnosis: Diagnosis) -> Iterator[str]:
    """The last calls of the culprit and of a healthy rank, where tracing was on."""
    parting = diagnosis.calls
    if parting is None:
        return
    yield ""
    yield "[bold]last Python calls[/] (hangdoctor trace)"
    if parting.common:
        since = f", {parting.since}" if parting.since else ""
        yield f"  both     the same {count(parting.common, 'event')}{since}, until they {escape(parting.alike)}"
    for of, colour in ((parting.culprit, "bold red"), (parting.peer, "cyan")):
        if of is not None:
            label = f"rank {of.rank}"
            then = "then " if parting.common else ""
            yield f"  [{colour}]{label:<8}[/] {then}{escape('; '.join(of.calls) or 'no further call')}"
            if of.inside:
                age = f", no call for {duration(of.last_s)}" if of.last_s >= 1 else ""
                yield f"           still in {escape(' > '.join(of.inside[-4:]))}{age}"


def _notes(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.notes:
        yield ""
    shown = {m.why for m in diagnosis.missing[:_MAX_CAUSES] if m.why}
    for note in diagnosis.notes[:_MAX_NOTES]:
        for why in shown:
            place = "see the verdict" if why in diagnosis.summary else "see above"
            note = note.replace(why, place)
        yield f"[dim]note[/] {escape(note)}"
    if len(diagnosis.notes) > _MAX_NOTES:
        yield f"[dim]note[/] {len(diagnosis.notes) - _MAX_NOTES} more (--json lists them)"


def _cut(text: str, width: int = 48) -> str:
    return text if len(text) <= width else text[: width - 1].rpartition(",")[0] + ",…"
