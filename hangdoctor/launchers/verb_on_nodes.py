"""One command of hangdoctor on every node of a job, once, under a deadline: not a capture, any verb."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..text.plural import count
from ..text.ranges import format_hosts
from . import gather, reach
from .base import Progress
from .remote import Command, Outcome
from .slurm import SlurmLauncher


class Everywhere:
    """The nodes of a target, found once: a Slurm job's, or those that a `Reach` gets to."""

    def __init__(self, target: SlurmLauncher | reach.Reach) -> None:
        """
        Raises:
            UsageError, BadInput, LauncherError: the nodes cannot be known; see `Reach.nodes`.
        """
        self.target = target
        self.nodes = target.nodes()

    def ask(self, words: Sequence[str], timeout_s: float, progress: Progress) -> list[Outcome]:
        """Run ``hangdoctor WORDS`` on each node.

        Raises:
            LauncherError: what starts commands there is not here.
        """
        progress(f"asking {count(len(self.nodes), 'node')}: {format_hosts(self.nodes)}")
        if isinstance(self.target, SlurmLauncher):
            command = gather.own_command(words, self.target.python)
            deadline = time.monotonic() + timeout_s
            return self.target.ask(self.nodes, command, deadline, progress)
        return reach.ask(self.target, words, timeout_s, progress)

    def connected(self, words: Sequence[str]) -> list[Command]:
        """``hangdoctor WORDS`` for each node that can be asked, to be run by the caller, who speaks
        to its standard input; the GPUs of a Slurm job are visible to it.

        Raises:
            UsageError, BadInput, LauncherError: as `Reach.nodes`.
        """
        if isinstance(self.target, SlurmLauncher):
            command = gather.own_command(words, self.target.python)
            return self.target.spoken_to(self.nodes, command)
        return reach.connected(self.target, words, self.nodes)

    def addresses(self) -> dict[str, str]:
        """{node: where the others reach it, as far as the target knows}; `user@` is no part of it."""
        known = self.target.addresses() if isinstance(self.target, reach.KnowsAddresses) else {}
        return {node: known.get(node) or node.rpartition("@")[2] for node in self.nodes}
