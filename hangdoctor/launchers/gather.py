"""Joins the reports of all nodes to one capture, and says which nodes and ranks are missing and
why.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ..errors import HangdoctorError, LauncherError, NoRanksFound, WireError
from ..model.capture import (
    JobCapture,
    NodeCapture,
    RankCapture,
    SilentNode,
    world_size_of,
)
from ..readers import other_ports
from ..readers.ended_nodes import joined
from ..readers.node import CaptureOptions
from ..readers.ranks_by_node import ranks_behind, unreported
from ..text import alike
from ..text.plural import choose, count
from ..text.ranges import format_hosts, format_ranks
from ..transport.capture_codec import unpack_capture
from ..transport.stdout_frame import NodeReply, unpack
from .remote import Outcome

_ROOT = (
    Path(__file__).resolve().parents[2]
)  # what must be on the path for `import hangdoctor` and `import hangdoctor.agents`

# What the remote side prints on stderr if the agent could not run, in plain words; {} is the node.
# A line of stderr has to hold the first, and behind it one of the second.
_STARTERS = r"execve\(\)|env|exec|sh"
_SET_UP = (
    (
        r"No module named '?(?=hangdoctor|agents|msgspec|psutil|click)",
        ("",),
        "the Python there cannot import hangdoctor",
    ),
    (_STARTERS, ("No such file or directory", "not found"), "there is no such Python"),
    (_STARTERS, ("Permission denied",), "there is no permission to run that Python"),
)
SET_UP_HELP = "Install hangdoctor at the same path on the nodes, or choose a Python there that can import it: --python PATH."
_NOISE = re.compile(
    r"cluster configuration lacks support for cpu binding|Exited with exit code|Terminating StepId|Force Terminated|"
    r"Timed out waiting for job step|^Warning: Permanently added|^\s*$|^[-=+]+$|Job step aborted|Check SLURM_JOB_ID"
)


def agent_words(options: CaptureOptions) -> list[str]:
    """The words behind `hangdoctor` that start the one-shot agent."""
    return ["agent", "--once", base64.urlsafe_b64encode(msgspec.json.encode(options)).decode()]


def agent_command(options: CaptureOptions, python: str = "") -> list[str]:
    """The one-shot agent as a command that needs no login-shell set-up: by path, with this package
    on its path.
    """
    return own_command(agent_words(options), python)


def staying_agent(flags: Sequence[str], python: str = "") -> list[str]:
    """The agent that runs as long as its job, as such a command."""
    return own_command(["agent", *flags], python)


def own_command(words: Sequence[str], python: str = "") -> list[str]:
    """``hangdoctor WORDS`` on a node; another `python` brings its own hangdoctor."""
    # Whatever the training's environment starts in every Python (a probe, too) must stay away from
    # the agent.
    settings = ["HANGDOCTOR_DISABLE=1"]
    if not python:
        inherited = [p for p in os.environ.get("PYTHONPATH", "").split(":") if p]
        settings.append("PYTHONPATH=" + ":".join([str(_ROOT), *inherited]))
    return ["/usr/bin/env", *settings, python or sys.executable, "-m", "hangdoctor", *words]


def shell_command(argv: Sequence[str]) -> str:
    """The command for a remote login shell, whichever it is; away from a home folder that may not
    answer.
    """
    return "cd /; exec " + shlex.join(argv)


def node_options(options: CaptureOptions, left_s: float) -> CaptureOptions:
    """The options for the agents: a shorter deadline, so that they answer before theirs is over."""
    timeout = max(0.3, left_s - max(0.5, 0.15 * left_s))
    return msgspec.structs.replace(
        options, timeout_s=round(timeout, 2), settle_s=min(options.settle_s, timeout / 2)
    )


class Gathered(msgspec.Struct):
    """The answers of all nodes, sorted by what they are."""

    captures: dict[str, NodeCapture] = {}
    empty: dict[str, NodeReply] = {}  # answered, and had nothing to show
    silent: dict[str, Outcome] = {}
    damaged: dict[str, str] = {}


def sort_out(outcomes: Sequence[Outcome]) -> Gathered:
    """Unpack every report; a report counts when its end marker came and its checksum fits, whatever
    the exit code.
    """
    gathered = Gathered()
    for outcome in outcomes:
        try:
            reply = unpack(outcome.output)
            if reply.body:
                # Each with its own tables: a node may be left out, and groups must not go with it.
                gathered.captures[outcome.node] = unpack_capture(reply.body)
            else:
                gathered.empty[outcome.node] = reply
        except WireError as error:
            gathered.silent[outcome.node] = outcome
            if outcome.output.strip() and "no report" not in str(error):
                gathered.damaged[outcome.node] = str(error)
    return gathered


def last_words(errors: str) -> str:
    """The line of stderr that says most, without the noise that every failed step makes."""
    lines = [line.strip() for line in errors.splitlines() if not _NOISE.search(line)]
    return re.sub(r"^(srun|slurmstepd[-\w]*): (error: )?", "", lines[0])[:200] if lines else ""


def set_up_trouble(errors: str) -> str:
    """Why the agent could not even start, in plain words; "" where it was not that."""
    lines = errors.splitlines()
    return next(
        (
            words
            for first, then, words in _SET_UP
            if any(_in_order(line, first, then) for line in lines)
        ),
        "",
    )


def _in_order(line: str, first: str, then: Sequence[str]) -> bool:
    """As the pattern ``first.*then``, whose time would grow with the square of the line's length."""
    begin = re.search(first, line)
    return begin is not None and any(line.find(word, begin.end()) >= 0 for word in then)


