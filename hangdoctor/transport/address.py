"""Where the collector is: HANGDOCTOR_COLLECTOR, or the address file in the job's folder on the
shared file system.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput, CollectorError, UsageError
from ..files import read_of_folder
from .keys import renew_private

FILE = "collector.json"
_LOCAL = re.compile(r"^(ipc://.+|tcp://(127\.\d+\.\d+\.\d+|localhost|\[::1\]):(\d+|\*))$")
_FORM = re.compile(r"^(ipc://.{1,90}|tcp://[A-Za-z0-9.:\[\]_*-]{1,200}:(\d{1,5}|\*))$")


class Address(Struct):
    """collector.json: where the collector listens, and its process."""

    address: str
    pid: int = 0
    host: str = ""


def job_folder(job: str) -> Path:
    """Default folder of a job: in the home folder, which nodes share nearly everywhere."""
    from ..text.plain import safe_name

    return Path.home() / ".hangdoctor" / "jobs" / safe_name(job)


def check(address: str, insecure: bool) -> str:
    """The address, if it is one.

    Raises:
        UsageError: it is none, or would carry plaintext over a network.
    """
    if not _FORM.match(address):
        raise UsageError(
            f"'{address}' is not an address",
            "For example tcp://node1:7511 or ipc:///run/user/1000/hangdoctor",
        )
    if insecure and not _LOCAL.match(address):
        raise UsageError(
            f"--insecure works only on this machine, and {address} is not local",
            "Use tcp://127.0.0.1:PORT or ipc://PATH",
        )
    return address


def publish(folder: Path, address: str) -> None:
    """Write down where the collector is.

    Raises:
        CollectorError: it cannot be written, or a file of somebody else's has that name.
    """
    here = Address(address, os.getpid(), socket.gethostname())
    renew_private(folder / FILE, msgspec.json.encode(here), _is_address)


def _is_address(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=Address)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def published(folder: Path) -> str:
    """The address that the collector wrote down, "" where there is none yet."""
    found = read(folder)
    return found.address if found is not None else ""


def read(folder: Path) -> Address | None:
    """What the collector wrote down, None where there is none yet."""
    try:
        data = read_of_folder(folder / FILE, 4096)
        return msgspec.json.decode(data, type=Address)
    except (OSError, BadInput, UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return None


def relay_folder(folder: Path, name: str) -> Path:
    """Where a collector of the tree keeps its own state and writes its address."""
    from ..text.plain import safe_name

    return folder / "relays" / safe_name(name)


def find(folder: Path | None, told: str = "", via: str = "") -> str:
    """The collector's address: as given, from HANGDOCTOR_COLLECTOR, or from the folder (there
    of the one that is named `via`,
    where it is a tree); "" where it is not there yet.

    Raises:
        CollectorError: the address is not known.
    """
    address = told or ("" if via else os.environ.get("HANGDOCTOR_COLLECTOR", ""))
    if address:
        return address
    if folder is None:
        raise CollectorError(
            "the address of the collector is not known",
            "Pass its folder with --folder DIR, or set HANGDOCTOR_COLLECTOR.",
        )
    return published(relay_folder(folder, via) if via else folder)


def own_host() -> str:
    """An address of this host that other nodes can reach: what its name resolves to, else the
    default route's.
    """
    try:
        found = socket.gethostbyname(socket.gethostname())
    except OSError:
        found = "127.0.0.1"
    if not found.startswith("127."):
        return found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel only chooses the interface.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return found
