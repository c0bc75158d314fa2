"""--job takes the number of a process of the job, and hints name the job, so that a newer one does
not take over.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sidecar_stage import Start, starting
from tests.support.stage import hangdoctor, wait_until

pytestmark = [pytest.mark.timeout(150), pytest.mark.torch]

KEY = f"bypid-{os.getpid()}"
RANK = """import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def step():
    time.sleep(0.02)
print("up", flush=True)
while True:
    step()
    dist.all_reduce(torch.ones(1))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as begin:
        yield begin


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "sleeper.py"
    path.write_text(RANK)
    return path


def begin(start: Start, script: Path, name: str) -> subprocess.Popen[bytes]:
    """`hangdoctor run` of a shell with one rank, in a folder of its own."""
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}; true"
    environ = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": f"{KEY}-{name}"}
    environ["HANGDOCTOR_DIR"] = str(script.parent / f"boxes-{name}")
    words = ("-m", "hangdoctor", "run", "--", "sh", "-c", command)
    process = start(name, *words, **environ)
    log = script.parent / f"{name}.log"
    wait_until(lambda: log.exists() and "up" in log.read_text(), "the rank runs")
    return process


def test_run_its_shell_and_its_rank_name_the_job(
    start: Start, script: Path, tmp_path: Path
) -> None:
    older = begin(start, script, "older")
    begin(start, script, "newer")
    flags = ("--local", "--settle", "0", "--no-bundle", "--job")
    dumped = hangdoctor("dump", *flags, str(older.pid), cwd=tmp_path)
    assert f"captured job {KEY}-older (" in dumped.stderr
    assert f"{KEY}-newer (" in dumped.stderr, "the other one is listed"
    shown = hangdoctor("top", "--once", "--job", str(older.pid), cwd=tmp_path).stdout
    assert f"{KEY}-older" in shown

    told = hangdoctor(
        "trace", "start", "--follow", "__main__", "--job", str(older.pid), cwd=tmp_path
    )
    assert "to see the calls" in told.stderr, told.stderr + told.stdout
    hint = next(line for line in told.stderr.splitlines() if "to see the calls" in line)
    words = shlex.split(hint.rpartition("hangdoctor ")[2])
    job = words[words.index("--job") + 1]
    status = hangdoctor("trace", "status", "--job", job, cwd=tmp_path).stderr
    assert "boxes-older" in status and "boxes-newer" not in status, status
    tail = hangdoctor(*words, "--no-wait", cwd=tmp_path)
    assert "tracing switched on" in tail.stdout, tail.stderr


def test_a_number_that_is_no_process_of_a_job_names_none(
    start: Start, script: Path, tmp_path: Path
) -> None:
    begin(start, script, "one")
    other = start("other", "-c", "import time; time.sleep(600)").pid
    said = hangdoctor("dump", "--local", "--job", str(other), cwd=tmp_path, code=1)
    assert f"no job '{other}' on this host" in said.stderr
    assert "ranks of " in said.stderr or "rank of " in said.stderr
