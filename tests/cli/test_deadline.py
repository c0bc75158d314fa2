"""`--timeout` is kept, whatever is found: the tests' own limits would end a dump that waits for
good.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.readers import pyspy
from tests.support.stage import hangdoctor, wait_until
from tests.support.stuck_files import stuck

pytestmark = pytest.mark.timeout(200)


@contextlib.contextmanager
def processes(
    code: str, *environs: dict[str, str], argv: Sequence[str] = ()
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One Python process for each environment; ready when it has said so."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for environ in environs:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-S", "-c", code, *argv],
                    env=os.environ | environ,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
            assert process.stdout is not None
            process.stdout.close()


def rank(number: int, world: int, **more: str) -> dict[str, str]:
    return {
        "RANK": str(number),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "10.255.0.1",
        "MASTER_PORT": "28899",
    } | more


SLEEPS = "import time; print('up', flush=True); time.sleep(600)"


def dumped(tmp_path: Path, *words: str) -> dict[str, Any]:
    target = ("--local", "--job", "10.255.0.1:28899", "--no-bundle", "--json", "-")
    found: dict[str, Any] = json.loads(hangdoctor("dump", *target, *words, cwd=tmp_path).stdout)
    return found


def test_a_folder_of_black_boxes_that_does_not_answer(tmp_path: Path) -> None:
    with (
        stuck(tmp_path / "stuck") as folder,
        processes(SLEEPS, rank(0, 1, HANGDOCTOR_DIR=str(folder))),
    ):
        found = dumped(tmp_path, "--timeout", "12")
    assert found["stacks"][0]["ranks"] == [0]  # what else there is to see was seen
    assert [r["state"] for r in found["ranks"]] == ["S still"]  # and twice
    assert any("black boxes could not be read" in note for note in found["notes"])


def test_a_place_for_the_bundle_that_does_not_answer(tmp_path: Path) -> None:
    """The verdict is given all the same; then what went wrong."""
    with stuck(tmp_path / "stuck") as folder, processes(SLEEPS, rank(0, 1)) as (process,):
        words = (
            "dump",
            "--pid",
            str(process.pid),
            "--settle",
            "0",
            "--timeout",
            "5",
            "--bundle",
            str(folder / "kept"),
        )
        done = hangdoctor(*words, cwd=tmp_path, code=1)
    assert "Rank 0" in done.stdout
    assert "did not answer" in done.stderr and str(folder) in done.stderr


def test_a_world_that_no_job_has(tmp_path: Path) -> None:
    loopback = rank(0, 1_999_999, MASTER_ADDR="127.0.0.1", MASTER_PORT="28899")
    with processes(SLEEPS, loopback):
        target = (
            "--local",
            "--job",
            "127.0.0.1:28899",
            "--no-bundle",
            "--settle",
            "0",
            "--json",
            "-",
        )
        found = json.loads(hangdoctor("dump", *target, cwd=tmp_path).stdout)
    assert [r["rank"] for r in found["ranks"]] == [0]


def test_a_rank_of_five_hundred_threads(tmp_path: Path) -> None:
    code = "import threading, time\nfor _ in range(500): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    with processes(code + SLEEPS, rank(0, 1)):
        found = dumped(tmp_path, "--timeout", "20", "--settle", "0.5")
    assert [r["state"] for r in found["ranks"]] == ["S still"]
    assert found["stacks"]


# Two thousand of them fit a test machine because they are forks of one.
MANY = """
import os, sys, time
numbers = []
for i in range(2000):
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
print('up', flush=True)
time.sleep(600)
"""


def test_two_thousand_processes_below_a_rank(tmp_path: Path) -> None:
    with processes(MANY, rank(0, 1)):
        found = dumped(tmp_path, "--timeout", "15", "--settle", "0.5")
    assert [r["state"] for r in found["ranks"]] == ["S still"]


# What calls itself python and has a rank is one, for all that can be seen of it; it costs next to
# nothing.
RANKS = """
import os, sys, time
world = int(sys.argv[1])
for i in range(world):
    if os.fork() == 0:
        os.execve('/bin/sleep', ['python3', '600'],
                  {"RANK": str(i), "WORLD_SIZE": str(world), "MASTER_ADDR": "10.255.0.1", "MASTER_PORT": "28899"})
for pid in map(int, open(f'/proc/self/task/{os.getpid()}/children').read().split()):
    while b'RANK' not in open(f'/proc/{pid}/environ', 'rb').read(): time.sleep(0.01)
print('up', flush=True)
time.sleep(600)
"""


def test_more_ranks_on_one_host_than_can_be_read_in_time(tmp_path: Path) -> None:
    """All are there; of whom there is no stack the report says why, and no more than a line for
    each reason.
    """
    with processes(RANKS, {}, argv=["200"]):
        found = dumped(tmp_path, "--timeout", "1", "--settle", "0.2")
    assert sorted(r["rank"] for r in found["ranks"]) == list(range(200))
    assert found["status"] == "unknown" and found["summary"].startswith("Could not tell")
    missing = [m for m in found["missing"] if m["what"] == "stack"]
    assert sorted(r for m in missing for r in m["ranks"]) == list(range(200))
    assert len(missing) < 10 and any("the deadline of 1 s came first" in m["why"] for m in missing)


def test_two_thousand_ranks_on_one_host_do_not_cost_more_than_the_deadline(tmp_path: Path) -> None:
    with processes(RANKS, {}, argv=["2000"]):
        try:
            limit = 10
            found = dumped(tmp_path, "--timeout", "10")
        except AssertionError as error:  # on a busy machine they are not even listed by then
            if "could not be listed within" not in str(error):
                raise
            limit = 40
            found = dumped(tmp_path, "--timeout", "40")
    assert found["took"]["capture_s"] < 1.5 * limit
    seen = {r["rank"] for r in found["ranks"]}
    unread = [n for n in found["notes"] if "could not be read within" in n]
    assert seen == set(range(2000)) or unread, "who is missing is said to be not read"
    assert found["status"] == "unknown"
    assert limit > 10 or any("came first" in m["why"] for m in found["missing"])


@pytest.fixture
def stuck_pyspy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A py-spy that never answers, and whose child keeps its pipes open after it is killed."""
    program = tmp_path / "py-spy"
    program.write_text(
        f"#!/bin/sh\ntrap '' TERM\nsleep 1000 &\necho $! >>{tmp_path}/children\nwait\nsleep 1000\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "find_pyspy", lambda: str(program))
    return tmp_path / "children"


@pytest.mark.timeout(60)
def test_a_py_spy_that_hangs(stuck_pyspy: Path) -> None:
    result = pyspy.dump(os.getpid(), 2.0)
    assert result.threads == []
    assert "did not answer within" in result.error
    for pid in map(int, stuck_pyspy.read_text().split()):
        wait_until(lambda pid=pid: ended(pid), "its child ends with it")  # type: ignore[misc]


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.timeout(100)
def test_a_py_spy_that_hangs_costs_half_the_time_and_not_the_second_sample(
    stuck_pyspy: Path,
) -> None:
    from hangdoctor.readers.node import CaptureOptions, capture_node

    with processes(SLEEPS, rank(0, 1)) as (process,):
        found = capture_node(CaptureOptions(pids=[process.pid], timeout_s=6.0, settle_s=0.2))
    assert len(found.ranks[0].samples) == 2 and all(s.state in "SR" for s in found.ranks[0].samples)
    assert "did not answer" in found.ranks[0].samples[0].stack_error
