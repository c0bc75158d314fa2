"""Hosts from a file, by ssh or by pdsh over ssh: for clusters without a scheduler, or past one that
does not answer.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadInput, LauncherError, UsageError
from ..text.ranges import MAX_HOSTS, number_in, parse_hosts
from . import gather
from .knock import Address, Knocker
from .lost_nodes import Watch
from .remote import Command, query
from .slurm_job import clean_environment

_HOST = re.compile(r"^(?:[\w.-]+@)?[A-Za-z0-9][\w.:-]*$")
_SLOTS = re.compile(r"^slots=\d+$")
_ASK_S = 1.0  # for ssh to print its own settings
_CONNECT_S = 5  # to reach a host; a dead one is known after that
_HELP = "Write one host per line, as `n1` or `n1 slots=8`; # starts a comment."


def read_hostfile(path: Path) -> list[str]:
    """The hosts of a file in its order, each once.

    Lines are ``host [slots=n]`` (DeepSpeed's form), ``host:8``, ``n[1-4]``, empty, or comments.

    Raises:
        BadInput: the file cannot be read, has no host, or a line that is none; the line is named.
    """
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise BadInput(f"the host file {path} cannot be read: {error.strerror}", _HELP) from error
    hosts: dict[str, None] = {}
    known: set[str] = set()  # lines that were read already
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words or line in known:
            continue
        known.add(line)
        hosts.update(dict.fromkeys(_hosts_of(words, path, number, line)))
        if len(hosts) > MAX_HOSTS:
            raise BadInput(f"the host file {path} names more than {MAX_HOSTS:,} hosts", _HELP)
    if not hosts:
        raise BadInput(f"the host file {path} has no host in it", _HELP)
    return list(hosts)


def _hosts_of(words: list[str], path: Path, number: int, line: str) -> list[str]:
    wrong = BadInput(f"{path}, line {number}, is not a host: {line.strip()[:80]!r}", _HELP)
    if any("=" not in w for w in words[1:]) or any(
        w.startswith("slots=") and not _SLOTS.match(w) for w in words[1:]
    ):
        raise wrong
    try:
        names = parse_hosts(re.sub(r":\d+$", "", words[0]))
    except UsageError:
        raise wrong from None
    # A name that begins with a dash would be an option of ssh.
    if not names or not all(map(is_host, names)):
        raise wrong
    return names


def is_host(name: str) -> bool:
    """Whether ssh takes this for a host, and not for an option."""
    return _HOST.match(name) is not None


class SshReach:
    """The hosts of a file, with one ssh (or pdsh) a host; see `reach.Reach`."""

    def __init__(self, hostfile: Path, shell: str = "ssh", python: str = "") -> None:
        self.hostfile = hostfile
        self.means = shell
        self.python = python

    def nodes(self) -> list[str]:
        """The hosts of the file.

        Raises:
            BadInput, LauncherError: the file cannot be read, or the remote shell is not here.
        """
        hosts = read_hostfile(self.hostfile)
        if shutil.which(self.means) is None:
            other = "pdsh" if self.means == "ssh" else "ssh"
            raise LauncherError(
                f"{self.means} was not found",
                f"Install it, or use --remote-shell {other}.",
            )
        return hosts

    def by_hand(self) -> str:
        """See `reach.TriedByHand`."""
        return "ssh {node} true" if self.means == "ssh" else f"{self.means} -w {{node}} true"

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """One ssh or pdsh a host; raises as `nodes`."""
        make = ssh_command if self.means == "ssh" else pdsh_command
        command = gather.shell_command(gather.own_command(words, self.python))
        return [make(host, command, timeout_s) for host in self.nodes()]

    def unasked(self) -> dict[str, str]:
        """None: a host file says nothing about its hosts."""
        return {}

    def watch(self) -> Watch:
        """Knocks at sshd."""
        return Watch(Knocker(ssh_address))


def ssh_command(host: str, command: str, timeout_s: float) -> Command:
    """No question is ever asked: a host that wants a password, or whose key is unknown, is silent
    and says why.
    """
    connect = max(1, min(_CONNECT_S, int(timeout_s)))
    options = [
        "-o",
        "BatchMode=yes",
        "-o",
        f"ConnectTimeout={connect}",
        "-o",
        "ServerAliveInterval=5",
        "-x",
        "-T",
    ]
    return Command(host, ["ssh", *options, "--", host, command])


def ssh_address(host: str) -> Address | None:
    """Where ssh would connect for this host; None where it goes by way of another one, or does not
    say.
    """
    try:
        told = query(("ssh", "-G", "--", host), _ASK_S, clean_environment(os.environ)).output
    except LauncherError:
        return None
    said = dict(line.split(" ", 1) for line in told.splitlines() if " " in line)
    proxy = [
        said[name] for name in ("proxyjump", "proxycommand") if said.get(name, "none") != "none"
    ]
    name, port = said.get("hostname", ""), said.get("port", "")
    if proxy or not name or not 0 <= number_in(port) <= 65_535:
        return None
    return Address(name, (int(port),), "sshd")


def pdsh_command(host: str, command: str, timeout_s: float) -> Command:
    """One pdsh a host, so that its labels (it cuts domains off) are not needed; -S for an exit
    code.
    """
    connect = max(1, min(_CONNECT_S, int(timeout_s)))
    # pdsh replaces %h, %u and %n in the command by itself.
    escaped = command.replace("%", "%%")
    return Command(
        host,
        [
            "pdsh",
            "-R",
            "ssh",
            "-N",
            "-S",
            "-t",
            str(connect),
            "-u",
            str(max(1, int(timeout_s))),
            "-w",
            host,
            escaped,
        ],
    )
