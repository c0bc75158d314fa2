"""Joins the parts of the page: data, templates, style and script, under a policy that admits
nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import time
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ..._version import __version__
from ...model.capture import JobCapture
from ...model.diagnosis import Cause, Diagnosis
from ...model.layout import Layout
from ...text.group_words import group_words
from ...text.job_names import short_job
from ...text.plain import visible
from ...text.plural import choose
from ...text.ranges import format_hosts, format_ranks
from . import chat, graph, lanes, rank_details, raw, stacktree
from .group_names import GroupNames, layout_of
from .rank_grid import arrangements
from .safe_text import cut, cut_list, embed, keep_lines, plural

_SCRIPTS = ("core.js", "details.js", "grid.js", "icicle.js", "page.js")
_STYLES = ("base.css", "parts.css", "print.css")
_STATUS = {
    "hang": "Hang",
    "slow": "Slow",
    "failed": "Failed",
    "healthy": "Healthy",
    "unknown": "Unknown",
}
_SOURCES = {
    "stack": "stacks",
    "ops": "operations",
    "proc": "process",
    "ras": "NCCL RAS",
    "gpu": "GPU",
    "log": "log",
    "silence": "silence",
    "trace": "Python calls",
}


def as_bytes(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """The page for `report --html`. The same bundle gives the same bytes."""
    ops = {r.rank: r.ops for r in capture.ranks() if r.ops is not None}
    names = GroupNames(ops.values(), diagnosis.job.world_size, diagnosis.job.layout)
    layout = diagnosis.job.layout
    inferred = layout is None
    if layout is None:
        layout = layout_of(names.all_members(), diagnosis.job.world_size)
        names = GroupNames(ops.values(), diagnosis.job.world_size, layout)
    all_ranks = rank_details.all_ranks(diagnosis)
    found, left_out = lanes.build(diagnosis, ops, names)
    packed = raw.pack(folder)
    context = {
        "d": diagnosis,
        "capture": capture,
        "status": _STATUS[diagnosis.status],
        "job": short_job(diagnosis.job.id),
        "facts": _facts(diagnosis, capture, layout, inferred),
        "all_ranks": all_ranks,
        "counts": _counts(all_ranks),
        "arrangements": arrangements(all_ranks, layout),
        "size": _size(len(all_ranks)),
        "graph": graph.build(diagnosis) if diagnosis.status != "healthy" else None,
        "lanes": found,
        "more_lanes": left_out,
        "marks": lanes.MARKS,
        "ahead": any(o.runs_ahead for o in ops.values()),
        "why_no_lanes": lanes.why_none(diagnosis, capture.origin, len(ops)),
        "tree": stacktree.as_text(diagnosis.stacks),
        "raw": packed,
        "chat": chat.text(diagnosis, capture),
        "version": __version__,
        "command": _command(folder),
        "sources": _SOURCES,
        "wheres": [_where(c) for c in diagnosis.causes],
        "data": _data(diagnosis, capture, layout, names, all_ranks=all_ranks),
    }
    return _render(context).encode()


@cache
def environment() -> jinja2.Environment:
    """Every value of an expression is first made visible, then escaped: no template can forget it."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("hangdoctor.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda v: visible(v) if type(v) is str else v,
    )
    found.filters |= {
        "ranks": format_ranks,
        "hosts": format_hosts,
        "cut": cut,
        "cut_list": cut_list,
        "plural": plural,
        "lines": keep_lines,
    }
    return found


def _render(context: dict[str, Any]) -> str:
    style, script = _static(_STYLES), "(() => {\n" + _static(_SCRIPTS) + "})();\n"
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    return (
        environment()
        .get_template("page.html.j2")
        .render(context, style=Markup(style), script=Markup(script), policy=policy)
    )


@cache
def _static(names: tuple[str, ...]) -> str:
    folder = resources.files("hangdoctor.report.html") / "static"
    return "\n" + "\n".join((folder / name).read_text("utf-8") for name in names)


