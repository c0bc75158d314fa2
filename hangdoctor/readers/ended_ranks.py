"""How the ranks of a job that is over ended: from black boxes, and from the file of `hangdoctor
run`.

Both become facts of `log_facts`, as job logs do, so that one pass decides on both, alone or
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..errors import BadInput
from ..files import read_regular
from ..model.frame import Frame
from ..model.log_facts import (
    AnyFact,
    BarrierMissed,
    Ended,
    Finished,
    GlooTimeout,
    GpuShared,
    JobLogs,
    LogFile,
    Mismatch,
    OomKill,
    PythonError,
    RuleText,
    StoreCount,
)
from ..model.operations import Operation
from ..model.process_end import ProcessEnd
from ..text.ranges import MAX_RANKS
from .blackbox import Contents
from .end_order import (
    date_by_last_operation,
    has_left,
    left_at,
    left_first,
    mark_first,
    own_interrupt,
    own_termination,
)
from .ended_waits import mark_independent, mark_waits, silent_ranks
from .ended_with_all import mark_cut_short
from .job_logs.python_frames import own_frame
from .job_logs.rules import fact_of, rules

BY = "hangdoctor run"
_MOST = 64 << 20  # bytes of one file of ends
_OF_OTHERS = (BarrierMissed, GlooTimeout, GpuShared, Mismatch, StoreCount)
_FIRST = "\tfirst\t"  # the first exception of a chain, as `probe.ending` marks it
_GATHERED = "\tgathered\t"  # what other ranks met, as `probe.ending` marks it
# Codes of a process whose program has left: its own, or a crash of C++ at the exit.
_AT_EXIT = frozenset({*range(1, 256), -6, -11})


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
            for fact in (*_led_to(error, contents), error, *_told(error)):
                _add(logs, Path(contents.box.path).name, fact)
    seen = _of_ranks(ends_of_all, by_process)
    for end in seen:
        logs.world_size = max(logs.world_size, end.world_size)
        for fact in _facts(end, by_process.get((end.node, end.pid)), said):
            _add(logs, f"{end.node}: exit codes", fact)
    for silent in silent_ranks(boxes, logs.facts):
        _add(logs, _box_name(boxes, silent.rank), silent)
    if not logs.facts and not _all_well(boxes, seen):
        return None
    _add_order(logs, boxes, seen, ends_of_all)
    _add_clean_ends(logs, seen, {e.rank for e in said.values()})
    mark_waits(logs.facts, boxes)
    mark_independent(logs.facts, boxes)
    mark_cut_short(logs.facts, boxes, ends_of_all)
    logs.facts.sort(key=lambda f: f.at)
    logs.homes = {c.ops.rank: c.box.host for c in boxes}
    logs.homes |= {f.rank: f.node for f in logs.facts if f.rank >= 0 and f.node}
    logs.rules = _texts_of_rules(logs.facts)
    known = {c.ops.rank for c in boxes} | {end.rank for end in seen}
    logs.of_boxes = list(range(len(logs.files)))
    countable = boxes and logs.world_size <= MAX_RANKS
    logs.unseen = sorted(set(range(logs.world_size)) - known) if countable else []
    return logs


def _all_well(boxes: Sequence[Contents], seen: Iterable[ProcessEnd]) -> bool:
    """Whether every rank that has a box ended with exit code 0, as after a restart."""
    well = {end.rank for end in seen if end.code == 0}
    return bool(boxes) and well >= {c.ops.rank for c in boxes}


def _add_order(
    logs: JobLogs,
    boxes: Sequence[Contents],
    seen: Sequence[ProcessEnd],
    ends_of_all: Sequence[ProcessEnd],
) -> None:
    """Which of the ends came first, and who left before any of them."""
    by_process = {(c.box.host, c.box.pid): c for c in boxes}
    own_interrupt(logs.facts)
    date_by_last_operation(logs.facts, boxes)
    gone = {end.rank for end in ends_of_all if end.boxed and not end.code}
    mark_first(logs.facts, logs.world_size, gone - {end.rank for end in seen})
    own_termination(logs.facts, seen)
    for end in left_first(logs.facts, ends_of_all, by_process):
        says = "ended cleanly while the others went on"
        if end.code:
            says = f"left its program while the others went on; ended by signal {-end.code} later"
        fact = Ended(code=0, by=BY, first=True, left=end.code != 0, says=says)
        at = left_at(end, by_process.get((end.node, end.pid)))
        _by(fact, end.rank, end.node, end.pid, at=at)
        _add(logs, f"{end.node}: exit codes", fact)


def _add_clean_ends(logs: JobLogs, seen: Iterable[ProcessEnd], failed: set[int]) -> None:
    """Ranks with exit code 0, in a job of which another one failed."""
    for end in seen:
        if end.code == 0 and end.rank not in failed:
            clean = Finished(says="ended with exit code 0")
            _by(clean, end.rank, end.node, end.pid, at=end.at)
            _add(logs, f"{end.node}: exit codes", clean)


def _box_name(boxes: Iterable[Contents], rank: int) -> str:
    return next(Path(c.box.path).name for c in boxes if c.ops.rank == rank)


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
    error = _gathered(kind, lines, contents.ops.rank) or _python_error(kind, message, lines)
    error.says += _doing(contents)
    _by(error, contents.ops.rank, box.host, box.pid, at=box.ended_s)
    return error


def _gathered(kind: str, lines: Sequence[str], rank: int) -> PythonError | None:
    """What some ranks had met, as all of them learned from one another: the rank's own failure,
    else one that only follows from those. None of another exception.
    """
    rows = [line.split("\t", 4)[2:] for line in lines if line.startswith(_GATHERED)]
    met = {number: (inner, message) for number, inner, message in rows}
    if not met:
        return None
    own = met.get(str(rank))
    if own is not None:
        ending = _GATHERED.rstrip("\t")
        places = [line.removesuffix(ending) for line in lines if line.endswith(ending)]
        return _python_error(*own, places if str(rank) == next(iter(met)) else lines)
    number, (inner, message) = next(iter(met.items()))
    error = _python_error(kind, f"of rank {number}: {inner}: {message}", lines)
    error.role = "consequence"
    return error


def _python_error(kind: str, message: str, places: Iterable[str]) -> PythonError:
    frames = [f for line in places if (f := _frame(line)) is not None]
    error = PythonError(
        error=kind,
        message=message,
        frame=own_frame(frames[::-1]),
        frames=frames,
        says=f"{kind}: {message}",
    )
    rule = rules().known(f"{kind}: {message}")
    if rule is not None:
        error.rule, error.role = rule.id, rule.role
    if error.role == "launcher":
        error.role = "cause"  # it is the rank's own
    return error


def _led_to(wait: PythonError, contents: Contents) -> list[PythonError]:
    """The exception that was being handled when a rank's last wait began, as by a callback that saves:
    the first of its chain. None where the last one is no wait.
    """
    lines = contents.box.end_text.split("\n")[2:]
    told = [line.split("\t", 3)[2:] for line in lines if line.startswith(_FIRST)]
    if not told or len(told[0]) != 2 or wait.role != "consequence":
        return []
    kind, message = told[0]
    ending = _FIRST.rstrip("\t")
    places = [line.removesuffix(ending) for line in lines if line.endswith(ending)]
    first = _python_error(kind, message, places)
    if _dealt_with_in_place(wait, first):
        return []
    _by(first, wait.rank, wait.node, wait.pid, at=wait.at)
    wait.chained = kind
    return [first]


def _dealt_with_in_place(wait: PythonError, first: PythonError) -> bool:
    """Whether it was asked to end in the very function that had caught its error, and not in a call from
    there: it was about to try again.
    """
    inner = wait.frames[0] if wait.frames else None
    own = first.frame
    if wait.rule != "terminated" or inner is None or own is None:
        return False
    return (inner.name, inner.file) == (own.name, own.file)


def _told(error: PythonError) -> list[AnyFact]:
    """What its message tells of others, as a line of a log does: who did not come to a barrier, how
    many came to the store, that a wait reached gloo's limit.
    """
    facts: list[AnyFact] = []
    for rule in rules().of(error.message):
        if issubclass(rule.fact, _OF_OTHERS):
            found = (fact_of(rule, fields) for fields in rule.facts(error.message))
            facts += [fact for fact in found if fact is not None]
    for fact in facts:
        fact.says = error.says
        _by(fact, error.rank, error.node, error.pid, at=error.at)
    return facts


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
    left = has_left(contents) and end.code in _AT_EXIT
    after = " after it had left its program" if left and end.code < 0 else ""
    says = f"ended by {how}{core}{after}{doing}"
    facts: list[AnyFact] = [Ended(code=end.code, by=by, left=left, says=says)]
    if end.out_of_memory:
        facts.append(OomKill(events=1, says=f"oom_kill in its control group{doing}"))
    at = left_at(end, contents) if left else end.at
    for fact in facts:
        _by(fact, end.rank, end.node, end.pid, at=at)
    return facts
