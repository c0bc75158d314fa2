"""The ranks among the processes of py-spy's text and JSON, as one capture.

The text has no ranks. They come from a local rank on the command line where there is one; otherwise
processes are numbered by node and process id, and the capture says so (`JobCapture.numbered`).
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from ..errors import BadInput
from ..files import is_empty
from ..model.capture import JobCapture, NodeCapture, Process, ProcessSample, RankCapture
from ..model.layout import guess_layout
from ..text.late import late
from ..text.ranges import number_in
from . import group_names, idle_gpus, native_ranks, no_ranks, process_states, served_titles
from .native_text import rank_of
from .pyspy_text import TextFile, TextProcess, node_of
from .pyspy_unread import has_stack, of_empty_files, with_unread
from .rank_environment import is_launcher
from .stack_texts import read_file

_LOCAL_RANK = late(r"--local[-_]rank[= ]([0-9]{1,9})")
_NODE_RANK = late(r"--node[-_]rank[= ]([0-9]{1,9})")
_LONE = "py-spy's text does not show which rank this process is; --json has it as rank 0"
_WORKERS = "worker processes"
_HELPERS = "engines, servers and helpers of an inference server"
_WORKER = late(
    r"torch/utils/data/_utils/(worker|pin_memory)\.py|multiprocessing/(spawn|popen_\w+|resource_tracker|forkserver)\.py"
)
_MAX_COMMAND = 16 << 10  # characters
_LAST = 1 << 62
_APART_S = 1.0  # between two dumps of a process in one file: no clock tells
_WORDS = 60  # of a command line that are kept


def read_files(paths: Sequence[Path]) -> JobCapture:
    """All processes of some files as one capture.

    Raises:
        BadInput: none of the files holds the stack of a process.
    """
    by_file: dict[Path, list[TextProcess]] = {}
    texts: list[TextFile] = []
    notes: list[str] = []
    nameless: dict[str, list[str]] = {}
    hosts: set[str] = set()
    errors = 0
    for path in paths:
        try:
            found = read_file(path)
        except BadInput as error:
            notes.append(f"skipped: {error}")
            continue
        errors += len(found.errors)
        texts.append(found)
        by_file[path] = found.processes if found.native else _once(found.processes)
        _by_its_name(path, by_file[path])
        if found.nameless:
            nameless.setdefault(found.host or node_of(path), []).extend(found.nameless)
            hosts |= {found.host} - {""}
        notes += _notes_of(path, found)
    group_names.name_groups(by_file)
    if texts and all(text.native for text in texts):
        return native_ranks.read(by_file, max(text.world_size for text in texts), notes)
    states = process_states.read_files(paths)
    empty = [path for path in paths if path not in by_file and is_empty(path)]
    processes = [process for some in by_file.values() for process in some]
    processes += of_empty_files(empty, by_file)
    processes = with_unread(processes, nameless, states)
    if not processes:
        raise BadInput(
            "no stack of any process found in " + ", ".join(str(p) for p in paths[:5]),
            "\n  ".join(notes[:10]),
        )
    notes += idle_gpus.notes(path for path in paths if path not in by_file)
    capture = _join(processes, notes, errors)
    unread = {process.node for process in processes if not has_stack(process)}
    capture.unstopped = sorted(hosts - unread)
    for rank in capture.ranks():
        for sample in rank.samples:
            sample.state = states.get(rank.pid, "")
    return capture


def _by_its_name(path: Path, processes: Sequence[TextProcess]) -> None:
    """The rank of the one process of a file that is named by a rank: ``rank3.txt``."""
    if len(processes) == 1 and processes[0].rank < 0:
        processes[0].rank = rank_of(path.stem)


def _notes_of(path: Path, found: TextFile) -> list[str]:
    """What a file lacks."""
    notes: list[str] = []
    empty = [process.pid for process in found.processes if not has_stack(process)]
    if empty:
        first = ", ".join(map(str, empty[:8]))
        notes.append(f"{path.name}: no stack of {len(empty)} processes ({first})")
    errors = found.errors
    if errors:
        notes.append(f"{path.name}: {len(errors)} error lines, for example: {errors[0]}")
    return notes


def _join(processes: list[TextProcess], notes: list[str], errors: int) -> JobCapture:
    parts = [_part(process) for process in processes]
    if all(parts):
        return _without_ranks(processes, parts, notes)
    if any(process.label for process in processes):
        return _of_groups(processes, notes)
    ranks, left_out = _select(processes)
    if left_out:
        counts = Counter(what for _, what in left_out)
        kinds = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
        notes.append(f"not counted as ranks: {kinds}")
    by_title = served_titles.ranks([_title(process) for process in ranks])
    numbered = _number(ranks) if by_title is None else _by_title(ranks, by_title)
    children = _children(ranks, [process for process, what in left_out if what == _WORKERS])
    least = numbered[-1][0] + 1
    size = max(least, served_titles.world_size(process.command for process in processes))
    part = by_title is not None and size == least > len(numbered)
    nodes: dict[str, NodeCapture] = {}
    for rank, process in numbered:
        node = nodes.setdefault(process.node, NodeCapture(process.node, "text"))
        capture = _capture(rank, process, size)
        capture.children = children.get((process.node, process.pid), [])
        node.ranks.append(capture)
    headed = all(process.rank == rank for rank, process in numbered)
    lone = len(numbered) == 1 and by_title is None and not headed
    if not headed:
        notes.append(_LONE if lone else _how_numbered(by_title is not None, any(nodes)))
    if errors:
        notes.append(
            f"these files have {errors} errors: "
            "processes that py-spy could not read are missing from this diagnosis"
        )
    argv = _words(numbered[0][1].command)
    return JobCapture(
        job="text",
        nodes=list(nodes.values()),
        world_size=0 if lone else size,
        part=part or (headed and len(numbered) == 1),  # of one rank, others are not shown
        layout=guess_layout(argv, {}, len(numbered)),
        origin="files",
        numbered=by_title is None and not headed,
        notes=notes,
    )


def _part(process: TextProcess) -> str:
    """What runs no rank; "" for what may be one."""
    if is_launcher(_words(process.command)):
        return no_ranks.part_of(process) or "the launcher"
    return no_ranks.part_of(process)


def _without_ranks(processes: list[TextProcess], parts: list[str], notes: list[str]) -> JobCapture:
    """Processes that each have a name of their own, and none is called a rank."""
    captures = [_capture(place, process, 0) for place, process in enumerate(processes)]
    pairs = zip(processes, parts, strict=True)
    return JobCapture(
        job="text",
        nodes=[NodeCapture("", "text", captures)],
        origin="files",
        names=[_called(process, part) for process, part in pairs],
        rankless=True,
        notes=notes,
    )


def _of_groups(processes: list[TextProcess], notes: list[str]) -> JobCapture:
    """Stacks of which a person wrote how many processes have each: none of them is called a rank."""
    return JobCapture(
        job="text",
        nodes=[NodeCapture("", "text", [_capture(at, one, 0) for at, one in enumerate(processes)])],
        origin="files",
        names=[_group(process, at) for at, process in enumerate(processes)],
        sizes=[process.many for process in processes],
        notes=notes,
    )


def _group(process: TextProcess, place: int) -> str:
    if process.rank >= 0:
        return f"rank {process.rank}"
    pid = f"process {process.pid}" if process.pid else f"stack {place + 1}"
    return process.label or pid


def _called(process: TextProcess, part: str) -> str:
    """``torchrun's agent (process 12 on n3)``."""
    at = f" on {process.node}" if process.node else ""
    return f"{part} (process {process.pid}{at})" if process.pid else part


