"""The sub-verbs of `trace` on the nodes of a job or host file: run the same one there and read its
rows or lines.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ...errors import LauncherError, WireError
from ...text import alike, plural
from ...text.ranges import format_hosts
from ...transport.stdout_frame import NodeReply, pack, unpack
from .. import pipes
from ..shared_flags import Command, together
from ..targets import REACHES, one_target, reach_flags, reach_of, target_words
from .target import TracedRank, jobid_flag, target_flags

if TYPE_CHECKING:
    from ...launchers.reach import Reach
    from ...launchers.remote import Command as RemoteCommand
    from ...launchers.remote import Outcome

_SAID = "hangdoctor: "  # of a line that a person is to read
_SPARE_S = 10.0  # for a scheduler to start a step, beyond the time that the sub-verb itself waits


class Where(Struct):
    """What the flags choose: ranks of this host, or nodes."""

    local: bool = False
    job: str = ""
    folder: Path | None = None
    jobid: str | None = None
    target: str = ""  # the flag that names the target, one of `targets.REACHES` where `reach` is
    reach: Reach | None = None  # gets to the nodes, where it is not this host or a Slurm job
    words: list[str] = []  # that choose the same nodes, where `reach` is

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Where:
        """What these flags choose.

        Raises:
            UsageError: more than one target.
        """
        target = one_target(flags, {"local": "--local", "jobid": "--jobid J"}, needed=False)
        here = cls(flags["local"], flags["job"], flags["folder"], flags["jobid"], target)
        if target in REACHES:
            here.reach, here.words = reach_of(target, flags), target_words(flags)
        return here

    @property
    def nodes(self) -> str:
        """The nodes in words, "" where it is this host."""
        if self.jobid:
            return f"job {self.jobid}"
        return f"the nodes of {REACHES[self.target]}" if self.reach else ""

    @property
    def target_flags(self) -> list[str]:
        """The words that choose the same nodes."""
        return ["--jobid", self.jobid] if self.jobid else self.words

    def of_job(self, arguments: Sequence[str]) -> list[str]:
        """The words of a sub-verb on a node that `reach` gets to, with the job that is meant."""
        words = ["trace", *arguments]
        words += ["--job", self.job] if self.job else []
        return words + (["--folder", str(self.folder)] if self.folder else [])


def where_flags(command: Command) -> Command:
    """The flags that `Where.of` reads."""
    return together([target_flags, jobid_flag("all of its nodes."), reach_flags])(command)


def answer(rows: Sequence[TracedRank]) -> None:
    """Print what a node answers: the rows, for `ask` on another node."""
    pipes.hand_back(pack(NodeReply(platform.node(), msgspec.msgpack.encode(rows))))


def ask(
    where: Where, arguments: Sequence[str], wait_s: float, say: Callable[[str], None]
) -> list[TracedRank]:
    """Rows of all nodes; prints which nodes did not answer.

    Raises:
        LauncherError: the job is not there, or not ours.
        BadInput, UsageError: the host file is none, or this is not a PBS job.
    """
    from ...launchers.slurm import SlurmLauncher
    from ...launchers.slurm_job import parse_job
    from ...launchers.verb_on_nodes import Everywhere

    words, patience_s = [*arguments, "--rows"], wait_s + _SPARE_S
    if where.reach is None:
        launcher = SlurmLauncher(*parse_job(str(where.jobid)))
        outcomes = launcher.on_nodes(["trace", *words], patience_s, say)
    else:
        outcomes = Everywhere(where.reach).ask(where.of_job(words), patience_s, say)
    rows: list[TracedRank] = []
    silent: list[tuple[str, str]] = []
    for outcome in outcomes:
        try:
            found = msgspec.msgpack.decode(unpack(outcome.output).body, type=list[TracedRank])
        except (WireError, msgspec.DecodeError, UnicodeDecodeError) as error:
            silent.append((outcome.node, _why_silent(outcome, str(error))))
            continue
        for row in found:
            row.node = outcome.node
            rows.append(row)
    for nodes, why in alike.grouped(silent):
        who = plural.choose(nodes, "node", f"{len(nodes)} nodes")
        say(f"{who} {format_hosts(nodes)} did not answer: {why}")
    return sorted(rows, key=lambda row: (row.rank, row.node))


def _why_silent(outcome: Outcome, trouble: str) -> str:
    said = outcome.errors.strip().splitlines()
    if said:
        return said[0]
    return trouble if outcome.output.strip() else "the time was over"


def follow(where: Where, node: str, arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Print the output of the sub-verb on one node, until it ends there or the reader here has
    gone.

    Raises:
        LauncherError: the job is not there, or not ours; the node does not answer.
    """
    from ...launchers import gather
    from ...launchers.slurm_words import ENDED

    errors = ""
    code: int | None = None
    for command in _on_node(where, node, arguments):
        code, errors = _shown(command, say)
        if code == 0:
            return
        if (
            "Invalid generic resource" not in errors
        ):  # a cluster without GPUs in its configuration does not know this flag
            break
    if re.search(rf"{ENDED}|CANCELLED AT", errors):
        say(f"the job ended on node {node}")
        return
    raise LauncherError(
        f"the connection to node {node} ended: {gather.last_words(errors) or f'exit code {code}'}"
    )


def _on_node(where: Where, node: str, arguments: Sequence[str]) -> list[RemoteCommand]:
    """The commands that run the sub-verb on a node, of which each is for where the one before is
    refused.
    """
    from ...launchers.reach import connected
    from ...launchers.slurm import SlurmLauncher
    from ...launchers.slurm_job import parse_job

    if where.reach is None:
        launcher = SlurmLauncher(*parse_job(str(where.jobid)))
        return launcher.on_node(node, ["trace", *arguments])
    return connected(where.reach, where.of_job(arguments), [node], reads=False)


def _shown(command: RemoteCommand, say: Callable[[str], None]) -> tuple[int | None, str]:
    """Print what a command prints as it comes; (its exit code, what else it said)."""
    from ...launchers.line_stream import Stream
    from ...launchers.slurm_job import clean_environment

    errors = ""
    with Stream(command, clean_environment(os.environ)) as stream:
        for line in stream:
            if line is None:
                pipes.pause(0)
            elif line.is_output:
                pipes.say(line.text)
            elif line.text.startswith(_SAID):
                say(line.text.removeprefix(_SAID))
            else:
                errors += line.text + "\n"
    return stream.code, errors
