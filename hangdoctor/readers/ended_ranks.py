"""How the ranks of a job that is over ended: from black boxes, and from the file of `hangdoctor
run`.

Both become facts of `log_facts`, as job logs do, so that one pass decides on both, alone or
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..errors import BadInput
from ..files import read_regular
from ..model.frame import Frame
from ..model.log_facts import (
    AnyFact,
    Ended,
    GlooTimeout,
    JobLogs,
    LogFile,
    OomKill,
    PythonError,
    Role,
    RuleText,
)
from ..model.operations import Operation
from ..model.process_end import ProcessEnd
from .blackbox import Contents
from .job_logs.rules import rules
from .job_logs.tracebacks import own_frame

BY = "hangdoctor run"
_MOST = 64 << 20  # bytes of one file of ends
_TIMED_OUT = re.compile(r"Timed out waiting (\d{1,15})ms for (\w{1,20}) operation")
_NOTICED_S = 1.0  # after which `run` has seen an end, at most


def read_ends(path: Path) -> list[ProcessEnd]:
    """The lines of one file of ends; torn ones are left out.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        lines = read_regular(path, _MOST).splitlines()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=ProcessEnd))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
    return found


def facts_of(boxes: Sequence[Contents], ends: Iterable[ProcessEnd]) -> JobLogs | None:
    """How the ranks ended; None where a rank still runs, or nothing says how any ended."""
    if any(c.box.status == "live" for c in boxes):
        return None
    ends_of_all = list(ends)
    by_process = {(c.box.host, c.box.pid): c for c in boxes}
    logs = JobLogs(world_size=max((c.ops.world_size for c in boxes), default=0))
    said: dict[int, PythonError] = {}
    for contents in boxes:
        error = _error(contents)
        if error is not None:
            said[contents.ops.rank] = error
            for fact in (error, *_waits(error)):
                _add(logs, Path(contents.box.path).name, fact)
    seen = _of_ranks(ends_of_all, by_process)
    for end in seen:
        logs.world_size = max(logs.world_size, end.world_size)
        for fact in _facts(end, by_process.get((end.node, end.pid)), said):
            _add(logs, f"{end.node}: exit codes", fact)
    if not logs.facts:
        return None
    _own_interrupt(logs.facts)
    _mark_first(logs.facts)
    _own_termination(logs.facts, seen)
    for end in _left_first(logs.facts, ends_of_all, boxes):
        fact = Ended(code=0, by=BY, first=True, says="ended cleanly while the others went on")
        _by(fact, end.rank, end.node, end.pid, at=end.at)
        _add(logs, f"{end.node}: exit codes", fact)
    logs.facts.sort(key=lambda f: f.at)
    logs.homes = {c.ops.rank: c.box.host for c in boxes}
    logs.homes |= {f.rank: f.node for f in logs.facts if f.rank >= 0 and f.node}
    logs.rules = _texts_of_rules(logs.facts)
    return logs


def _texts_of_rules(facts: Iterable[AnyFact]) -> dict[str, RuleText]:
    """What the rules of these errors say, by their name."""
    used = {f.rule for f in facts if isinstance(f, PythonError)}
    return {r.id: r.text for r in rules().rules if r.id in used and r.text is not None}


def _add(logs: JobLogs, name: str, fact: AnyFact) -> None:
    known = [file.name for file in logs.files]
    if name not in known:
        logs.files.append(LogFile(name))
        known.append(name)
    fact.file = known.index(name)
    logs.files[fact.file].lines += 1
    fact.line = logs.files[fact.file].lines
    logs.facts.append(fact)


# ---------------------------------------------------------------------- boxes


def _error(contents: Contents) -> PythonError | None:
    """The exception that ended a rank."""
    box = contents.box
    if not box.end_text:
        return None
    kind, message, *lines = [*box.end_text.split("\n"), ""]
    frames = [f for line in lines if (f := _frame(line)) is not None]
    error = PythonError(
        error=kind,
        message=message,
        frame=own_frame(frames[::-1]),
        frames=frames,
        says=f"{kind}: {message}{_doing(contents)}",
    )
    _by(error, contents.ops.rank, box.host, box.pid, at=box.ended_s)
    rule = rules().known(f"{kind}: {message}")
    if rule is not None:
        error.rule, error.role = rule.id, rule.role
    if error.role == "launcher":
        error.role = "cause"  # it is the rank's own
    return error


def _waits(error: PythonError) -> list[AnyFact]:
    """Where it is a wait that reached gloo's limit: the rank that did not come is another."""
    limit = _TIMED_OUT.search(error.message)
    if limit is None:
        return []
    fact = GlooTimeout(what=limit[2], limit_ms=float(limit[1]), says=error.says)
    _by(fact, error.rank, error.node, error.pid, at=error.at)
    return [fact]


def _by(fact: AnyFact, rank: int, node: str, pid: int, at: float) -> None:
    fact.rank, fact.node, fact.pid, fact.at = rank, node, pid, at


def _frame(line: str) -> Frame | None:
    name, _, rest = line.partition("\t")
    file, _, number = rest.partition("\t")
    return Frame(name, file, int(number)) if number.isdecimal() else None


