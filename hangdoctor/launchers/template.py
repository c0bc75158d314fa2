"""Nodes reached by a command of the user's own: ``ssh -J gate {host}``, ``docker exec {host}``."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import PurePath

from ..errors import LauncherError, UsageError
from ..text.ranges import parse_hosts
from . import gather
from .remote import Command

_HOST, _LINE = "{host}", "{command}"
_NODE = "NODE-TO-BE-NAMED"  # needs no quotes, as a name of a node does not
# A name that begins with a dash would be an option; one with a blank or quote, two words of a shell.
_NAME = re.compile(r"[A-Za-z0-9_][\w.:@/+-]*")
_JOINS_WORDS = {"ssh", "rsh", "gsissh"}  # for a shell on the other side, which splits them again
_EXAMPLE = "For example: --exec 'ssh -J gate {host}' --hosts n[1-8]"


class TemplateReach:
    """The hosts of a list, with one command made of the template for each; see `reach.Reach`."""

    def __init__(self, template: str, hosts: str, python: str = "") -> None:
        """
        Raises:
            UsageError: the template or the list is none.
        """
        self.words = template_words(template)
        self.hosts = _host_names(hosts)
        self.python = python
        self.means = PurePath(self.words[0]).name

    def nodes(self) -> list[str]:
        """The hosts of the list.

        Raises:
            LauncherError: the template's program is not here.
        """
        program = self.words[0].replace(_HOST, self.hosts[0])
        if shutil.which(program) is None:
            raise LauncherError(
                f"{program} was not found",
                f"--exec starts it on this host: {shlex.join(self.words)}",
            )
        return self.hosts

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """The template's command for each host, which has no limit of its own; raises as `nodes`."""
        own = gather.own_command(words, self.python)
        return [Command(host, filled(self.words, host, own)) for host in self.nodes()]

    def by_hand(self) -> str:
        """See `reach.TriedByHand`."""
        return shlex.join(filled(self.words, _NODE, ["true"])).replace(_NODE, "{node}")

    def unasked(self) -> dict[str, str]:
        """None: a list says nothing about its hosts."""
        return {}

    def watch(self) -> None:
        """None: where a command of the user's own connects to is not known."""
        return


def template_words(template: str) -> list[str]:
    """The words of a template, split as a shell does.

    Raises:
        UsageError: a quote is not closed, or there is no {host}.
    """
    try:
        words = shlex.split(template)
    except ValueError:
        raise UsageError(f"--exec has a quote that is not closed: {template}", _EXAMPLE) from None
    if not any(_HOST in word for word in words):
        raise UsageError(f"--exec has no {_HOST}: {template}", _EXAMPLE)
    return words


def _host_names(text: str) -> list[str]:
    names = list(dict.fromkeys(parse_hosts(text)))
    if not names:
        raise UsageError("--hosts has no name in it", _EXAMPLE)
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    if wrong:
        raise UsageError(f"--hosts has a name that is none: {wrong[0]!r}", _EXAMPLE)
    return names


def filled(template: Sequence[str], host: str, command: Sequence[str]) -> list[str]:
    """The template's words for one host, with `command` in the place of {command}, else behind them."""
    named = [word.replace(_HOST, host) for word in template]
    if any(_LINE in word for word in template):
        line = shlex.join(command)
        return [word.replace(_LINE, line) for word in named]
    words = list(command)
    for word in template:
        if PurePath(word).name in _JOINS_WORDS:
            words = [shlex.quote(w) for w in words]
    return named + words
