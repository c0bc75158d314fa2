"""The `hangdoctor` command: finds the verb, runs it, and turns every known error into one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import signal
import sys
from types import FrameType

import click

from .._version import __version__
from ..errors import Cancelled, HangdoctorError, OutputClosed
from . import pipes

# verb -> (module beside this one, its line in --help). The help lines stand here so that --help imports no verb.
VERBS: dict[str, tuple[str, str]] = {
    "dump": ("dump", "Capture a hung job once and name the culprit rank."),
    "diagnose": ("diagnose", "The same diagnosis offline, from a bundle or from py-spy output."),
    "run": ("run", "Start a training with the probe in every rank, without a code change."),
    "agent": ("agent", "The node agent: what runs beside the ranks."),
    "collect": (
        "collect",
        "The collector: hears the agents, sees a stall, captures and keeps the verdict.",
    ),
    "sidecar": ("sidecar", "Agents on every node of a running job, and the collector beside them."),
    "top": ("top", "Who holds up whom, live in the terminal."),
    "trace": (
        "trace.verb",
        "Python calls of running ranks, switched on and off; one timeline of all ranks.",
    ),
    "report": ("report", "Files to look at, to share or to load elsewhere, from a bundle."),
    "preflight": (
        "preflight",
        "Check nodes before a job: GPUs, network, ptrace, clocks, disks, versions.",
    ),
    "incidents": ("incidents", "What the collector has kept: list, show, prune."),
    "demo": ("demo", "Hang one rank of a real 8-rank job here, and diagnose it."),
}


class Verbs(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".{VERBS[cmd_name][0]}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in VERBS.items()])


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="hangdoctor")
def program() -> None:
    """Names the rank that hangs a distributed training, in seconds, with its evidence.

    \b
    hangdoctor dump --local          all ranks of this host
    hangdoctor dump --jobid 12345    a running Slurm job, from the login node or from inside
    hangdoctor diagnose BUNDLE       again, offline
    """


def _terminated(signum: int, frame: FrameType | None) -> None:
    raise Cancelled(f"ended by {signal.Signals(signum).name}")


def main() -> None:
    """Entry point. Exit codes: 0 done, also where nobody reads the output; 1 could not, 2 wrong usage, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not cost the verdict.
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if (
            signal.getsignal(number) == signal.SIG_DFL
        ):  # what is ignored stays so, as under nohup; also for `run`'s command
            signal.signal(number, _terminated)
    pipes.watch()
    code = 0
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except OutputClosed:
        pipes.drop()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        pipes.drop()
        pipes.say(f"hangdoctor: there is no room left for the output: {error.strerror}", err=True)
        code = 1
    sys.exit(code)


def _run() -> int:
    """The verb that the command line names; its exit code."""
    try:
        result = program.main(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show(sys.stderr)
        return 2
    except (click.Abort, KeyboardInterrupt):
        pipes.say("hangdoctor: cancelled", err=True)
        return 130
    except HangdoctorError as error:
        pipes.say(f"hangdoctor: {error}", err=True)
        if error.help:
            pipes.say(f"  {error.help}", err=True)
        return error.exit_code


if __name__ == "__main__":
    main()