def _how_numbered(by_title: bool, by_node: bool) -> str:
    if by_title:
        return "ranks are numbered by the titles of their processes"
    node = "node, then by " if by_node else ""
    return f"py-spy's text does not show ranks: they are numbered by {node}local rank or process id"


def _capture(rank: int, process: TextProcess, world: int) -> RankCapture:
    local = _LOCAL_RANK.search(process.command)
    return RankCapture(
        pid=process.pid,
        argv=_words(process.command)[:_WORDS],
        rank=rank,
        node=process.node,
        world_size=world,
        local_rank=int(local[1]) if local else -1,
        samples=_samples(process),
    )


def _children(
    ranks: list[TextProcess], workers: list[TextProcess]
) -> dict[tuple[str, int], list[Process]]:
    """The worker processes by node and process id of the rank that they work for.

    py-spy prints the parent with --subprocesses; else only a node's single rank can be it.
    """
    on_node: dict[str, list[TextProcess]] = {}
    for rank in ranks:
        on_node.setdefault(rank.node, []).append(rank)
    found: dict[tuple[str, int], list[Process]] = {}
    for worker in workers:
        near = on_node.get(worker.node, [])
        owners = [rank for rank in near if rank.pid == worker.parent and worker.parent]
        if not owners and len(near) == 1:
            owners = near
        for owner in owners:
            child = Process(
                pid=worker.pid,
                ppid=owner.pid,
                argv=_words(worker.command)[:_WORDS],
                samples=_samples(worker),
            )
            found.setdefault((owner.node, owner.pid), []).append(child)
    return found


def _samples(process: TextProcess) -> list[ProcessSample]:
    last = ProcessSample(0.0, threads=process.threads, stack_error=process.error)
    if not process.earlier:
        return [last]
    last.at_s = _APART_S
    return [ProcessSample(0.0, threads=process.earlier), last]


def _once(processes: list[TextProcess]) -> list[TextProcess]:
    """Each process once: dumps of one after the other show what moved between first and last."""
    found: dict[tuple[str, int], TextProcess] = {}
    out: list[TextProcess] = []
    for process in processes:
        before = found.get((process.node, process.pid))
        if before is None or not process.pid or _is_another(before, process):
            found[process.node, process.pid] = process
            out.append(process)
        elif has_stack(process):
            if has_stack(before) and not before.earlier:
                before.earlier = before.threads
            before.threads, before.error = process.threads, ""
    return out


