"""`hangdoctor mcp`: answers an assistant's questions over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from ..assistant.server import serve
from ..assistant.tools import Tools, consent


@click.command("mcp")
@click.option(
    "--allow",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="Allow captures on other nodes: flags of dump, such as '--jobid 12345' or '--hostfile hosts'; "
    "'--jobid' alone allows any Slurm job of yours (default: this host only; can be repeated).",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A job's folder, as given to its collector, for incidents (default: the newest in ~/.hangdoctor/jobs).",
)
def command(targets: tuple[str, ...], folder: Path | None) -> None:
    """Serve read-only tools to an assistant in an editor or a chat, over standard input and output.

    The assistant can list jobs of this host, capture and diagnose them, read incidents, stacks and
    operations. It cannot change a job. Needs the extra `mcp`: pip install 'mcp>=2.3,<3'.
    """
    serve(Tools(consent(targets), folder))
