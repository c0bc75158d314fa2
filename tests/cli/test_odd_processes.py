"""Processes as they come: words that are no text, launchers that no list knows, numbers that are no
ranks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.cli.trace.target import Traced, row_of
from hangdoctor.model.calls import CallTrace
from hangdoctor.model.capture import RankCapture
from hangdoctor.probe.box import BoxWriter as WrittenBox
from hangdoctor.readers import pyspy, rank_operations
from hangdoctor.readers.blackbox import BlackBox, find_boxes, named_folder
from hangdoctor.readers.discover import find_jobs
from hangdoctor.readers.lost_ranks import lost_ranks
from hangdoctor.readers.rank_environment import rank_of
from hangdoctor.readers.source_lines import Sources
from tests.support.ended_boxes import dead_box
from tests.support.plain_ranks import PORT, SLEEPER, dump, processes, ranks
from tests.support.stage import hangdoctor, wait_until

STARTS_RANKS = f"""
import os, subprocess, sys
for rank in range(2):
    env = os.environ | {{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}}
    subprocess.Popen([sys.executable, "-c", {SLEEPER!r}, sys.argv[1] + f".{{rank}}"], env=env)
while not all(os.path.exists(sys.argv[1] + f".{{rank}}") for rank in range(2)):
    os.sched_yield()
