"""Processes that py-spy reached and could not read, among those that it read.

A process in uninterruptible I/O cannot be suspended: py-spy prints an error in place of its stack.
Where the same user read all others, that is evidence of this process, not of the user's rights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..text.late import late
from .pyspy_text import NO_OUTPUT, UNREADABLE, TextProcess, node_of, without_pid

_LOCAL_RANK = late(r"--local[-_]rank[= ]([0-9]{1,9})")


def has_stack(process: TextProcess) -> bool:
    """Whether any thread of it was read."""
    return any(thread.frames for thread in process.threads)


def with_unread(
    processes: list[TextProcess], nameless: Mapping[str, list[str]], states: Mapping[int, str]
) -> list[TextProcess]:
    """Those with a stack, and those without that stand out by that.

    Args:
        nameless: node -> py-spy's errors about processes of which it printed nothing else.
        states: of processes, where another file tells them.
    """
    read = [p for p in processes if has_stack(p)]
    failed = [p for p in processes if not has_stack(p) and p.error.startswith(UNREADABLE)]
    failed += _nameless(read, failed, nameless)
    stuck = [p for p in failed if states.get(p.pid) == "D"]
    return read + (failed if 2 * len(failed) <= len(read) else stuck)


def of_empty_files(
    empty: Sequence[Path], read: Mapping[Path, Sequence[TextProcess]]
) -> list[TextProcess]:
    """The processes whose files stayed empty, where all others are named by the one that they hold."""
    alone = [(path, some[0]) for path, some in read.items() if len(some) == 1]
    by_pid = [path for path, process in alone if process.pid and process.pid == _last_number(path)]
    if len(by_pid) < 2 or len(by_pid) < len(read):
        return []
    like = _LOCAL_RANK.sub("", alone[0][1].command)  # the same program
    found = []
    for path in empty:
        pid = _last_number(path)
        found.append(TextProcess(pid, like, without_pid(node_of(path), pid), error=NO_OUTPUT))
    return [process for process in found if process.pid]


def _last_number(path: Path) -> int:
    numbers = re.findall(r"[0-9]{1,18}", path.stem)
    return int(numbers[-1]) if numbers else 0


def _nameless(
    read: list[TextProcess], failed: list[TextProcess], nameless: Mapping[str, list[str]]
) -> list[TextProcess]:
    """Of each node that has fewer processes than most, as many as it lacks and has errors for; of a
    single node, one for each error.
    """
    counts = Counter(p.node for p in [*read, *failed])
    if not counts:
        return []
    sizes = Counter(counts.values())
    usual = max(sizes, key=lambda size: (sizes[size], size))
    found: list[TextProcess] = []
    for node, errors in sorted(nameless.items()):
        lacking = min(usual - counts[node], len(errors)) if len(counts) > 1 else len(errors)
        there = [p for p in read if p.node == node]
        free = _missing_local_ranks(there, max(usual, counts[node] + lacking))
        for n in range(max(0, lacking)):
            like = there[0].command if there else ""  # the same program, by another local rank
            command = _LOCAL_RANK.sub(f"--local_rank={free[n]}", like) if n < len(free) else like
            found.append(TextProcess(0, command, node, error=errors[n]))
    return found


def _missing_local_ranks(there: list[TextProcess], usual: int) -> list[int]:
    told = [match for p in there if (match := _LOCAL_RANK.search(p.command))]
    if not told or len(told) < len(there):
        return []
    return sorted(set(range(usual)) - {int(match[1]) for match in told})
