"""Logs as a whole: each file is scanned, then what all of them tell is put in order and joined."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ...errors import BadInput
from ...model.log_facts import (
    NAN_GUARD,
    AnyFact,
    Cancelled,
    JobLogs,
    KnownError,
    LogFile,
    OwnLine,
    PythonError,
    Restarted,
    RuleText,
    Signalled,
    UnreadFailure,
)
from ...text.late import late
from ...text.plain import readable
from . import (
    caught_before,
    cli_blocks,
    cut_lines,
    file_names,
    gathered,
    hccl_tasks,
    loops_around,
    mpi_sequels,
    numbered_files,
    openmpi_errors,
    own_limits,
    own_lines,
    resolve,
    runs,
    source,
)
from .collect import Facts
from .marks import Marks
from .prefix import Said
from .rules import Rules, rules
from .scan import FileScan
from .source import STDIN, STDIN_NAME

_UNREACHED = "master_unreachable"  # a rule
_PROSE = late(r"\.(?:md|rst|html?)$|(?:^|/)(?:README|CHANGE|LICENSE|NOTES?)[^/]{0,40}$", re.I)


def read(paths: Sequence[Path]) -> tuple[JobLogs, list[Path], list[str]]:
    """(what the logs tell, the files that told nothing, notes).

    Raises:
        BadInput: the user's rules cannot be read.
    """
    table, facts = rules(), Facts()
    files: list[LogFile] = []
    scans: list[FileScan] = []
    taken: list[Path] = []
    notes: list[str] = []
    common = _common(paths)
    for path in paths:
        name = readable(str(path.relative_to(common)) if common is not None else path.name)
        try:
            scan, file = _read_one(path, name, table, facts, index=len(files))
        except (OSError, BadInput) as error:
            notes.append(f"skipped: {error}")
            continue
        scans.append(scan)
        files.append(file)
        taken.append(path)
    if facts.left_out:
        notes.append(f"the logs tell more than is kept: {facts.left_out} further facts left out")
    asked = [own_lines.Asked(path, _of_name(path)[0]) for path in taken]
    logs = _joined(facts, files, scans, [_origin(p) for p in taken], asked)
    loops_around.add_loops(logs)
    read = {f.file for f in facts.all}
    return logs, [path for index, path in enumerate(taken) if index not in read], notes


def _read_one(
    path: Path, name: str, table: Rules, facts: Facts, index: int
) -> tuple[FileScan, LogFile]:
    said, attempt = _of_name(path)
    scan = FileScan(table, facts, index, said, attempt=attempt)
    if path == STDIN:
        return scan, scan.run(STDIN_NAME, sys.stdin.buffer)
    stream: IO[bytes]
    with source.opened(path) as stream:
        return scan, scan.run(name, stream)


def _of_name(path: Path) -> tuple[Said, int]:
    """What a file's name tells of its lines: torchrun --log-dir, one file a rank or node."""
    named = file_names.of_name(path)
    return Said(rank=named.rank, local=named.local, node=named.node), named.attempt


def _origin(path: Path) -> resolve.Origin:
    tree = file_names.TREE.search(path.as_posix())
    if tree is None:
        return resolve.Origin(str(path), 0)
    agent = path.as_posix()[: tree.start()]
    return resolve.Origin(agent, int(tree[1]), local=int(tree[2]))


def _common(paths: Sequence[Path]) -> Path | None:
    """The folder that all files lie in, where there are several."""
    if len(paths) < 2 or STDIN in paths:
        return None
    trees = [(p, file_names.TREE.search(p.as_posix())) for p in paths]
    folders = [Path(p.as_posix()[: t.start()]) if t is not None else p.parent for p, t in trees]
    top = folders[0]
    while not all(top == f or top in f.parents for f in folders):
        if top == top.parent:
            return None
        top = top.parent
    return top


