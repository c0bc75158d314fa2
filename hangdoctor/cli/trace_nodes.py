"""The sub-verbs of `trace` on the nodes of a Slurm job: the same one there, and what it answers, row by row or line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import click
import msgspec

from ..errors import LauncherError
from .pipes import pause
from .trace_target import Row

MARK = "HANGDOCTOR-TRACE/1 "  # one line: what a scheduler or a shell prints around it does no harm
_SAID = "hangdoctor: "  # of a line that a person is to read
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


def follow(jobid: str, node: str, arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Hand on what the sub-verb says on one node, until it ends there or nobody reads it here.

    Raises:
        LauncherError: the job is not there, or not ours; the node does not answer.
    """
    from ..launchers import gather
    from ..launchers.slurm import ENDED, SlurmLauncher, parse_job
    from ..launchers.stream import Stream

    launcher = SlurmLauncher(*parse_job(jobid))
    errors = ""
    for command in launcher.on_node(node, ["trace", *arguments]):
        errors = ""
        with Stream(command, launcher.env) as stream:
            for line in stream:
                if line is None:
                    pause(0)
                elif line.is_output:
                    click.echo(line.text)
                elif line.text.startswith(_SAID):
                    say(line.text.removeprefix(_SAID))
                else:
                    errors += line.text + "\n"
        if stream.code == 0:
            return
        if "Invalid generic resource" not in errors:  # a cluster without GPUs in its configuration does not know the word
            break
    if re.search(rf"{ENDED}|CANCELLED AT", errors):
        say(f"the job ended on node {node}")
        return
    raise LauncherError(f"node {node} tells no more: {gather.last_words(errors) or f'exit code {stream.code}'}")
