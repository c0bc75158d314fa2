"""A file system that does not answer: FUSE without a server. Whoever looks into it waits until it is taken away."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2  # MNT_DETACH


@contextlib.contextmanager
def stuck(folder: Path) -> Iterator[Path]:
    """`folder`, which answers nothing; skips where such a thing cannot be made."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"needs FUSE: {error}")
    folder.mkdir()
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if _LIBC.mount(b"stuck", bytes(folder), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip(f"needs the right to mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        os.close(device)  # ends the file system: whoever waits gets an error
        _LIBC.umount2(bytes(folder), _DETACH)
