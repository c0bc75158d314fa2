"""NCCL's profiler plugin and `nccl_driver.c`, which calls it as NCCL does: built from source, started, ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Struct

from hangdoctor.readers.nccl_profiler import NcclEvents, read_events

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "hangdoctor" / "probe" / "nccl" / "_nccl.c"
DRIVER = ROOT / "tests" / "probe" / "scripts" / "nccl_driver.c"
RANK = DRIVER.with_name("nccl_rank.py")
VERSIONS = (1, 2, 3, 4, 5, 6)
_WARN = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


class Built(Struct):
    """The plugin, the driver as a program, and the driver as a library."""

    plugin: Path
    program: Path
    library: Path

    def start(self, folder: Path, version: int, *words: str, **more: str) -> subprocess.Popen[str]:
        """The driver, running, with its files in `folder`."""
        command = [str(self.program), str(self.plugin), str(version), *words]
        return subprocess.Popen(
            command,
            env=environment(folder, more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, version: int, *words: str, **more: str) -> str:
        """What it prints until it ends, which must be cleanly and without a word on stderr."""
        process = self.start(folder, version, *words, **more)
        out, err = process.communicate("\n", timeout=100)
        assert (process.returncode, err) == (0, ""), f"{words}: {out}{err}"
        return out

    def rank(
        self, folder: Path, version: int, rank: tuple[int, int], state: str, **more: str
    ) -> subprocess.Popen[str]:
        """A rank in Python that uses the plugin; `rank` is its number and the world's size."""
        command = [sys.executable, str(RANK), str(self.library), str(self.plugin)]
        return subprocess.Popen(
            [*command, str(version), state],
            env=environment(folder, more) | {"RANK": str(rank[0]), "WORLD_SIZE": str(rank[1])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )


def environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """That of a process whose communicators are recorded, kernels included."""
    told = {"HANGDOCTOR_DIR": str(folder), "HANGDOCTOR_NCCL_EVENTS": "device"}
    return os.environ | told | more


def build(folder: Path) -> Built:
    """Compile all three; the test is skipped where there is no compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = Built(folder / "plugin.so", folder / "driver", folder / "driver.so")
    shared = ["-shared", "-fPIC"]
    ours = ["-O2", "-fvisibility=hidden", "-Wl,-z,nodelete"]
    as_library = ["-O1", "-DAS_LIBRARY", "-Wno-unused-function", "-Wno-unused-variable"]
    for words in (
        [*shared, *ours, "-o", str(made.plugin), str(SOURCE)],
        ["-O1", "-o", str(made.program), str(DRIVER), "-ldl", "-pthread"],
        [*shared, *as_library, "-o", str(made.library), str(DRIVER), "-ldl", "-pthread"],
    ):
        subprocess.run([compiler, *_WARN, *words], check=True, timeout=60)
    return made


def private(folder: Path) -> Path:
    """A folder that no one else can write to, as the plugin wants it."""
    folder.mkdir(mode=0o700)
    return folder


def events_in(folder: Path) -> list[NcclEvents]:
    """All files of events there, by pid."""
    found = [read_events(path) for path in folder.glob("*.nccl")]
    return sorted((e for e in found if e is not None), key=lambda e: e.pid)
