"""`hangdoctor preflight`: finds what would stop a job from running or a hang from being diagnosed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from ..errors import BundleError, UsageError
from ..launchers.reach import Reach
from ..launchers.slurm import SlurmLauncher
from ..launchers.slurm_job import parse_job
from ..preflight import on_nodes as preflight
from ..preflight.collectives.options import CollectiveOptions, sizes_in
from ..preflight.compare import Preflight
from ..preflight.readings import PreflightOptions
from ..text.printable import as_json
from . import complete, pipes
from .console import console
from .output import progress_to_stderr
from .shared_flags import seconds
from .targets import one_target, reach_flags, reach_of

EXIT_CODES = {"ok": 0, "fail": 10, "warn": 11, "unknown": 12}


@click.command("preflight")
@click.option("--local", is_flag=True, help="This host (default).")
@click.option(
    "--jobid",
    metavar="J[.STEP]",
    shell_complete=complete.job_ids,
    help="The nodes of a Slurm job or allocation; a training need not run in it.",
)
@reach_flags
@click.option(
    "--gpus",
    default=-1,
    type=click.IntRange(-1, 64),
    metavar="N",
    help="Number of GPUs that each node must have; 0 for none (default: at least one).",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="DIR",
    help="A folder that the job writes to; can be repeated.",
)
@click.option(
    "--python",
    default="",
    metavar="PATH",
    help="Python on the nodes that can import hangdoctor (default: the Python running this).",
)
@seconds(
    "--timeout",
    default=15.0,
    least=1,
    most=600,
    help="Seconds for the checks of a node.",
)
@click.option(
    "--collectives",
    is_flag=True,
    help="Also time all_reduce in pairs, halves and all nodes, and name a bad node or link.",
)
@click.option(
    "--sizes",
    default="64k,1M,16M",
    show_default=True,
    metavar="LIST",
    help="With --collectives: sizes of the buffers, such as 1M,256M.",
)
@click.option(
    "--rounds",
    default=7,
    show_default=True,
    type=click.IntRange(3, 1000),
    metavar="N",
    help="With --collectives: rounds of pairs; in each, every node has another partner.",
)
@seconds(
    "--collective-timeout",
    default=30.0,
    least=2,
    most=600,
    help="With --collectives: seconds for one test; a node has 60 or more to import torch.",
)
@click.option(
    "--slow-below",
    default=50.0,
    show_default=True,
    type=click.FloatRange(0, 99),
    metavar="PERCENT",
    help="With --collectives: slow is less than this share of the speed of good pairs.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE|-",
    help="Write the findings as JSON to FILE; - writes it to standard output instead of the table.",
)
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Print no progress, and only the rows of the table with a warning or failure.",
)
@click.option(
    "--no-color",
    is_flag=True,
    help="Print without colours (also with NO_COLOR, or if the output is not a terminal).",
)
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 0 ready, 10 failures, 11 warnings, 12 could not tell (default: 0 for all).",
)
@click.option(
    "--once", hidden=True, help="Check this node and exit; `hangdoctor preflight` passes OPTIONS."
)
@click.option(
    "--serve", hidden=True, help="Take part in the tests of --collectives; it passes SETUP."
)
def command(**flags: Any) -> None:
    """Check nodes before a job: GPUs, network, ptrace, clocks, disks, limits, versions, ranks left over.

    Each check prints what it read, whether that is a problem, and what to do. Versions, GPUs
    and clocks are compared between the nodes. Nothing is changed; test files are removed at
    once. With --collectives, nodes without running ranks also do a timed all_reduce in pairs,
    halves and all together, and the node or link that fails or is slow is named.
    """
    if flags["once"]:
        _answer(str(flags["once"]))
        return
    if flags["serve"]:
        _serve(str(flags["serve"]))
        return
    target = one_target(flags, {"local": "--local", "jobid": "--jobid J"}, needed=False)
    options = PreflightOptions(
        paths=list(flags["paths"]), gpus=flags["gpus"], timeout_s=flags["timeout"]
    )
    wanted = _collective_options(flags)
    progress = progress_to_stderr(bool(flags["quiet"]))
    nodes = None
    if target in ("", "local"):
        found = preflight.local(options)
    else:
        nodes = _nodes(target, flags)
        found = preflight.remote(nodes, options, progress)
    if flags["collectives"]:
        from ..preflight.collectives.check import check

        found = check(found, nodes, wanted, progress)
    _deliver(found, flags["json_file"], bool(flags["quiet"]), bool(flags["no_color"]))
    if flags["exit_code"]:
        raise click.exceptions.Exit(EXIT_CODES[found.verdict])


def _nodes(target: str, flags: dict[str, Any]) -> SlurmLauncher | Reach:
    """What asks the nodes of the target."""
    if target == "jobid":
        return SlurmLauncher(*parse_job(str(flags["jobid"])), str(flags["python"]))
    return reach_of(target, flags)


def _answer(once: str) -> None:
    try:
        text = preflight.answer(once)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--once takes the options that a launcher made: {error}") from error
    pipes.hand_back(text)


def _serve(setup: str) -> None:
    from ..preflight.collectives import node_server, words

    try:
        own = words.unpacked(setup)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--serve takes the set-up that a launcher made: {error}") from error
    node_server.serve(own)


def _collective_options(flags: dict[str, Any]) -> CollectiveOptions:
    return CollectiveOptions(
        sizes_in(str(flags["sizes"])),
        flags["rounds"],
        flags["collective_timeout"],
        flags["slow_below"] / 100,
        history=Path(os.environ.get("HOME", "/nonexistent")) / ".hangdoctor",
    )


def _deliver(found: Preflight, json_file: str | None, quiet: bool, no_color: bool) -> None:
    data = as_json(found)
    with pipes.shown():  # the exit code shows the verdict even if the reader of the table has gone
        if json_file == "-":
            sys.stdout.buffer.write(data)
        else:
            _show(found, quiet, no_color)
    if json_file and json_file != "-":
        try:
            Path(json_file).write_bytes(data)
        except OSError as error:
            raise BundleError(
                f"the findings cannot be written to {json_file}: {error.strerror}"
            ) from error


def _show(found: Preflight, quiet: bool, no_color: bool) -> None:
    from ..preflight.terminal_findings import render

    shown = msgspec.structs.replace(
        found, findings=[f for f in found.findings if f.verdict != "ok" or not quiet]
    )
    render(shown, console(no_color, width=160))