def _doing(contents: Contents | None) -> str:
    """What the rank was at: operation, iteration, phase."""
    if contents is None:
        return ""
    ops = contents.ops
    parts = []
    unfinished = [o for o in ops.unfinished() if not o.asynchronous]
    if unfinished:
        parts.append(f"in {_called(unfinished[-1])}")
    elif len(ops.operations):
        parts.append(f"after {_called(ops.operations[-1])}")
    if ops.phase:
        parts.append(f"phase {ops.phase}")
    if ops.iteration >= 0:
        parts.append(f"iteration {ops.iteration}")
    return f" ({', '.join(parts)})" if parts else ""


def _called(operation: Operation) -> str:
    at = f" in {operation.site}" if operation.site else ""
    return f"{operation.op} #{operation.seq}{at}"


# ---------------------------------------------------------------------- exit codes


def _of_ranks(
    ends: Iterable[ProcessEnd], by_process: dict[tuple[str, int], Contents]
) -> list[ProcessEnd]:
    """One end of each rank: of the process with the box, else of the latest with that number."""
    chosen: dict[int, ProcessEnd] = {}
    for end in sorted(ends, key=lambda e: (e.began, e.at)):
        contents = by_process.get((end.node, end.pid))
        if contents is not None:
            end.rank, end.boxed = contents.ops.rank, True
        elif end.boxed:
            continue  # its box is gone: it ended well, or a later process has the rank
        if end.rank < 0:
            continue
        before = chosen.get(end.rank)
        if before is None or end.boxed or not before.boxed:
            chosen[end.rank] = end
    return list(chosen.values())


def _facts(
    end: ProcessEnd, contents: Contents | None, said: dict[int, PythonError]
) -> list[AnyFact]:
    if end.code == 0:
        return []
    doing = _doing(contents)
    core = ", with a core dump" if end.core else ""
    how = f"exit code {end.code}" if end.code > 0 else f"signal {-end.code}"
    if end.rank in said and end.code in (1, -2):
        return []  # the exception says more
    by = f"{BY}, memory" if end.out_of_memory else BY
    facts: list[AnyFact] = [Ended(code=end.code, by=by, says=f"ended by {how}{core}{doing}")]
    if end.out_of_memory:
        facts.append(OomKill(events=1, says=f"oom_kill in its control group{doing}"))
    for fact in facts:
        _by(fact, end.rank, end.node, end.pid, at=end.at)
    return facts


def _own_interrupt(facts: Iterable[AnyFact]) -> None:
    """An interrupt of one rank alone is its own; that of several comes from outside."""
    errors = [f for f in facts if isinstance(f, PythonError)]
    interrupts = [e for e in errors if e.error == "KeyboardInterrupt"]
    if len(interrupts) == 1 and len(errors) > 1:
        interrupts[0].role = "cause"


def _own_termination(facts: Sequence[AnyFact], ends: Sequence[ProcessEnd]) -> None:
    """SIGTERM ends all ranks at once where a launcher or a person sends it, and a launcher sends it
    when one has ended. A rank that it ended before any other, and that a neighbour lost before the
    next one ended, was the first.
    """
    order = sorted((end for end in ends if end.code), key=lambda end: end.at)
    if not order or order[0].code != -15:
        return
    next_at = order[1].at if len(order) > 1 else order[0].at + _NOTICED_S
    lost = [error.at for error in _errors(facts, "consequence")]
    if _errors(facts, "cause") or not lost:
        return
    if not order[0].at - _NOTICED_S <= min(lost) < next_at:
        return
    for fact in facts:
        if isinstance(fact, Ended) and fact.rank == order[0].rank:
            fact.first = True


def _left_first(
    facts: Sequence[AnyFact], ends: Sequence[ProcessEnd], boxes: Sequence[Contents]
) -> list[ProcessEnd]:
    """Ranks that ended with code 0 before any other, when the others then lost them."""
    lost = _errors(facts, "consequence")
    named = any(isinstance(f, Ended) and f.first for f in facts)
    if not lost or _errors(facts, "cause") or named:
        return []
    spoke = {c.ops.rank for c in boxes if c.box.end_text}
    began = min(c.box.created_s for c in boxes)
    of_job = [e for e in ends if e.rank >= 0 and e.at >= began]
    failed = min((e.at for e in of_job if e.code), default=0.0)
    until = min(failed, min(f.at for f in lost) + _NOTICED_S)
    left = [e for e in of_job if not e.code and e.at <= until]
    quiet = [e for e in left if e.rank not in spoke]
    return quiet if len(quiet) <= len(lost) else []


def _errors(facts: Sequence[AnyFact], role: Role) -> list[PythonError]:
    return [f for f in facts if isinstance(f, PythonError) and f.role == role]


def _mark_first(facts: Sequence[AnyFact]) -> None:
    """The parent sees ends in their order: the first that no launcher caused is the first."""
    ends = [f for f in facts if isinstance(f, Ended) and f.code not in (-15, -2)]
    if not ends:
        return
    first = min(ends, key=lambda f: f.at)
    # A consequence may be noted before: connections close a moment before their process has ended.
    if not any(error.at < first.at for error in _errors(facts, "cause")):
        first.first = True