def _is_another(before: TextProcess, process: TextProcess) -> bool:
    """Whether none of its further threads is one of the other's: in containers every process is number 1."""
    main = process.pid
    one, other = ({t.tid for t in p.threads} - {main, 0} for p in (before, process))
    return bool(one and other) and not one & other


@lru_cache(maxsize=1024)
def _words(command: str) -> list[str]:
    """The words of a command line, as far as they say which program it is; the time of `shlex`
    grows with the square of it.
    """
    try:
        return shlex.split(command[:_MAX_COMMAND])
    except ValueError:
        return command[:_MAX_COMMAND].split()


def _script(process: TextProcess) -> str:
    words = _words(process.command)
    for i, word in enumerate(words):
        if word.endswith(".py"):
            return Path(word).name
        if word == "-m" and i + 1 < len(words):
            return words[i + 1]
    return ""


def _select(
    processes: list[TextProcess],
) -> tuple[list[TextProcess], list[tuple[TextProcess, str]]]:
    """Split into ranks and the rest: launchers, data-loader workers, and programs other than the
    common one.
    """
    titles = [_title(process) for process in processes]
    kinds_of = {title.kind for title in titles if title is not None}
    engines_work = "engine" in kinds_of and not any(map(_part, processes))
    if "worker" in kinds_of or engines_work:
        return _served(processes, served_titles.workers(titles))
    others = [p for p in processes if not _part(p)]
    known = {(p.node, p.pid) for p in others if not _is_worker(p)}
    kinds = [(p, _no_rank(p, known)) for p in processes]
    ranks = [p for p, kind in kinds if not kind]
    if not ranks:
        return processes, []
    rest = [(p, kind) for p, kind in kinds if kind]
    scripts = Counter(_script(process) for process in ranks)
    [(common, number)] = scripts.most_common(1)
    if not common or number * 2 <= len(ranks):
        return ranks, rest
    strange = [(p, "other programs") for p in ranks if _script(p) != common]
    return [p for p in ranks if _script(p) == common], rest + strange


def _served(
    processes: list[TextProcess], works: list[bool]
) -> tuple[list[TextProcess], list[tuple[TextProcess, str]]]:
    """Split the processes of an inference server into those that run the model and the rest."""
    pairs = list(zip(processes, works, strict=True))
    return [p for p, works in pairs if works], [(p, _HELPERS) for p, works in pairs if not works]


def _title(process: TextProcess) -> served_titles.Title | None:
    return served_titles.read(process.command)


def _no_rank(process: TextProcess, known: set[tuple[str, int]]) -> str:
    """What a process is instead of a rank; "" for what may be one."""
    if is_launcher(_words(process.command)):
        return "launchers"
    part = _part(process)
    if part:
        return part
    return _WORKERS if _is_worker(process) or _is_child(process, known) else ""


def _is_child(process: TextProcess, known: set[tuple[str, int]]) -> bool:
    """Whether another process of the file has started it, and it is no rank of its own."""
    if not process.parent or (process.node, process.parent) not in known:
        return False
    frames = [frame.file for thread in process.threads for frame in thread.frames]
    return not any("torch/distributed/" in file for file in frames)


def _is_worker(process: TextProcess) -> bool:
    main = [t for t in process.threads if t.name in ("MainThread", "")]
    return any(_WORKER.search(frame.file) for thread in main for frame in thread.frames)


def _number(ranks: list[TextProcess]) -> list[tuple[int, TextProcess]]:
    """By the headings that a person put above the stacks, where each has one of its own; else ranks in order
    of node and local rank; nodes in order of their node rank, else of the numbers in their names.
    """
    headed = {process.rank for process in ranks}
    if min(headed, default=-1) >= 0 and len(headed) == len(ranks):
        return sorted(((p.rank, p) for p in ranks), key=lambda pair: pair[0])
    ordered = sorted(ranks, key=_order)
    return list(enumerate(ordered))


def _by_title(ranks: list[TextProcess], numbers: list[int]) -> list[tuple[int, TextProcess]]:
    return sorted(zip(numbers, ranks, strict=True), key=lambda pair: pair[0])


def _order(process: TextProcess) -> tuple[int, list[tuple[int, int, str]], int, int]:
    node_rank = _NODE_RANK.search(process.command)
    local = _LOCAL_RANK.search(process.command)
    return (
        int(node_rank[1]) if node_rank else 0,
        list(_natural(process.node)),
        int(local[1]) if local else 0,
        process.pid or _LAST,
    )


def _natural(name: str) -> Iterator[tuple[int, int, str]]:
    """``r7i6n10`` sorts after ``r7i6n9``."""
    for part in re.findall(r"[0-9]+|[^0-9]+", name):
        yield (0, number_in(part), "") if number_in(part) >= 0 else (1, 0, part)
