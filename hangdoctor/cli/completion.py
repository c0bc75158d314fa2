"""`hangdoctor completion`: the script with which a shell completes verbs, flags, jobs and bundles."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..errors import HangdoctorError
from . import pipes

PROGRAM = "hangdoctor"
SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL (bash 4.4 or later, zsh, fish).

    It completes verbs, flags, jobs, incidents, bundles and files. To switch it on:

    \b
    bash: echo 'eval "$(hangdoctor completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(hangdoctor completion zsh)"' >> ~/.zshrc     after compinit
    fish: hangdoctor completion fish > ~/.config/fish/completions/hangdoctor.fish
    """
    made = get_completion_class(shell)
    if made is None:
        raise HangdoctorError(f"this version of click has no completion for {shell}")
    # The script calls the program by its name: it must be on PATH.
    from .main import COMPLETE, program

    for line in made(program, {}, PROGRAM, COMPLETE).source().splitlines():
        pipes.say(line)
