"""What reaches the nodes of a job: a protocol that ssh, mpiexec and the user's own commands keep, and
the capture and the agents that are made of it once for all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from ..clock import SystemClock
from ..errors import NoRanksFound
from ..model.capture import JobCapture, Site
from ..readers.node import CaptureOptions
from ..text.plural import count
from ..text.ranges import format_hosts
from . import gather, told_nodes
from .base import Progress
from .lost_nodes import Watch
from .remote import Command, Outcome, run_all
from .slurm_job import clean_environment

_STAY_S = 10.0  # to reach a node, for an agent that then stays as long as its job


class Reach(Protocol):
    """Brings one command to each node of a job."""

    means: str  # in words, behind "asking 4 hosts by"

    def nodes(self) -> list[str]:
        """The nodes, each once, by the names that the user knows.

        Raises:
            UsageError, BadInput, LauncherError: the nodes cannot be known, or not reached from here.
        """
        ...

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """``hangdoctor WORDS`` on each node that can be asked, reached within `timeout_s` seconds.

        Raises:
            UsageError, BadInput, LauncherError: as `nodes`.
        """
        ...

    def unasked(self) -> Mapping[str, str]:
        """{node: why} of those known not to answer, which have no command."""
        ...

    def watch(self) -> Watch | None:
        """Tells which nodes need not be waited for; None where that cannot be known."""
        ...


@runtime_checkable
class Connects(Protocol):
    """A `Reach` whose `commands` cannot be spoken to while they run."""

    def connected(
        self, words: Sequence[str], nodes: Collection[str], reads: bool = True
    ) -> list[Command]:
        """``hangdoctor WORDS`` on those of `nodes` that can be asked, whose standard input and output
        are the caller's and which ends with its input. `reads`: it takes that input itself.

        Raises:
            UsageError, BadInput, LauncherError: as `Reach.nodes`.
        """
        ...


@runtime_checkable
class KnowsAddresses(Protocol):
    """A `Reach` whose nodes do not find each other by their names."""

    def addresses(self) -> Mapping[str, str]:
        """{node: where the other ones reach it}."""
        ...


@runtime_checkable
class HasSite(Protocol):
    """A `Reach` on whose platform Slurm's commands and a node's own shell are of no use."""

    def site(self) -> Site:
        """The commands to name in advice."""
        ...


@runtime_checkable
class TriedByHand(Protocol):
    """A `Reach` that a person can try with one command."""

    def by_hand(self) -> str:
        """A command that does nothing on the node `{node}`, reached as the agent is."""
        ...


@runtime_checkable
class LeavesOut(Protocol):
    """A `Reach` whose platform keeps jobs from nodes in another way than ``sbatch --exclude``."""

    def leave_out(self, nodes: Sequence[str]) -> str:
        """What keeps the next job from these nodes, as a person types or does it."""
        ...


@runtime_checkable
class KnowsRanks(Protocol):
    """A `Reach` that knows more of the ranks than their nodes can say."""

    def enter(self, capture: JobCapture) -> None:
        """Add it to the capture."""
        ...

    def without_ranks(self, error: NoRanksFound) -> NoRanksFound:
        """The error for nodes without a rank, with what is known of why."""
        ...


class ReachLauncher:
    """Captures all nodes that a `Reach` gets to; see `base.Launcher`."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.clock = SystemClock()

    def capture(self, options: CaptureOptions, progress: Progress) -> JobCapture:
        """Capture each node by one command of its own.

        Raises:
            UsageError, BadInput, LauncherError: as `Reach.nodes`.
            NoRanksFound: the nodes answered and there is no rank on any of them.
        """
        begin, taken = self.clock.monotonic(), self.clock.wall()
        nodes = self.reach.nodes()
        progress(f"asking {count(len(nodes), 'node')} by {self.reach.means}: {format_hosts(nodes)}")
        left_s = max(0.5, begin + options.timeout_s - self.clock.monotonic())
        words = gather.agent_words(gather.node_options(options, left_s))
        outcomes = run_all(
            self.reach.commands(words, options.timeout_s),
            begin + options.timeout_s,
            clean_environment(os.environ),
            progress,
            watch=self.reach.watch(),
        )
        outcomes += [Outcome(node, lost=why) for node, why in self.reach.unasked().items()]
        gathered = gather.sort_out(outcomes)
        progress(gather.summary(gathered, len(nodes)))
        whys = {
            node: gather.why_silent(outcome, gathered.damaged.get(node, ""), options.timeout_s)
            for node, outcome in gathered.silent.items()
        }
        try:
            capture = gather.join(gathered, nodes, whys, options)
        except NoRanksFound as error:
            if isinstance(self.reach, KnowsRanks):
                raise self.reach.without_ranks(error) from error
            raise
        if isinstance(self.reach, told_nodes.TellsOfNodes):
            told_nodes.enter(capture, self.reach.told())
            capture.notes += self.reach.notes(capture)
        if isinstance(self.reach, KnowsRanks):
            self.reach.enter(capture)
        capture.site = site_of(self.reach)
        if capture.silent and isinstance(self.reach, TriedByHand):
            capture.by_hand = self.reach.by_hand()
        capture.taken, capture.took_s = taken, self.clock.monotonic() - begin
        return capture


def site_of(reach: Reach | None) -> Site | None:
    """The commands to name in advice; None for those of Slurm and ssh."""
    return reach.site() if isinstance(reach, HasSite) else None


def ask(reach: Reach, words: Sequence[str], timeout_s: float, progress: Progress) -> list[Outcome]:
    """Run ``hangdoctor WORDS`` once on each node.

    Raises:
        UsageError, BadInput, LauncherError: as `Reach.nodes`.
    """
    deadline = time.monotonic() + timeout_s
    commands = reach.commands(words, timeout_s)
    outcomes = run_all(commands, deadline, clean_environment(os.environ), progress)
    return outcomes + [Outcome(node, lost=why) for node, why in reach.unasked().items()]


def staying(reach: Reach, flags: Sequence[str]) -> list[Command]:
    """One agent a node; it ends with its job, or when its connection does: a remote shell that has
    gone sends it no signal, but no process reads its output.

    Raises:
        UsageError, BadInput, LauncherError: as `Reach.nodes`.
    """
    return reach.commands(["agent", "--while-heard", *flags], _STAY_S)


def connected(
    reach: Reach, words: Sequence[str], nodes: Collection[str], reads: bool = True
) -> list[Command]:
    """``hangdoctor WORDS`` on some nodes, to be run by the caller, who speaks to its standard input;
    see `Connects`.

    Raises:
        UsageError, BadInput, LauncherError: as `Reach.nodes`.
    """
    if isinstance(reach, Connects):
        return reach.connected(words, nodes, reads)
    return [command for command in reach.commands(words, _STAY_S) if command.node in nodes]