def why_silent(outcome: Outcome, damaged: str, waited_s: float, state: str = "") -> str:
    """Why a node did not report, for a person: what happened, and what the scheduler knows about
    the node.
    """
    said = last_words(outcome.errors)
    if damaged:
        why = damaged
    elif outcome.lost:
        why = outcome.lost
    elif set_up_trouble(outcome.errors):
        why = f"{set_up_trouble(outcome.errors)} ({said})"
    elif outcome.code is None and outcome.took_s:
        begun = outcome.started_s
        what = (
            "no answer"
            if begun is None
            else f"its agent started after {begun:.1f} s but sent no report"
        )
        why = f"{what} within {waited_s:.0f} s" + (f" ({said})" if said else "")
    else:
        why = said or f"the command ended without a report (exit code {outcome.code})"
    return f"{why}; {state}" if state else why


def join(
    gathered: Gathered,
    order: Sequence[str],
    whys: Mapping[str, str],
    options: CaptureOptions,
    job: str = "",
) -> JobCapture:
    """All answers as one capture.

    Raises:
        NoRanksFound: every node answered, and none has a rank of the job.
        LauncherError: no agent could be started, for one and the same reason.
    """
    _refuse_nothing(gathered, order)
    notes: list[str] = []
    captures = _one_host_once(gathered.captures, notes)
    captures = _one_job(captures, notes)
    world = world_size_of(captures.values())
    without = not any(capture.ranks for capture in captures.values())
    reported = {node: sorted(r.rank for r in captures[node].ranks) for node in captures}
    silent_nodes = [n for n in order if n in gathered.silent]
    empty_nodes = [n for n in order if n in gathered.empty]
    # A node that answered without a rank has lost its own, or never had one: the first where the
    # numbers fit it.
    behind = {} if without else ranks_behind(order, reported, silent_nodes + empty_nodes, world)
    if not behind and not without:
        behind = ranks_behind(order, reported, silent_nodes, world)
    nodes = list(captures.values()) + _emptied(gathered, behind, world, notes)
    if without:  # torchrun waits on some nodes: the empty ones are those that have not come
        nodes += [NodeCapture(node) for node in empty_nodes]
    silent = [SilentNode(n, whys[n], behind.get(n, [])) for n in silent_nodes]
    logs = joined(nodes) if not silent else None
    for node in nodes:
        node.ended = None
    return JobCapture(
        job=job or _most_common_job(captures.values()),
        nodes=nodes,
        silent=_merge_unplaced(silent, behind, reported, world),
        world_size=world,
        layout=next((c.layout for c in captures.values() if c.layout), None),
        settle_s=options.settle_s,
        notes=notes,
        logs=logs,
        over=logs is not None,
    )


def _most_common_job(captures: Iterable[NodeCapture]) -> str:
    keys = Counter(capture.job for capture in captures).most_common(1)
    return keys[0][0] if keys else "unknown"


def _refuse_nothing(gathered: Gathered, order: Sequence[str]) -> None:
    """Raise where there is nothing to diagnose and one reason for it."""
    if gathered.captures:
        return
    where = format_hosts(order)
    if gathered.empty and not gathered.silent:
        first = next(iter(gathered.empty.values()))
        raise NoRanksFound(
            f"{choose(order, 'the only node', f'all {len(order)} nodes')} answered ({where}), and none has a rank of the job: {first.error}",
            first.help,
        )
    troubles = {set_up_trouble(o.errors) for o in gathered.silent.values()}
    if len(troubles) == 1 and "" not in troubles and not gathered.empty:
        said = last_words(next(iter(gathered.silent.values())).errors)
        raise LauncherError(
            f"the agent could not start on {where}: {troubles.pop()} ({said})", SET_UP_HELP
        )