open(sys.argv[1], "w").close()
import signal
signal.pause()
"""


def test_a_command_line_that_is_no_utf8_costs_neither_verdict_nor_bundle(tmp_path: Path) -> None:
    program = [sys.executable, "-c", SLEEPER.replace("argv[1]", "argv[2]")]
    with processes(
        tmp_path, [(env, os.fsdecode(b"caf\xe9")) for env in ranks(PORT + 31, 1)], program
    ):
        job = f"127.0.0.1:{PORT + 31}"
        hangdoctor(
            "dump", "--local", "--job", job, "--settle", "0", "--bundle", "kept", cwd=tmp_path
        )
    again = json.loads(hangdoctor("diagnose", "kept", "--json", "-", cwd=tmp_path).stdout)
    assert [r["rank"] for r in again["ranks"]] == [0]
    assert "caf\ufffd" in (tmp_path / "kept" / "capture.json").read_text()


def test_names_of_files_that_are_no_utf8(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "data" / "pyspy" / "text.out").read_bytes()
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / os.fsdecode(b"trace-n\xe9.out")).write_bytes(text)
    (tmp_path / "stacks" / os.fsdecode(b"other-\xff.txt")).write_bytes(b"nothing")
    hangdoctor("diagnose", "stacks", cwd=tmp_path)
    verdict = json.loads(hangdoctor("diagnose", "stacks", "--json", "-", cwd=tmp_path).stdout)
    assert verdict["job"]["nodes"] == ["n\ufffd"]


def test_a_terminal_without_our_characters_still_shows_the_verdict(tmp_path: Path) -> None:
    data = str(Path(__file__).parents[1] / "data" / "pyspy" / "text.out")
    for errors in ("", ":surrogateescape"):
        said = hangdoctor(
            "diagnose",
            data,
            cwd=tmp_path,
            env=dict(os.environ) | {"PYTHONIOENCODING": f"ascii{errors}"},
        )
        assert "UNKNOWN" in said.stdout


def test_a_launcher_of_the_users_own_under_a_scheduler_is_no_rank(tmp_path: Path) -> None:
    step = {
        "SLURM_JOB_ID": str(PORT + 32),
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
    }
    with processes(tmp_path, [(step, STARTS_RANKS)]) as [launcher]:
        verdict = dump(tmp_path, f"slurm:{PORT + 32}.0", "--settle", "0")
    assert [r["rank"] for r in verdict["ranks"]] == [0, 1] and verdict["job"]["world_size"] == 2
    assert launcher not in [r["pid"] for r in verdict["ranks"]]


def test_a_launcher_of_the_users_own_by_its_number_stands_for_its_ranks(tmp_path: Path) -> None:
    words = ("--json", "-", "--no-bundle", "--settle", "0")
    with processes(tmp_path, [({}, STARTS_RANKS)]) as [launcher]:
        said = hangdoctor("dump", "--pid", str(launcher), *words, cwd=tmp_path).stdout
    verdict = json.loads(said)
    assert [r["rank"] for r in verdict["ranks"]] == [0, 1] and verdict["job"]["world_size"] == 2
    assert f"process {launcher} has no rank: the 2 ranks below it are shown" in verdict["notes"]


def test_a_process_above_several_jobs_stands_for_none_of_them(tmp_path: Path) -> None:
    flags = ("--json", "-", "--no-bundle", "--settle", "0")
    two = [env for port in (PORT + 34, PORT + 35) for env in ranks(port, 1)]
    with processes(tmp_path, [(env, SLEEPER) for env in two]):
        said = hangdoctor("dump", "--pid", str(os.getpid()), *flags, cwd=tmp_path).stdout
    assert [r["pid"] for r in json.loads(said)["ranks"]] == [os.getpid()]


def test_a_folder_of_boxes_that_cannot_be_asked_for_is_passed_over(tmp_path: Path) -> None:
    told = {"HANGDOCTOR_DIR": "/" + "x" * 300}
    with processes(tmp_path, [(env | told, SLEEPER) for env in ranks(PORT + 36, 1)]):
        job = f"127.0.0.1:{PORT + 36}"
        assert [r["rank"] for r in dump(tmp_path, job, "--settle", "0")["ranks"]] == [0]
        said = hangdoctor("trace", "status", "--job", job, cwd=tmp_path, code=None)
    assert "Traceback" not in said.stderr and said.stderr


def test_ranks_that_go_round_the_hosts_are_not_missed_here(tmp_path: Path) -> None:
    shared = {
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": f"round{PORT}",
    }
    own = [
        shared | {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_LOCAL_RANK": str(i)}
        for i, r in enumerate((0, 4))
    ]
    with processes(tmp_path, [(env, SLEEPER) for env in own]):
        [job] = [j for j in find_jobs() if j.key == f"mpi:round{PORT}"]
        assert [f.rank for f in job.ranks] == [0, 4] and lost_ranks(job, "n") == []


@pytest.mark.parametrize(
    "told", ["20261121000000", "300000000", "²", "-1", "1e3", "9" * 5000], ids=str.strip
)
def test_a_variable_of_that_name_that_is_no_rank(told: str) -> None:
    assert rank_of({"RANK": told, "WORLD_SIZE": "2"}) is None
    assert rank_of({"RANK": "1", "WORLD_SIZE": told}) == (1, 0, -1, 0)


def test_a_dead_box_of_a_process_that_had_the_same_number_is_not_the_ranks() -> None:
    box = dead_box(77, rank=0, world_size=2)
    assert rank_operations._box_of(RankCapture(pid=77, rank=0, started=5000.0), [box]) is None
    assert rank_operations._box_of(RankCapture(pid=77, rank=0, started=999.0), [box]) is box


def test_a_stack_reader_that_cannot_be_started_is_a_reason_not_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "py-spy").write_bytes(b"of another architecture")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert "cannot be started" in pyspy.dump(os.getpid(), 5.0).error


def test_a_relative_folder_is_meant_from_where_the_rank_stands(tmp_path: Path) -> None:
    with processes(
        tmp_path, [(env | {"HANGDOCTOR_DIR": "boxes"}, SLEEPER) for env in ranks(PORT + 33, 1)]
    ) as [pid]:
        assert named_folder("boxes", pid) == Path.cwd() / "boxes"
        assert named_folder("/boxes", pid) == Path("/boxes")
    assert named_folder("boxes", pid) == Path("boxes")  # it is gone


def test_boxes_are_not_looked_for_in_the_depths_of_a_users_folder(tmp_path: Path) -> None:
    (tmp_path / "run" / "n1").mkdir(parents=True)
    made = WrittenBox(tmp_path / "run" / "n1", "a-job", 1 << 20)
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / made.path.name).write_bytes(made.path.read_bytes())
    assert [b.path for b in find_boxes(tmp_path)] == [str(made.path)]


def test_a_rank_that_ends_while_its_calls_are_listed(tmp_path: Path) -> None:
    box = BlackBox(
        path=str(tmp_path / "n-1.blackbox"),
        pid=1,
        rank=0,
        world_size=1,
        host="n",
        job="j",
        status="live",
        state="running",
        created_s=1.0,
        heartbeat_s=1.0,
    )
    assert row_of(Traced(box, CallTrace(rank=0, pid=1, state="tracing", written=7))).events == 7


def test_source_files_that_do_not_come_cost_their_patience_once(tmp_path: Path) -> None:
    """As on a mount that does not answer: to open a FIFO waits for its writer."""
    os.mkfifo(tmp_path / "train.py")
    (tmp_path / "other.py").write_text("# coding: latin-1\n\fpage = 2\n   second\n")
    sources = Sources(patience_s=0.2)
    assert sources.line(str(tmp_path / "other.py"), 3) == "second"
    assert [sources.line(str(tmp_path / "train.py"), n) for n in range(50)] == [""] * 50
    assert (
        sources.line(str(tmp_path / "other.py"), 3) == "second"
        and sources.line(str(tmp_path / "other.py"), 9) == ""
    )
    with (tmp_path / "train.py").open("w"):
        pass  # who waited goes on


def test_a_dump_ends_although_the_program_file_cannot_be_read(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    os.mkfifo(program)
    [env] = ranks(PORT + 34, 1)
    rank = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "ready")], env=os.environ | env
    )
    try:
        program.write_text(
            SLEEPER
        )  # the interpreter reads it once; whoever opens it later waits for good
        wait_until((tmp_path / "ready").exists, "the rank is ready")
        verdict = dump(tmp_path, f"127.0.0.1:{PORT + 34}", "--settle", "0")
    finally:
        rank.kill()
        rank.wait(timeout=20)
    assert verdict["stacks"][0]["frames"][-1]["file"].endswith("train.py")
