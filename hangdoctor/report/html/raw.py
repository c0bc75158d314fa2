"""What the tools printed, packed into the page: it travels with the verdict, and opens with one
click.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import msgspec
from msgspec import Struct

from ...storage.bundle import Manifest

_MAX_READ = 64_000_000  # bytes of files
_MAX_PACKED = 600_000  # characters of base64


class Raw(Struct):
    """`packed`: gzip over a JSON object {file: text}, in base64; "" where it would be too large,
    and `names` says so.
    """

    packed: str = ""
    names: list[str] = []
    total: int = 0  # bytes
    why_not: str = ""


def pack(folder: Path) -> Raw:
    """The bundle's raw files. Only what lies in its folder `raw`, whatever its manifest says."""
    names = _names(folder)
    raw = Raw(names=names)
    texts: dict[str, str] = {}
    for name in names:
        data = (folder / "raw" / name).read_bytes() if raw.total < _MAX_READ else b""
        raw.total += len(data)
        texts[name] = data.decode("utf-8", "replace")
    if not names:
        raw.why_not = "The bundle has no raw captures."
    elif raw.total >= _MAX_READ:
        raw.why_not = (
            "The raw captures are too large for a page; they are in the bundle's folder raw/."
        )
    else:
        # mtime 0: the same bundle gives the same page, to the byte.
        packed = base64.b64encode(gzip.compress(json.dumps(texts).encode(), 6, mtime=0)).decode()
        if len(packed) <= _MAX_PACKED:
            raw.packed = packed
        else:
            raw.why_not = f"The raw captures ({raw.total / 1e6:.0f} MB) are too large for a page; they are in the bundle's folder raw/."
    return raw


def manifest(folder: Path) -> Manifest | None:
    """The bundle's manifest, None where there is none: a capture that was never saved has no raw
    files either.
    """
    try:
        return msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def _names(folder: Path) -> list[str]:
    """Files below raw/ that the manifest lists: a bundle from elsewhere must not make the page
    carry other files.
    """
    listed = manifest(folder)
    root = folder.resolve() / "raw"
    names = []
    for name in sorted(listed.files) if listed is not None else ():
        path = folder / name
        if name.startswith("raw/") and path.resolve().is_relative_to(root) and path.is_file():
            names.append(name.removeprefix("raw/"))
    return names
