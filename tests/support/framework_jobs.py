"""Hangs of other people's frameworks (`tests/frameworks/jobs`): start one, capture it, judge what was said.

A job and its capture have a process namespace of their own, where `dump --local` finds nothing else.
The job's first lines say who hangs it: `# culprit:`, `# kinds:`, `# frame:` (a function, or several), `# undecided:` where the verdict is not
exact today (bare, run).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.support.ports import free_port
from tests.support.stage import hangdoctor, switches, wait_until

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "frameworks" / "jobs"
_HELPERS = ("come.py", "megatron_job.py", "ray_job.py", "small_model.py", "titan_job.py")
_WORLD = 4
_MODULES = {
    "ddp": "torch",
    "fsdp2": "torch",
    "dcp": "torch",
    "dtensor": "torch",
    "pipelining": "torch",
}
# Packages that only their own jobs see, in a folder beside those of PYTHONPATH: Lightning asks mpi4py,
# where it is there, for the job's size; transformers looks for what torchtitan brings.
_FOLDERS = {"mpi4py": "mpi", "torchtitan": "titan"}
_START_S = 600.0
_CALM_S = 15.0  # ranks of MPI never are calm


class HangJob(Struct, frozen=True):
    """One job and what is true of it."""

    name: str
    framework: str
    start: str  # torchrun | python | mpirun | shell
    culprits: tuple[int, ...]
    kinds: tuple[str, ...]
    frames: tuple[str, ...]
    undecided: tuple[str, ...]  # bare or run, in which the verdict is not exact today

    @property
    def path(self) -> Path:
        """The program."""
        return JOBS / f"{self.name}.py"

    @property
    def half(self) -> str:
        """By its name alone: rules are made with one half of the jobs and judged by the other."""
        digest = hashlib.sha256(self.path.name.encode()).digest()
        return "held" if digest[0] % 2 else "dev"

    def missing(self) -> str:
        """What it needs and this machine does not have, "" where it can run."""
        module = _MODULES.get(self.framework, self.framework)
        if module in _FOLDERS:
            found = any((folder / module).is_dir() for folder in beside(_FOLDERS[module]))
        else:
            found = importlib.util.find_spec(module) is not None
        if not found:
            return f"{module} is not installed (make test-frameworks installs it)"
        if self.start == "mpirun" and not _mpirun():
            return "no mpirun"
        return "" if namespace() else "process namespaces cannot be made here (unshare)"


def beside(name: str) -> list[Path]:
    """A folder of `_FOLDERS`, for each of PYTHONPATH."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [Path(folder).parent / name / "site-packages" for folder in folders if folder]


def mpi_libraries(folder: Path) -> str:
    """A folder in which Debian's MPICH has the name that mpi4py looks for."""
    libraries = folder / "lib"
    libraries.mkdir(exist_ok=True)
    for found in Path("/usr/lib").glob("*-linux-gnu/libmpich.so.12"):
        (libraries / "libmpi.so.12").symlink_to(found)
    return str(libraries)


def _mpirun() -> str:
    return shutil.which("mpiexec.hydra") or shutil.which("mpirun") or ""


def namespace() -> list[str]:
    """The command that gives a process namespace; [] where none does."""
    for more in ([], ["--user", "--map-root-user"]):
        words = ["unshare", *more, "--pid", "--fork", "--mount-proc", "--kill-child"]
        if shutil.which("unshare") and not subprocess.run([*words, "true"]).returncode:
            return words
    return []


def jobs() -> list[HangJob]:
    """All of them, by name."""
    return [_read(p) for p in sorted(JOBS.glob("*.py")) if p.name not in _HELPERS]


def _read(path: Path) -> HangJob:
    told = dict(re.findall(r"^# (\w+): (.+)$", path.read_text(), re.M))
    culprits = tuple(int(n) for n in told["culprit"].split(","))
    kinds = tuple(told["kinds"].split(", "))
    frames = tuple(told["frame"].split("|"))
    undecided = tuple(told.get("undecided", "").split(", "))
    return HangJob(
        path.stem,
        told["framework"],
        told["start"],
        culprits,
        kinds=kinds,
        frames=frames,
        undecided=undecided,
    )


def capture(job: HangJob, with_run: bool, saved: Path | None = None) -> dict[str, Any]:
    """The diagnosis of `dump --local`, of the job as it is or under `hangdoctor run`; with `saved`,
    its bundle goes there.
    """
    with tempfile.TemporaryDirectory(prefix="hang-") as folder:
        words = [*namespace(), sys.executable, "-m", "tests.support.framework_jobs", job.name]
        words += [folder, *(["--run"] if with_run else [])]
        words += ["--saved", str(saved)] if saved else []
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=800)
        if done.returncode:
            raise AssertionError(f"{job.name}: {done.stderr[-3000:]}\n{_logged(Path(folder))}")
        return dict(json.loads(done.stdout))


