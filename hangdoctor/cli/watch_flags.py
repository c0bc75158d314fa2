"""The flags that `collect` and `sidecar` share: of the collector, and of its page."""

from __future__ import annotations

from pathlib import Path

import click

from .shared_flags import Command, seconds, together

_COLLECTOR_FLAGS = (
    click.option(
        "--folder",
        metavar="DIR",
        type=click.Path(),
        help="The job's folder, on a file system that all nodes see (default: ~/.hangdoctor/jobs/JOB).",
    ),
    click.option(
        "--bind",
        default="",
        metavar="ADDRESS",
        help="Address to listen on (default: a free port on all interfaces).",
    ),
    seconds(
        "--stall-after",
        default=0.0,
        show_default=False,
        help="Seconds without progress that count as a stall (default: learned from the job).",
    ),
    seconds(
        "--slow-after",
        default=150.0,
        help="Seconds that the others must keep waiting for a rank before it is called slow; 0 turns this off.",
    ),
    seconds(
        "--settle",
        default=1.0,
        most=60,
        help="Seconds between the two samples of a capture.",
    ),
    seconds(
        "--capture-timeout",
        default=6.0,
        least=1,
        most=120,
        help="Seconds that the agents have for a capture.",
    ),
    click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        help="File with actions to take after a verdict (default: none; see docs/sidecar.md).",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Log what the actions would do, without doing it.",
    ),
    click.option("--once", is_flag=True, help="Exit after the first incident."),
)
_ADDRESS_FLAGS = (
    click.option(
        "--web",
        default="",
        metavar="[HOST:]PORT",
        help="Serve the live page and metrics on this address, for example 127.0.0.1:8470.",
    ),
    click.option(
        "--web-anywhere",
        is_flag=True,
        help="Allow --web to use an address that other machines can reach (plain http, not encrypted).",
    ),
    click.option(
        "--web-host",
        multiple=True,
        metavar="NAME",
        help="Another host name under which the page is opened.",
    ),
    click.option(
        "--metrics-token",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="File with the token for reading metrics (default: FOLDER/metrics.token, created if missing).",
    ),
    click.option(
        "--metrics-open",
        is_flag=True,
        help="Serve metrics without a token, only on the loopback.",
    ),
)

_RANKS_FLAG = click.option(
    "--metrics-ranks",
    default=1024,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Serve metrics of single ranks only up to N ranks.",
)


def address_flags(command: Command) -> Command:
    """--web and what belongs to an address: --web-host, --metrics-token ..."""
    return together(_ADDRESS_FLAGS)(command)


def watch_flags(command: Command) -> Command:
    """Add --folder, --bind, ... and --web, ... to a command."""
    return together([*_COLLECTOR_FLAGS, *_ADDRESS_FLAGS, _RANKS_FLAG])(command)
