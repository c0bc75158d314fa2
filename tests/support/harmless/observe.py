"""Runs one program of the harness in one way, and gathers everything that can be seen of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

HERE = Path(__file__).parent
PROGRAMS = Path(__file__).parents[2] / "probe" / "harmless" / "programs"
PLAIN: list[str] = []
RUN = [sys.executable, "-m", "hangdoctor", "run", "--quiet", "--"]
TRACED = [sys.executable, "-m", "hangdoctor", "run", "--quiet", "--trace", "--"]
SECONDS = 110


@dataclass
class Observation:
    """What is compared: every field but `probes`, which says what the probe did in each place."""

    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    files: dict[str, str] = field(default_factory=dict)
    processes: list[str] = field(default_factory=list)
    environ: dict[str, dict[str, str]] = field(default_factory=dict)
    descriptors: dict[str, list[str]] = field(default_factory=dict)
    threads: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    signals: dict[str, dict[str, Any]] = field(default_factory=dict)
    interpreter: dict[str, dict[str, Any]] = field(default_factory=dict)
    probes: dict[str, str] = field(default_factory=dict)


def command(program: Path) -> list[str]:
    return ["sh" if program.suffix == ".sh" else sys.executable, str(program)]


class Running:
    """A program that runs in a folder of its own, in a session of its own."""

    def __init__(
        self, program: Path, before: list[str], base: Path, more: dict[str, str] | None = None
    ) -> None:
        self.base, self.folder = base, base / "folder"
        (self.folder / "tmp").mkdir(parents=True)
        self.port = str(free_port())
        self.environ = self._environment() | (more or {})
        with (base / "stdout").open("wb") as out, (base / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [*before, *command(program)],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        """Small, and the same in every way; ranks find themselves alone in a job of one."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": str(HERE),
            "PYTHON": sys.executable,
            "PROGRAMS": str(PROGRAMS),
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self.port,
            "OMP_NUM_THREADS": "1",
            "WITNESS": str(self.base / "witness"),
            "HANGDOCTOR_DIR": str(self.base / "boxes"),
        }

    def end(self, seconds: float = SECONDS) -> Observation:
        """Wait for it; what was seen.

        Raises:
            subprocess.TimeoutExpired: it did not end; it has been killed.
        """
        try:
            self.process.wait(timeout=seconds)
            left = left_over(self.process.pid)
        finally:
            kill(self.process.pid)
            self.process.wait()
        seen = Observation(
            self.process.returncode, self._read("stdout"), self._read("stderr"), self._files(), left
        )
        witness = self.base / "witness"
        for line in witness.read_text().splitlines() if witness.exists() else []:
            said = json.loads(self._clean(line))
            place = said.pop("place")
            seen.probes[place] = said.pop("probe")
            for name, value in said.items():
                getattr(seen, name)[place] = value
        return seen

    def _read(self, name: str) -> str:
        return self._clean((self.base / name).read_text(errors="backslashreplace"))

    def _clean(self, text: str) -> str:
        """Without what differs between any two runs: folder, port, addresses, times of log lines."""
        text = text.replace(str(self.base), "<base>").replace(self.port, "<port>")
        text = re.sub(r"\b0x[0-9a-f]{6,}", "0x...", text)
        text = re.sub(r"USDT:[-0-9 :]+", "USDT:<time> ", text)
        return re.sub(r"\[([IWEF])\d{4} [\d:.]+ +\d*", r"[\1<time> ", text)

    def _files(self) -> dict[str, str]:
        """Every file below the program's folder: type, mode and content."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.name.endswith(".pyc"):
                continue  # their names and times say nothing about the program
            mode = path.lstat().st_mode
            content = (
                self._clean(path.read_text(errors="backslashreplace")) if stat.S_ISREG(mode) else ""
            )
            found[str(path.relative_to(self.folder))] = f"{stat.filemode(mode)} {content[:10_000]}"
        return found


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text(errors="replace")
                state, _, _, sid = text[text.rindex(")") + 2 :].split()[:4]
                if int(sid) == leader and state not in "ZX":
                    found.append(int(entry.name))
    return found


def left_over(leader: int) -> list[str]:
    """Names of processes that outlive the program; those that are about to end are given two
    seconds.
    """
    end = time.monotonic() + 2
    while session(leader) and time.monotonic() < end:
        time.sleep(0.05)
    names = []
    for pid in session(leader):
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return sorted(names)


def kill(leader: int) -> None:
    for pid in session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
