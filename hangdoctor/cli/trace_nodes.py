"""The switch on all nodes of a Slurm job: the same sub-verb once a node, and the rows that each of them answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .trace_target import Row

MARK = "HANGDOCTOR-TRACE/1 "  # one line: what a scheduler or a shell prints around it does no harm
_SPARE_S = 10.0  # for a scheduler to start a step, beyond the time that the sub-verb itself waits


def answer(rows: Sequence[Row]) -> str:
    """The line that a node answers."""
    return MARK + msgspec.json.encode(rows).decode()


def ask(jobid: str, arguments: Sequence[str], wait_s: float, say: Callable[[str], None]) -> list[Row]:
    """Rows of all nodes; who did not answer is said.

    Raises:
        LauncherError: the job is not there, or not ours.
    """
    from ..launchers.slurm import SlurmLauncher, parse_job

    job, step = parse_job(jobid)
    rows: list[Row] = []
    for outcome in SlurmLauncher(job, step).on_nodes(["trace", *arguments, "--rows"], wait_s + _SPARE_S, say):
        line = next((text for text in outcome.output.splitlines() if text.startswith(MARK)), None)
        if line is None:
            words = outcome.errors.strip().splitlines()
            say(f"node {outcome.node} did not answer: {words[0] if words else 'the time was over'}")
            continue
        for row in msgspec.json.decode(line[len(MARK) :], type=list[Row]):
            row.node = outcome.node
            rows.append(row)
    return sorted(rows, key=lambda row: (row.rank, row.node))
