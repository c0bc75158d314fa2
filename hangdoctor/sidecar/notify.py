"""Messages to people by the library apprise (extra `notify`), imported when it is used.

An address is a secret: what is said of it is its line in the file and the name of its service.
"""

from __future__ import annotations

import importlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import BadInput
from ..files import open_regular
from ..time_limit import OutOfTime, within

_MAX_FILE = 64 << 10
_OTHERS = 0o077


class Message(Struct, frozen=True):
    """What is sent; `urgent` chooses the picture or level where a service has some."""

    title: str
    body: str
    urgent: bool = True


def check(path: Path) -> None:
    """Raises BadInput: apprise is not installed, or the file is not private or has a wrong line."""
    apprise = _library(path)
    if not list(_services(apprise, path)):
        raise BadInput(f"{path} has no address", "Write one address a line: docs/fleet.md.")


def services(path: Path) -> str:
    """``line 1 (Slack), line 2 (E-Mail)``, for a dry run.

    Raises:
        BadInput: as `check`.
    """
    return ", ".join(name for name, _ in _services(_library(path), path))


def send(path: Path, message: Message, timeout_s: float) -> str:
    """Send to every address in the file; what came of each, in words."""
    said: list[str] = []
    try:
        within(timeout_s, lambda: _send(path, message, said))
    except OutOfTime:
        said.append(f"no answer after {timeout_s:.0f} s")
    except BadInput as error:
        return str(error)
    return ", ".join(said)


def _send(path: Path, message: Message, said: list[str]) -> None:
    apprise = _library(path)
    level = apprise.NotifyType.FAILURE if message.urgent else apprise.NotifyType.WARNING
    for name, service in _services(apprise, path):
        sender = apprise.Apprise()
        sender.add(service)
        try:
            sent = sender.notify(title=message.title, body=message.body, notify_type=level)
        except Exception as error:  # its text may have the address
            said.append(f"{name} failed: {type(error).__name__}")
        else:
            said.append(f"{name} {'sent' if sent else 'failed'}")


def _library(path: Path) -> Any:
    try:
        library = importlib.import_module("apprise")
    except ImportError as error:
        raise BadInput(
            f"notifications need the library apprise, which is not installed ({error})",
            "In a checkout of hangdoctor: pip install '.[notify]'",
        ) from error
    # What it logs of a service may have parts of its address.
    log = logging.getLogger("apprise")
    log.propagate, log.disabled = False, True
    return library


def _services(apprise: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """(what may be said of it, the service) of each line."""
    for number, line in enumerate(_private_text(path).splitlines(), 1):
        url = line.strip()
        if not url or url.startswith("#"):
            continue
        service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if service is None:
            raise BadInput(
                f"line {number} of {path} is not an address that apprise knows",
                "See docs/fleet.md for the forms; the line is not printed, since it may have a secret.",
            )
        yield f"line {number} ({service.service_name})", service


def _private_text(path: Path) -> str:
    """The text of a file that only this user can read.

    Raises:
        BadInput: others can read it, it is another user's, or it cannot be read.
    """
    try:
        fd = open_regular(path, {os.geteuid()})
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        if stat.S_IMODE(os.fstat(fd).st_mode) & _OTHERS:
            raise BadInput(f"other users can read {path}", f"Make it private: chmod 600 {path}")
        data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise BadInput(f"{path} is larger than {_MAX_FILE >> 10} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text") from error
