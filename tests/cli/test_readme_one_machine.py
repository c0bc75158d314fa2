"""README's lines for one machine without Slurm, run as they are: only the number of ranks, the port
and, since other jobs of other tests are on this host, the job's name are put in.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.stage import free_port, hangdoctor, wait_until

ROOT = Path(__file__).parents[2]
TRAIN = """
import time
from pathlib import Path
import torch
import torch.distributed as dist

def load_batch():
    if dist.get_rank() == 1 and Path("hang").exists():
        time.sleep(3600)
    return torch.ones(4)

def train_step():
    dist.all_reduce(load_batch())

dist.init_process_group("gloo")
while True:
    train_step()
    Path(f"stepped.{dist.get_rank()}").touch()
    time.sleep(0.05)
"""
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
pytestmark = [pytest.mark.torch, pytest.mark.timeout(280)]


def readme_lines() -> dict[str, list[str]]:
    """{verb: its words}, of the block that follows "One machine, no Slurm"."""
    text = (ROOT / "README.md").read_text()
    block = text.partition("One machine, no Slurm:\n\n```\n")[2].partition("```")[0]
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert all(words[0] == "hangdoctor" for words in lines)
    return {words[1]: words[1:] for words in lines}


class Machine:
    """One user's folder and home, and what runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "home").mkdir()
        (folder / "train.py").write_text(TRAIN)
        kept = {n: v for n, v in os.environ.items() if not n.startswith("HANGDOCTOR")}
        self.environ = kept | {"HOME": str(folder / "home"), "PATH": PATH, "OMP_NUM_THREADS": "1"}

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{words[0]}.log").open("wb") as log:
            self.processes[words[0]] = subprocess.Popen(
                [sys.executable, "-m", "hangdoctor", *words],
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.processes[words[0]]

    def log(self, verb: str) -> str:
        return (self.folder / f"{verb}.log").read_text()

    def ask(self, *words: str) -> str:
        done = hangdoctor(*words, cwd=self.folder, env=self.environ)
        return done.stdout + done.stderr

    def ranks(self) -> dict[int, dict[str, str]]:
        """{rank: its environment}."""
        found: dict[int, dict[str, str]] = {}
        for process in psutil.Process(self.processes["run"].pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                environ = process.environ()
                if "RANK" in environ:
                    found[int(environ["RANK"])] = environ
        return found

    def end(self) -> None:
        boxes = {e["HANGDOCTOR_DIR"] for e in self.ranks().values()}
        for process in self.processes.values():
            below = psutil.Process(process.pid).children(recursive=True)
            for pid in [process.pid, *(child.pid for child in below)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait(timeout=60)
        for folder in boxes:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine that ends all that was started on it."""
    made = Machine(tmp_path)
    yield made
    made.end()


def page(machine: Machine) -> dict[str, object]:
    """What the page's API says of the job."""
    [told] = (machine.folder / "home").glob(".hangdoctor/jobs/*/web.json")
    web = json.loads(told.read_text())
    request = urllib.request.Request(
        f"{web['address']}/api/v1/status", headers={"Authorization": f"Bearer {web['token']}"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return dict(json.loads(answer.read())["status"])


def test_run_watch_top_trace_and_clean_as_the_readme_says(machine: Machine) -> None:
    lines = readme_lines()
    assert list(lines) == ["run", "sidecar", "top", "trace", "clean"]
    machine.start([word if word != "8" else "2" for word in lines["run"]])
    wait_until(lambda: (machine.folder / "stepped.1").exists(), lambda: machine.log("run"), 100)
    job = f"torchrun:{machine.ranks()[0]['TORCHELASTIC_RUN_ID']}"
    named = ["--job", job]

    free = f"127.0.0.1:{free_port()}"
    sidecar = [free if word == "127.0.0.1:8470" else word for word in lines["sidecar"]]
    assert free in sidecar
    machine.start([*sidecar, *named])
    wait_until(lambda: f"http://{free}" in machine.log("sidecar"), lambda: machine.log("sidecar"))
    known = "rhythm is known"
    wait_until(lambda: known in machine.log("sidecar"), lambda: machine.log("sidecar"), 100)
    assert page(machine)["counts"] == {"moving": 2}

    rows = machine.ask(*lines["top"], *named)
    assert "2 ranks" in rows or ("rank" in rows and "all_reduce" in rows), rows

    traced = machine.ask(*lines["trace"], *named)
    assert "ranks 0-1: tracing" in traced and "no traced rank" not in traced, traced
    [tail] = [line for line in traced.splitlines() if "to see the calls: " in line]
    words = shlex.split(tail.partition("to see the calls: ")[2])
    # The job by the name of its boxes, so that a newer one does not take its place.
    assert words[:-1] == ["hangdoctor", "trace", "tail", "--rank", "0", "--job"]
    calls = machine.ask(*words[1:], "--no-wait")
    assert "> train_step (" in calls and "torch/" not in calls, calls
    bare = [word for word in lines["trace"] if word not in ("--follow", "train")]
    assert "follows the script's own code: train" in machine.ask(*bare, *named)

    (machine.folder / "hang").touch()
    wait_until(lambda: "saved in" in machine.log("sidecar"), lambda: machine.log("sidecar"), 100)
    verdict = machine.ask("incidents", "show", "last")
    assert "HANG Rank 1 (" in verdict and "load_batch (train.py:" in verdict, verdict
    assert page(machine)["counts"] != {"moving": 2}

    found = machine.ask(*lines["clean"])
    boxes = machine.ranks()[0]["HANGDOCTOR_DIR"]
    kept = [line for line in found.splitlines() if line.startswith("keep")]
    assert any(f"{boxes}  (in use" in line for line in kept), found
    own = [line for line in kept if str(machine.folder) in line]
    assert len(own) == 1 and "1 incident, its collector is running" in own[0], found
    assert "would be removed" in found and Path(boxes).is_dir()