def _joined(
    facts: Facts,
    files: list[LogFile],
    scans: list[FileScan],
    origins: list[resolve.Origin],
    asked: Sequence[own_lines.Asked],
) -> JobLogs:
    marks: list[Marks] = [scan.marks for scan in scans]
    numbered = numbered_files.ranks_of(
        [file.name for file in files], [s.heard | s.marks.members for s in scans]
    )
    heard = sorted({rank for scan in scans for rank in scan.heard | scan.marks.members})
    world = max((m.world for m in marks), default=0) or gathered.world_size(facts.all)
    world = max(world, hccl_tasks.number(facts.all))
    prose = {index for index, file in enumerate(files) if _PROSE.search(file.name)}
    unread = [fact for scan in scans for fact in scan.unread if fact.file not in prose]
    restarts = resolve.restarts_of([*facts.all, *unread], marks, [file.lines for file in files])
    resolve.attempts([*facts.all, *unread], restarts)
    again = Counter(file for file, _ in restarts)
    last = max([0, *again.values(), *(f.attempt for f in facts.all)])
    printed: list[OwnLine] = []
    if _may_hang(facts.all, last):
        printed = own_lines.own_lines(asked, facts.all, restarts)
    for line in printed:
        line.attempt = last
    every = [*facts.all, *unread, *printed]
    numbered_files.give(every, numbered)
    started = runs.number(every, [scan.runs for scan in scans])
    mpi_sequels.mark_sequels(facts.all)
    _tell_endpoint(facts.all, marks)
    homes = resolve.resolve(facts.all, marks, origins, world, beside=[*unread, *printed])
    tasks = (
        {task for scan in scans for task in scan.tasks} if resolve.are_tasks(facts.all) else set()
    )
    heard = sorted({*heard, *resolve.of_folders(facts.all, origins), *numbered.values(), *tasks})
    whole = cli_blocks.joined(cut_lines.completed(resolve.in_order(facts.all)))
    ordered = openmpi_errors.settled(whole)
    caught_before.settle(ordered)
    own_limits.mark(ordered, unread)
    numbers = [*again.values(), *(f.attempt for f in [*ordered, *printed])]
    first, last = min(numbers, default=0), max(numbers, default=0)
    for fact in [*ordered, *unread, *printed]:
        fact.attempt = min(max(fact.attempt, first), last) - first
    return JobLogs(
        files=files,
        facts=[f for f in ordered if not isinstance(f, Restarted)],
        world_size=world,
        homes=homes,
        heard=heard,
        rules=_texts(ordered),
        attempts=last - first + 1,
        runs=min(started, last - first + 1),
        unread=_unread_in_order(unread),
        printed=printed,
        excerpts=[excerpt for scan in scans for excerpt in scan.excerpts],
        pointed=[line for scan in scans for line in scan.pointed],
    )


def _may_hang(facts: Sequence[AnyFact], last: int) -> bool:
    """Whether ranks waited to a limit or were ended from outside, or no error shows that any failed
    in the last attempt, as one does not that its program caught; or a guard against NaN ended it,
    since what it found may come from one rank.
    """
    stuck = any(isinstance(f, own_lines.LIMITS | Cancelled | Signalled) for f in facts)
    errors = [f for f in facts if isinstance(f, PythonError) and f.attempt == last]
    failed = not all(error.survived or error.logged or error.inside for error in errors)
    return stuck or not failed or any(error.rule == NAN_GUARD for error in errors)


def _tell_endpoint(facts: Sequence[AnyFact], marks: Sequence[Marks]) -> None:
    """The host of the rendezvous, to errors that say only that it was not reached."""
    for fact in facts:
        if isinstance(fact, KnownError) and fact.rule == _UNREACHED:
            endpoint = marks[fact.file].endpoint
            if endpoint and not (fact.values.get("to") or fact.values.get("peer")):
                fact.values = {**fact.values, "to": endpoint}


def _unread_in_order(unread: list[UnreadFailure]) -> list[UnreadFailure]:
    ordered = resolve.in_order([*unread])
    return [fact for fact in ordered if isinstance(fact, UnreadFailure)]


def _texts(facts: list[AnyFact]) -> dict[str, RuleText]:
    used = {f.rule for f in facts if isinstance(f, KnownError | PythonError) and f.rule}
    return {r.id: r.text for r in rules().rules if r.id in used and r.text is not None}
