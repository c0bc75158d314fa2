"""The `hangdoctor` command: finds the verb, runs it, and prints every known error as one line with an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

import click

from .._version import __version__
from ..errors import Cancelled, HangdoctorError, OutputClosed
from . import pipes

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETE = "_HANGDOCTOR_COMPLETE"  # asked for by the script of `hangdoctor completion`

# verb -> (module beside this one, its line in --help). The help lines are here so that --help
# imports no verb.
VERBS: dict[str, tuple[str, str]] = {
    "dump": ("dump", "Capture a hung job once and name the culprit rank."),
    "diagnose": (
        "diagnose",
        "Diagnose offline, from a bundle, job logs, py-spy output, Flight Recorder dumps or RAS output.",
    ),
    "run": ("run", "Start a training with the probe in every rank; needs no code change."),
    "agent": ("agent", "Run the agent of one node (started by dump and sidecar)."),
    "collect": (
        "collect",
        "Run the collector: detect stalls, capture, diagnose, save incidents.",
    ),
    "sidecar": ("sidecar", "Watch a running job: one agent on each node, and the collector."),
    "top": ("top", "Show blocked ranks and what blocks them, live."),
    "trace": (
        "trace.verb",
        "Trace Python calls in running ranks; export one timeline of all ranks.",
    ),
    "report": ("report", "Write reports from a bundle: HTML, text, JSON, Perfetto, flame graphs."),
    "preflight": (
        "preflight",
        "Check nodes before a job: GPUs, network, ptrace, clocks, disks, versions.",
    ),
    "incidents": ("incidents", "List, show, search, export or remove saved incidents."),
    "fleet": ("fleet", "Show all jobs, their last verdicts, and nodes that are culprits again."),
    "mcp": ("mcp", "Serve read-only tools to an assistant (Model Context Protocol)."),
    "clean": ("clean", "Remove the leftovers of finished jobs; bundles only on request."),
    "completion": ("completion", "Print the completion script of a shell: bash, zsh, fish."),
    "demo": ("demo", "Hang one rank of a real 8-rank job on this machine and diagnose it."),
}


class Verbs(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of `--help`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, imported now; None where there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".{VERBS[cmd_name][0]}", __package__)
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs and flags with their help, as `complete` describes them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from .complete import described

        return described(((name, help) for name, (_, help) in VERBS.items()), incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs for `--help`, written without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in VERBS.items()])


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="hangdoctor")
def program() -> None:
    """Find the rank that hangs a distributed training job, with evidence, in seconds.

    \b
    hangdoctor dump --local          all ranks of this host
    hangdoctor dump --jobid 12345    a running Slurm job, from the login node or from inside it
    hangdoctor diagnose BUNDLE       a saved bundle, offline
    """


def _terminated(signum: int, frame: FrameType | None) -> None:
    raise Cancelled(f"stopped by {signal.Signals(signum).name}")


def main() -> None:
    """Entry point. Exit codes: 0 done, even if the reader of the output has gone; 1 failed, 2 wrong usage, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot encode must not lose the verdict.
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if (
            signal.getsignal(number) == signal.SIG_DFL
        ):  # ignored signals stay ignored, as under nohup; also for the command of `run`
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
        pipes.say(f"hangdoctor: the output cannot be written: {error.strerror}", err=True)
        code = 1
    gc.freeze()  # the interpreter's last search for cycles would be a tenth of a short command
    sys.exit(code)


def _run() -> int:
    """Run the verb of the command line; returns its exit code."""
    try:
        result = program.main(standalone_mode=False, complete_var=COMPLETE)
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
        for line in error.help.splitlines():
            pipes.say(f"  {line.strip()}", err=True)
        return error.exit_code


if __name__ == "__main__":
    main()
