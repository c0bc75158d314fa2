"""Processes that py-spy reached and could not read, among those that it read.

A process in uninterruptible I/O cannot be suspended: py-spy prints an error in place of its stack.
Where the same user read all others, that is evidence of this process, not of the user's rights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from .pyspy_text import UNREADABLE, TextProcess

_LOCAL_RANK = re.compile(r"--local[-_]rank[= ]([0-9]{1,9})")


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


def _nameless(
    read: list[TextProcess], failed: list[TextProcess], nameless: Mapping[str, list[str]]
) -> list[TextProcess]:
    """Of each node that has fewer processes than most, as many as it lacks and has errors for."""
    counts = Counter(p.node for p in [*read, *failed])
    if not counts:
        return []
    usual = Counter(counts.values()).most_common(1)[0][0]
    found: list[TextProcess] = []
    for node, errors in sorted(nameless.items()):
        lacking = min(usual - counts[node], len(errors)) if len(counts) > 1 else 0
        there = [p for p in read if p.node == node]
        free = _missing_local_ranks(there, usual)
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
