"""Call tracing over the life of a job: packages that no one imports, ranks that come late,
restarts, and what a crash leaves behind.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.cli.trace.control import outcome_lines
from hangdoctor.cli.trace.target import TracedRank
from hangdoctor.probe import format as fmt
from hangdoctor.probe.calls import request as requests
from hangdoctor.probe.calls import run
from hangdoctor.probe.calls.request import Request
from hangdoctor.probe.folder import field, is_running
from tests.support.ports import free_port
from tests.support.probe_ranks import SCRIPTS, environment
from tests.support.stage import hangdoctor, wait_until

SCRIPT = SCRIPTS / "calls_told.py"


class Told:
    """A rank that does what it is told to."""

    def __init__(self, folder: Path, rank: int) -> None:
        env = {
            **environment(folder),
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "MASTER_ADDR": "here",
            "MASTER_PORT": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env=env,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        return self.line()

    def traces(self) -> None:
        wait_until(lambda: self.say("tracing?") == "tracing", "the rank traces", 30)


@contextlib.contextmanager
def told(folder: Path, rank: int) -> Iterator[Told]:
    one = Told(folder, rank)
    try:
        assert one.line() == "ready"
        yield one
    finally:
        one.process.kill()
        one.process.communicate(timeout=20)


def trace(folder: Path, *words: str) -> str:
    done = hangdoctor("trace", *words, "--folder", str(folder), cwd=folder.parent)
    return done.stdout + done.stderr


def rows(folder: Path) -> dict[int, dict[str, Any]]:
    done = hangdoctor("trace", "status", "--json", "--folder", str(folder), cwd=folder.parent)
    return {row["rank"]: row for row in json.loads(done.stdout)}


def test_a_package_that_no_rank_has_imported_is_said_until_one_has(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with told(job, 0) as first, told(job, 1) as second:
        first.say("import colorsys")
        said = trace(
            job,
            "start",
            "--follow",
            "calls_told,nosuchpkg,colorsys,json.nosuch,wave",
            "--wait",
            "30",
        )
        assert "ranks 0-1: tracing" in said
        assert "no traced rank has imported nosuchpkg, json.nosuch, wave: misspelt" in said
        assert "no traced rank has imported nosuchpkg, json.nosuch, wave: misspelt" in trace(
            job, "status"
        )
        assert {r: row["unseen"] for r, row in rows(job).items()} == {
            0: "nosuchpkg,json.nosuch,wave",
            1: "nosuchpkg,colorsys,json.nosuch,wave",
        }
        second.say("import wave")
        wait_until(
            lambda: "imported nosuchpkg, json.nosuch: " in trace(job, "status"),
            "the import is seen",
            30,
        )
        assert "no traced rank" not in trace(
            job, "start", "--follow", "calls_told,colorsys", "--wait", "30"
        )
        assert "no traced rank" not in trace(job, "start", "--wait", "30")
        assert "imported nosuchpkg: " in trace(
            job, "start", "--follow", "nosuchpkg", "--from-iteration", "9", "--wait", "30"
        )
        assert "no traced rank" not in trace(job, "stop", "--wait", "30") + trace(job, "status")


def test_the_program_itself_goes_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "work.py").write_text(
        "from hangdoctor.probe.calls.choice import not_imported\n"
        "print(not_imported(['*', 'work', 'package', 'package.work', 'package.other', 'sys', 'wor', '__main__']))"
    )
    for words, unseen in (
        (["package/work.py"], ["package", "package.work", "package.other", "wor"]),
        (["-m", "package.work"], ["work", "package.other", "wor"]),
    ):
        done = subprocess.run(
            [sys.executable, *words],
            env=environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ast.literal_eval(done.stdout) == unseen, done.stderr


def test_what_more_names_than_fit_are_shown_whole(tmp_path: Path) -> None:
    names = [f"package_{i:03}" for i in range(100)]
    with told(tmp_path / "job", 0):
        trace(tmp_path / "job", "start", "--follow", ",".join(names), "--wait", "30")
        unseen = rows(tmp_path / "job")[0]["unseen"].split(",")
    assert unseen == names[: len(unseen)] and len(unseen) > 30


def test_a_request_that_a_crash_left_behind_is_not_for_the_next_run(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with told(job, 0) as crashed:
        assert "rank 0: tracing" in trace(job, "start", "--follow", "calls_told", "--wait", "30")
        crashed.process.send_signal(signal.SIGKILL)
        crashed.process.wait(timeout=20)
    assert requests.read(job) is not None
    with told(job, 0) as next_run, told(job, 1) as late:
        assert [one.say("tracing?") for one in (next_run, late)] == ["off", "off"]
        assert {rank: row["state"] for rank, row in rows(job).items()} == {
            0: "never traced",
            1: "never traced",
        }
        assert "ranks 0-1: tracing" in trace(job, "start", "--follow", "calls_told", "--wait", "30")


def test_a_late_rank_and_one_that_is_started_again_join_in(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with told(job, 0):
        trace(job, "start", "--follow", "calls_told", "--wait", "30")
        with told(job, 1) as late:
            late.traces()
        with told(job, 1) as again:
            again.traces()
        trace(job, "stop", "--wait", "30")
        with told(job, 2) as last:
            assert last.say("tracing?") == "off"


def test_ranks_of_other_nodes_in_a_shared_folder_count_as_long_as_they_show_life(
    tmp_path: Path,
) -> None:
    now = time.time()
    head = bytearray(fmt.HEADER_BYTES)
    head[:8], head[48:64] = fmt.MAGIC, bytes(range(16))  # of another boot
    for place, at in ((fmt.H_CREATED_WALL, now - 500), (fmt.H_BEAT_WALL, now - 5)):
        struct.pack_into(place[1], head, place[0], int(at * 1e9))
    box = tmp_path / f"other-1{fmt.SUFFIX}"
    box.write_bytes(head)
    (tmp_path / f"torn-1{fmt.SUFFIX}").write_bytes(head[:100])
    assert [run.began_before(tmp_path, now - ago) for ago in (100, 499, 501)] == [True, True, False]
    struct.pack_into(fmt.H_BEAT_WALL[1], head, fmt.H_BEAT_WALL[0], int((now - 300) * 1e9))
    box.write_bytes(head)
    assert not run.began_before(tmp_path, now - 100)


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_an_elastic_restart_goes_on_tracing_and_a_new_torchrun_does_not(tmp_path: Path) -> None:
    job = tmp_path / "job"

    def state(folder: Path, attempt: int) -> str:
        path = folder / f"state.{attempt}"
        return path.read_text() if path.exists() else ""

    first, second = tmp_path / "first", tmp_path / "second"
    with elastic(first, job) as launcher:
        wait_until(lambda: state(first, 0) == "off", "the rank is up", 120)
        assert "rank 0: tracing" in trace(job, "start", "--follow", "calls_told", "--wait", "30")
        (first / "end.0").touch()  # the only rank dies; torchrun starts it again
        wait_until(
            lambda: state(first, 1) == "tracing", "the rank that was started again traces", 60
        )
        os.killpg(launcher.pid, signal.SIGKILL)
    with elastic(second, job):
        wait_until(lambda: bool(state(second, 0)), "the rank of the next job has looked", 120)
        assert state(second, 0) == "off"


@contextlib.contextmanager
def elastic(control: Path, job: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real torchrun with one rank, which it starts a second time."""
    control.mkdir()
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=1",
        "--max_restarts=1",
        "--monitor_interval=0.2",
        "--master_addr=127.0.0.1",
        f"--master_port={free_port()}",
        str(SCRIPT),
    ]
    env = {**environment(job), "CALLS_TOLD_FOLDER": str(control)}
    with (control / "log").open("wb") as log:
        launcher = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield launcher
    finally:
        for path in job.glob(f"*{fmt.SUFFIX}"):  # the rank has a session of its own
            head = path.read_bytes()[: fmt.HEADER_BYTES]
            if is_running(head):
                os.kill(field(head, fmt.H_PID), signal.SIGKILL)
                wait_until(lambda head=head: not is_running(head), "the rank is gone")  # type: ignore[misc]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait(timeout=20)


def test_what_start_says_of_packages() -> None:
    asked = Request(5, True, ("a", "b"))
    ranks = [
        TracedRank(0, 10, "live", "tracing", True, unseen="a,b"),
        TracedRank(1, 11, "live", "waiting", True, unseen="b"),
    ]
    assert [line for line in outcome_lines(asked, ranks) if "imported" in line] == [
        "no traced rank has imported b: misspelt, or imported later; check with: hangdoctor trace status"
    ]
    ranks[1].obeyed, ranks[1].state = False, "never traced"
    assert "imported a, b: " in " ".join(outcome_lines(asked, ranks))
