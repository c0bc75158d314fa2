"""`preflight` on other nodes: the same one-command-a-node as a capture, each with its own deadline."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import msgspec
from msgspec import structs

from ..errors import LauncherError, WireError
from ..launchers import gather
from ..launchers.base import Progress
from ..launchers.reach import Reach
from ..launchers.remote import Outcome
from ..launchers.slurm import SlurmLauncher
from ..launchers.verb_on_nodes import Everywhere
from ..text.plural import count
from ..text.ranges import format_hosts
from ..transport.stdout_frame import NodeReply, pack, unpack
from .checks import read_node
from .compare import Preflight, conclude
from .readings import NodeReadings, PreflightOptions

_REPLY_S = 3.0  # for a node to answer once its own deadline is over


def local(options: PreflightOptions) -> Preflight:
    """This node alone."""
    own = read_node(structs.replace(options, here=True))
    return conclude([own.node], {own.node: own}, {}, {})


def remote(
    target: SlurmLauncher | Reach, options: PreflightOptions, progress: Progress
) -> Preflight:
    """All nodes of the target.

    Raises:
        LauncherError: the nodes cannot be asked at all.
        BadInput, UsageError: the host file is none, or this is not a PBS job.
    """
    wall = time.time() - time.monotonic()  # our wall clock at monotonic 0
    hosts, outcomes = _ask(target, options, progress)
    readings: dict[str, NodeReadings] = {}
    silent: dict[str, str] = {}
    skews: dict[str, float] = {}
    for outcome in outcomes:
        try:
            reply = unpack(outcome.output)
            readings[outcome.node] = msgspec.msgpack.decode(reply.body, type=NodeReadings)
        except (WireError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            damaged = "" if "no report" in str(error) else str(error)
            silent[outcome.node] = gather.why_silent(outcome, damaged, options.timeout_s + _REPLY_S)
            continue
        skews[outcome.node] = readings[outcome.node].wall_s - (wall + outcome.whole)
    progress(f"{len(readings)} of {count(len(hosts), 'node')} answered")
    _refuse_nothing(readings, outcomes, hosts)
    return conclude(hosts, readings, silent, skews)


def _ask(
    target: SlurmLauncher | Reach, options: PreflightOptions, progress: Progress
) -> tuple[list[str], list[Outcome]]:
    there = Everywhere(target)
    wanted = structs.replace(options, peers=there.nodes if len(there.nodes) > 1 else [])
    words = ["preflight", "--once", base64.urlsafe_b64encode(msgspec.json.encode(wanted)).decode()]
    return there.nodes, there.ask(words, options.timeout_s + _REPLY_S, progress)


def _refuse_nothing(
    readings: dict[str, NodeReadings], outcomes: Sequence[Outcome], hosts: Sequence[str]
) -> None:
    """Raise where no node could even start the check, for one and the same reason."""
    troubles = {gather.set_up_trouble(o.errors) for o in outcomes}
    if not readings and len(troubles) == 1 and "" not in troubles:
        said = gather.last_words(outcomes[0].errors)
        raise LauncherError(
            f"the check could not start on {format_hosts(hosts)}: {troubles.pop()} ({said})",
            gather.SET_UP_HELP,
        )


def answer(once: str) -> str:
    """What a node prints, for the options that `remote` sent.

    Raises:
        msgspec.DecodeError, ValueError: they are none.
    """
    own = read_node(msgspec.json.decode(base64.urlsafe_b64decode(once), type=PreflightOptions))
    return pack(NodeReply(own.node, msgspec.msgpack.encode(own)))