def _logged(folder: Path) -> str:
    log = folder / "log"
    return log.read_text(errors="replace")[-3000:] if log.exists() else ""


class Verdict(Struct, frozen=True):
    """How a diagnosis compares to the truth."""

    ranks: bool  # all culprits and no other rank are named
    innocent: tuple[int, ...]
    told: bool  # any rank is named
    kind: bool
    frame: bool

    @property
    def word(self) -> str:
        """exact, other kind, innocent, part or could not tell."""
        if not self.told:
            return "could not tell"
        if self.innocent:
            return "innocent"
        if not self.ranks:
            return "part"
        return "exact" if self.kind else "other kind"


def judge(job: HangJob, said: dict[str, Any]) -> Verdict:
    """Compare what was said to what is true."""
    causes = said["causes"] if said["status"] in ("hang", "slow") else []
    named = {rank for cause in causes for rank in cause["ranks"]}
    kinds = {cause["kind"] for cause in causes}
    named_frames = [str(cause["where"]["frame"]).partition(" (")[0] for cause in causes]
    frames = {name.rpartition(".")[2] for name in named_frames}
    return Verdict(
        ranks=named == set(job.culprits),
        innocent=tuple(sorted(named - set(job.culprits))),
        told=bool(named),
        kind=bool(kinds) and kinds <= set(job.kinds),
        frame=bool(frames & set(job.frames)),
    )


# --------------------------------------------------------------------------- inside the namespace


def _command(job: HangJob, rank: int, port: str) -> list[str]:
    script = [sys.executable, str(job.path)]
    if job.start == "torchrun":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(_WORLD)]
        return [*torchrun, "--master-port", port, str(job.path)]
    if job.start == "mpirun":
        return [_mpirun(), "-n", str(_WORLD), *script]
    return [*script, str(rank), port] if job.start == "shell" else script


def _stuck(folder: Path) -> bool:
    files = [folder / f"rank.{rank}" for rank in range(_WORLD)]
    return all(file.exists() for file in files)


def _calm(pids: Sequence[int]) -> None:
    """Until no main thread has run for a while: then all have come as far as they get."""
    end, since, last = time.monotonic() + _CALM_S, time.monotonic(), ""
    while time.monotonic() < min(end, since + 1.5):
        now = " ".join(switches(pid) for pid in pids)
        if now != last:
            since, last = time.monotonic(), now
        time.sleep(0.1)


def _inside(job: HangJob, folder: Path, with_run: bool, saved: str) -> None:
    environ = os.environ | {
        "HANG_FOLDER": str(folder),
        "HANGDOCTOR_DIR": str(folder / "boxes"),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    if job.framework in _FOLDERS:
        paths = [os.environ.get("PYTHONPATH", ""), *map(str, beside(_FOLDERS[job.framework]))]
        environ["PYTHONPATH"] = os.pathsep.join(paths)
    if job.start == "mpirun":
        environ["LD_LIBRARY_PATH"] = mpi_libraries(folder)
    run = [sys.executable, "-m", "hangdoctor", "run", "--"] if with_run else []
    ranks = range(_WORLD) if job.start == "shell" else range(1)
    port = str(free_port())
    with (folder / "log").open("wb") as log:
        started = [
            subprocess.Popen([*run, *_command(job, r, port)], env=environ, stdout=log, stderr=log)
            for r in ranks
        ]
    wait_until(
        lambda: _stuck(folder) or any(p.poll() is not None for p in started), "last step", _START_S
    )
    assert _stuck(folder), "a process ended"
    pids = [int((folder / f"rank.{rank}").read_text()) for rank in range(_WORLD)]
    _calm(pids)
    assert all(p.poll() is None for p in started), "a process ended"
    assert not any(switches(pid) == "gone" for pid in pids), "a rank ended"
    flags = ("--local", "--json", "-", *(("--bundle", saved) if saved else ("--no-bundle",)))
    done = hangdoctor("dump", *flags, cwd=folder, code=None, env=environ, timeout=100)
    if done.returncode:
        said = " ".join(done.stderr.split())
        silent = {"status": "unknown", "causes": [], "summary": said}
        print(json.dumps(silent))
    else:
        print(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--saved", default="")
    arguments = parser.parse_args()
    job = _read(JOBS / f"{arguments.name}.py")
    _inside(job, arguments.folder, arguments.run, arguments.saved)