def _one_host_once(captures: Mapping[str, NodeCapture], notes: list[str]) -> dict[str, NodeCapture]:
    """A host that was reached by two names counts once."""
    seen: dict[tuple[object, ...], str] = {}
    kept: dict[str, NodeCapture] = {}
    for name, capture in captures.items():
        identity = (capture.node, *sorted((r.pid, r.started) for r in capture.ranks))
        if identity in seen:
            notes.append(f"{seen[identity]} and {name} are the same host ({capture.node})")
            continue
        seen[identity] = name
        kept[name] = capture
    return kept


def _key(capture: NodeCapture) -> str:
    """The job's key without what differs from host to host: the number of a parent process."""
    return re.sub(r"(^parent:|/)\d+$", "", capture.job)


def _one_job(captures: dict[str, NodeCapture], notes: list[str]) -> dict[str, NodeCapture]:
    """Ranks of two jobs make no sense together: the job that most nodes show stays."""
    if not any(capture.ranks for capture in captures.values()):
        return captures  # torchrun waits on each: one of them may look for another rendezvous
    counts = Counter(_key(c) for c in captures.values())
    if len(counts) < 2 or _look_elsewhere(captures.values()):
        return captures
    kept = counts.most_common(1)[0][0]
    for key in sorted(set(counts) - {kept}):
        names = format_hosts(n for n, c in captures.items() if _key(c) == key)
        notes.append(f"{names} runs another job ({key}) and is left out; choose a job with --job")
    return {n: c for n, c in captures.items() if _key(c) == kept}


def _look_elsewhere(captures: Iterable[NodeCapture]) -> bool:
    """Whether these are nodes of one job that were given different addresses or ports of the store."""
    nodes = list(captures)
    sizes = [[(r.rank, r.world_size) for r in node.ranks] for node in nodes]
    return all(other_ports.is_place(node.job) for node in nodes) and other_ports.complement(sizes)


def _emptied(
    gathered: Gathered, behind: Mapping[str, list[int]], world: int, notes: list[str]
) -> list[NodeCapture]:
    """Nodes that answered and have no rank any more: theirs have ended, where they had some."""
    nodes: list[NodeCapture] = []
    for name, reply in gathered.empty.items():
        ranks = [
            RankCapture(pid=0, rank=r, node=name, world_size=world, gone=True)
            for r in behind.get(name, [])
        ]
        if ranks:
            nodes.append(
                NodeCapture(
                    name,
                    ranks=ranks,
                    notes=[f"{name} answered but has no rank of the job: {reply.error}"],
                )
            )
    rest = [n for n in gathered.empty if not behind.get(n)]
    if rest:
        notes.append(
            f"{format_hosts(rest)} answered but have no rank of the job: {gathered.empty[rest[0]].error}"
        )
    return nodes


def _merge_unplaced(
    silent: list[SilentNode],
    behind: Mapping[str, list[int]],
    reported: Mapping[str, list[int]],
    world: int,
) -> list[SilentNode]:
    """Where it cannot be told which silent node has which ranks, they are behind all of these nodes
    together.
    """
    lost = unreported(reported, world)
    if not lost or behind or len(silent) < 2:
        return silent
    whys = alike.in_words((s.node, s.why) for s in silent)
    more = f"; and {len(whys) - 4} more" if len(whys) > 4 else ""
    why = "; ".join(whys[:4]) + more
    return [SilentNode(format_hosts(s.node for s in silent), why, lost)]


def summary(gathered: Gathered, total: int) -> str:
    """One line of progress."""
    ranks = [r.rank for c in gathered.captures.values() for r in c.ranks]
    found = ""
    if ranks:
        found = f", ranks {format_ranks(ranks)}"
    elif gathered.captures:
        found = ", none has a rank"
    silent = f"; no answer from {format_hosts(gathered.silent)}" if gathered.silent else ""
    return f"{len(gathered.captures)} of {count(total, 'node')} reported{found}{silent}"


def refused(
    errors: Sequence[str], table: Sequence[tuple[str, type[HangdoctorError], str, str]]
) -> HangdoctorError | None:
    """The error of `table` (pattern, class, message, help) that all of `errors` agree on."""
    for pattern, kind, message, help in table:
        if errors and all(re.search(pattern, text) for text in errors):
            return kind(message, help)
    return None
