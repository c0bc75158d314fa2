"""`hangdoctor agent`: hands over to the `agents` package, after making sure that it is ours."""

from __future__ import annotations

import base64
import binascii
import importlib
from types import ModuleType

import click
import msgspec

from ..errors import ShadowedPackage, UsageError
from ..readers.node import CaptureOptions

MARKER = "hangdoctor.agents/1"


def load_agents(module: str) -> ModuleType:
    """Import a module of our `agents` package. By name, since hangdoctor's layers do not know the agents'.

    Raises:
        ShadowedPackage: the `agents` that Python finds is another distribution's.
    """
    package = importlib.import_module("agents")
    if getattr(package, "HANGDOCTOR_AGENTS", None) != MARKER:
        where = getattr(package, "__file__", None) or next(iter(getattr(package, "__path__", ["?"])))
        raise ShadowedPackage(f"the package `agents` that Python finds is not hangdoctor's: {where}")
    return importlib.import_module(f"agents.{module}")


@click.command("agent")
@click.option(
    "--once", "once", metavar="OPTIONS", required=True, help="Capture this node once; OPTIONS come from `hangdoctor dump`."
)
def command(once: str) -> None:
    """The node agent: captures the ranks of this node.

    Started by `hangdoctor dump` on every node of a job, beside the training. It prints its report to
    standard output, needs no port and leaves nothing behind.
    """
    try:
        options = msgspec.json.decode(base64.urlsafe_b64decode(once), type=CaptureOptions)
    except (binascii.Error, msgspec.DecodeError) as error:
        raise UsageError(f"--once takes the options that a launcher made: {error}") from error
    load_agents("oneshot").main(options)