def _digest(text: str) -> str:
    """A source expression of Content Security Policy level 2: SHA-256 of the element's text, in
    base64.
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(
    diagnosis: Diagnosis,
    capture: JobCapture,
    layout: Layout | None,
    names: GroupNames,
    all_ranks: list[rank_details.Rank],
) -> Markup:
    """What the script needs, as JSON."""
    frames = rank_details.Frames()
    data = rank_details.details(all_ranks, capture, layout, names, frames=frames)
    data["tree"], data["cut"] = stacktree.rows(diagnosis.stacks, frames)
    data["own"] = [
        [format_ranks(g.ranks), [frames.frame(f.name, f.file, f.line) for f in g.frames], g.thread]
        for g in diagnosis.stacks
    ]
    data["waits"] = [
        [format_ranks(w.ranks), format_ranks(w.for_), w.on.op or ""] for w in diagnosis.waits
    ]
    data["missing"] = [[format_ranks(m.ranks), m.why] for m in diagnosis.missing]
    data["causes"] = [[c.kind, format_ranks(c.ranks)] for c in diagnosis.causes]
    data |= {"frames": frames.frames.rows, "files": frames.files.rows, "stacks": frames.stacks.rows}
    return Markup(embed(data))


def _facts(
    diagnosis: Diagnosis, capture: JobCapture, layout: Layout | None, inferred: bool
) -> list[tuple[str, str]]:
    job = diagnosis.job
    named = cut_list(format_hosts(job.nodes), 120)
    nodes = f"{len(job.nodes)}: {named}" if job.nodes else "unknown"
    facts = [("Job", short_job(job.id)), ("Ranks", f"{job.world_size:,}"), ("Nodes", nodes)]
    if layout is not None:
        how = " (read from its groups)" if inferred else ""
        facts.append(("Layout", f"dp {layout.dp} \u00d7 pp {layout.pp} \u00d7 tp {layout.tp}{how}"))
    if capture.taken:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(capture.taken))
        samples = _samples(capture)
        facts.append(("Captured", when + samples))
    if capture.origin == "files":
        numbered = ", ranks numbered by node and pid" if capture.numbered else ""
        facts.append(("From", "saved files" + numbered))
    missing = [m for m in diagnosis.missing if m.what in ("node", "ranks", "dumps")]
    absent = sorted({rank for m in missing for rank in m.ranks})
    if absent:
        shown = cut_list(format_ranks(absent), 80)
        facts.append(("Missing", f"{plural(len(absent), 'rank')}: {shown}"))
    return facts


def _samples(capture: JobCapture) -> str:
    """How often each rank was looked at: twice, or more where two could not tell slow from stuck."""
    if not capture.settle_s:
        return ""
    most = max((len(r.samples) for r in capture.ranks()), default=0)
    if most > 2:
        return f", {most} samples in {capture.settle_s:g} s"
    return f", two samples {capture.settle_s:g} s apart"


def _where(cause: Cause) -> list[tuple[str, str]]:
    """Where a cause sits, as label and text."""
    at = cause.where
    members = cut_list(format_ranks(at.group_ranks), 60) if at.group_ranks else ""
    said = [
        ("is in", at.frame),
        ("blocks", at.op and at.op + (f" #{at.seq}" if at.seq is not None else "")),
        ("group", group_words(at.group or "", members)),
        ("iteration", str(at.iteration) if at.iteration is not None else None),
        ("phase", at.phase),
        ("nodes", cut(format_hosts(cause.nodes), 200) if cause.nodes else None),
    ]
    return [(label, text) for label, text in said if text]


def _counts(all_ranks: list[rank_details.Rank]) -> list[tuple[str, str, int]]:
    """(class, words, number) of each state that some rank is in; culprits first."""
    blamed = sum(r.cause >= 0 for r in all_ranks)
    found = [("cause", choose(blamed, "culprit", "culprits"), blamed)] if blamed else []
    for state, words in rank_details.STATES.items():
        number = sum(r.state == state and r.cause < 0 for r in all_ranks)
        if number:
            found.append((state, words, number))
    return found


def _size(n: int) -> str:
    """The class of a grid of so many ranks."""
    for most, name in ((16, "large"), (64, "medium"), (256, "small")):
        if n <= most:
            return name
    return "tiny"


def _command(folder: Path) -> str:
    listed = raw.manifest(folder)
    return " ".join(listed.command) if listed is not None else ""
