"""JAX in the memory of a real process: a library by its name, as jaxlib is laid out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdoctor.model.capture import RankCapture
from hangdoctor.readers import loaded_modules

HOLD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("folder", "has"), [("jaxlib", True), ("jaxtyping", False)])
def test_a_library_of_jaxlib_is_seen(tmp_path: Path, folder: str, *, has: bool) -> None:
    spec = find_spec("psutil._psutil_linux")
    assert spec is not None and spec.origin is not None
    library = tmp_path / folder / "_any.so"
    library.parent.mkdir()
    shutil.copy(spec.origin, library)
    command = [sys.executable, "-c", HOLD, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        rank = RankCapture(pid=process.pid, rank=0)
        loaded_modules.attach([rank])
        process.stdin.close()
        assert process.wait(timeout=20) == 0
    assert rank.has_jax is has


def test_a_process_that_has_ended_has_nothing() -> None:
    rank = RankCapture(pid=2**22 + 1, rank=0)
    loaded_modules.attach([rank])
    assert not rank.has_jax and not loaded_modules.are_there(rank.pid)
