"""Ranks of multiprocessing: none has a rank in its environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hangdoctor.agents.node_ranks import Ranks
from hangdoctor.errors import NoRanksFound
from hangdoctor.model.capture import NodeCapture
from hangdoctor.readers import box_folders, families
from hangdoctor.readers.node import CaptureOptions, capture_node
from tests.support.stage import free_port, hangdoctor, wait_until

JOBS = Path(__file__).parents[1] / "support" / "jobs"
pytestmark = [pytest.mark.torch, pytest.mark.timeout(280)]
Begin = Callable[..., tuple[subprocess.Popen[bytes], str]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start the job, with or without `hangdoctor run`: its process and what its boxes call it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*before: str, script: str = "spawned_job.py") -> tuple[subprocess.Popen[bytes], str]:
        port = str(free_port())
        words = [*before, sys.executable, str(JOBS / script), str(tmp_path), port]
        started.append(
            subprocess.Popen(
                words,
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "HANGDOCTOR_DIR": str(tmp_path / "boxes")},
                start_new_session=True,
            )
        )
        return started[-1], f"run-127.0.0.1-{port}"

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


RUN = (sys.executable, "-m", "hangdoctor", "run", "--")


def stuck(folder: Path) -> bool:
    return (folder / "at.0").exists() and (folder / "at.1").exists()


def test_their_black_boxes_have_the_rank(begin: Begin, tmp_path: Path) -> None:
    _, job = begin(*RUN)
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    done = hangdoctor("dump", "--local", "--job", job, "--json", "-", "--no-bundle", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["status"], found["job"]["world_size"]) == ("hang", 2), found
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1]
    assert "all_reduce #3" in found["causes"][0]["summary"]
    assert "evaluate" in found["causes"][0]["where"]["frame"]


@pytest.mark.full
def test_the_launcher_by_its_id_stands_for_them(begin: Begin, tmp_path: Path) -> None:
    process, _ = begin(*RUN)
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    words = ("dump", "--pid", str(process.pid), "--json", "-", "--no-bundle")
    found = json.loads(hangdoctor(*words, cwd=tmp_path).stdout)
    assert (found["status"], found["job"]["world_size"]) == ("hang", 2), found
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1]


@pytest.mark.full
def test_an_agent_finds_those_that_join_long_after_they_were_started(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "wait").touch()
    _, name = begin(*RUN)
    wait_until(lambda: (tmp_path / "begun.1").exists(), "they run", 200)
    ranks = Ranks(lambda jobs: [job for job in jobs if job.is_named(name)])
    ranks.search()
    assert not ranks.tracked
    (tmp_path / "go").touch()

    def both() -> bool:
        ranks.search()
        return set(ranks.tracked) == {0, 1} and all(t.box for t in ranks.tracked.values())

    try:
        wait_until(both, "both ranks", 200)
        assert (ranks.job, ranks.world_size) == (name, 2)
    finally:
        ranks.close()


def test_an_agent_finds_those_that_only_their_connections_show(
    begin: Begin, tmp_path: Path
) -> None:
    process, _ = begin()
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    ranks = Ranks(lambda jobs: [job for job in jobs if job.key == f"parent:{process.pid}"])
    try:
        ranks.search()
        children = {c.pid for c in psutil.Process(process.pid).children()}
        assert set(ranks.tracked) == {0, 1} and ranks.world_size == 2
        assert {t.found.pid for t in ranks.tracked.values()} <= children
    finally:
        ranks.close()


def test_what_started_them_is_above_their_launchers(tmp_path: Path) -> None:
    """Each of a shell's loop has its own `hangdoctor run`."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    env = os.environ | {"HANGDOCTOR_DIR": str(tmp_path)}
    runs = [subprocess.Popen([*RUN, *sleep], env=env, start_new_session=True) for _ in range(2)]
    try:
        found = [psutil.Process(run.pid) for run in runs]
        wait_until(lambda: all(p.children() for p in found), "both were started")
        parents = {p.children()[0].pid: p.pid for p in found}
        assert families.by_starter(parents) == {os.getpid(): list(parents)}
        # Two of one process are its own
        [one, other] = parents
        assert families.by_starter({one: 0, other: 0}) == {}
        assert families.by_starter({one: found[0].pid, other: found[0].pid}) == {
            found[0].pid: [one, other]
        }
    finally:
        for run in runs:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait(timeout=20)


def test_rays_workers_are_the_ranks_and_not_what_directs_them() -> None:
    titles = ["ray::TrainController", "ray::_Coordinator", "ray::RayTrainWorker.poll_status()"]
    titles += ["ray::RayTrainWorker", "ray::RayTrainWorker.execute", "ray::IDLE"]
    made = [families.Member(n, 1, n, [title], {}) for n, title in enumerate(titles)]
    found = families.alike(made, {0, 1, 2, 3})
    assert [member.pid for member in found] == [2, 3, 4]
    plain = [families.Member(n, 1, n, [word], {}) for n, word in enumerate("abac")]
    assert [member.pid for member in families.alike(plain, {0, 1})] == [0, 1, 2]


def captured(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> NodeCapture:
    """What `dump --local` captures where nothing else runs: other tests do, on this host."""
    ours = [process.pid, *(c.pid for c in psutil.Process(process.pid).children(recursive=True))]
    monkeypatch.setattr(psutil, "pids", lambda: ours)
    return capture_node(CaptureOptions(timeout_s=60), "n1")


@pytest.mark.full
def test_before_they_join_the_command_that_names_them_is_printed(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wait").touch()
    process, _ = begin()
    wait_until(lambda: (tmp_path / "begun.0").exists(), "rank 0 runs", 200)
    wait_until(lambda: (tmp_path / "begun.1").exists(), "rank 1 runs", 200)
    with pytest.raises(NoRanksFound) as raised:
        captured(process, monkeypatch)
    children = psutil.Process(process.pid).children()
    spawned = [c.pid for c in children if "--multiprocessing-fork" in c.cmdline()]
    command = raised.value.help.partition("hangdoctor ")[2].partition(".")[0]
    assert f"Process {process.pid} started 2 processes" in raised.value.help
    assert [int(word) for word in command.split() if word.isdigit()] == sorted(spawned)


@pytest.mark.full
def test_without_the_probe_their_connections_show_them(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = begin()
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    capture = captured(process, monkeypatch)
    order = sorted(psutil.Process(process.pid).children(), key=lambda c: c.create_time())
    spawned = [c.pid for c in order if "--multiprocessing-fork" in c.cmdline()]
    assert [(r.rank, r.pid, r.world_size) for r in capture.ranks] == [
        (0, spawned[0], 2),
        (1, spawned[1], 2),
    ]
    assert any("in the order in which" in note for note in capture.notes)
    found = diagnosed("dump", "--pid", str(process.pid), cwd=tmp_path)
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1], found
    assert any("is no rank" in note for note in found["notes"])


def test_an_argument_that_numbers_them_is_their_rank(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 is started before rank 0."""
    each = '"$0" "$1" "$2" "$3" {} &'
    process, _ = begin("sh", "-c", f"{each.format(1)} {each.format(0)} wait")
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    capture = captured(process, monkeypatch)
    told = {c.pid: int(c.cmdline()[-1]) for c in psutil.Process(process.pid).children()}
    assert {r.pid: r.rank for r in capture.ranks} == told and set(told.values()) == {0, 1}
    assert not any("in the order in which" in note for note in capture.notes)


@pytest.mark.full
def test_a_process_that_is_named_has_the_rank_of_its_box(begin: Begin, tmp_path: Path) -> None:
    """Whatever the order in which it is named."""
    process, _ = begin(*RUN)
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    every = psutil.Process(process.pid).children(recursive=True)
    spawned = sorted(c.pid for c in every if "--multiprocessing-fork" in c.cmdline())
    flags = [word for pid in reversed(spawned) for word in ("--pid", str(pid))]
    found = diagnosed("dump", *flags, cwd=tmp_path)
    assert [(row["rank"], row["pid"]) for row in found["ranks"]] == list(enumerate(spawned))
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1], found


def test_lightnings_launcher_is_the_first_rank(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = begin(script="launches_itself.py")
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    capture = captured(process, monkeypatch)
    (child,) = psutil.Process(process.pid).children()
    assert [(r.rank, r.pid, r.world_size) for r in capture.ranks] == [
        (0, process.pid, 2),
        (1, child.pid, 2),
    ]
    named = capture_node(CaptureOptions(pids=[process.pid], settle_s=0.1))
    assert [r.pid for r in named.ranks] == [process.pid, child.pid]
    assert any("started the other ranks" in note for note in named.notes), named.notes


@pytest.mark.full
def test_hangdoctor_run_above_lightnings_launcher_stands_for_all(
    begin: Begin, tmp_path: Path
) -> None:
    process, _ = begin(*RUN, script="launches_itself.py")
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 200)
    found = diagnosed("dump", "--pid", str(process.pid), cwd=tmp_path)
    assert [row["rank"] for row in found["ranks"]] == [0, 1], found["notes"]


def test_several_torchruns_of_one_shell_are_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = {n: families.Member(n, 1, n, ["python", "/bin/torchrun", "t.py"], {}) for n in (2, 3)}
    monkeypatch.setattr(families, "_member", agents.get)
    monkeypatch.setattr(families.connections, "between", set)
    assert families._family(1, [2, 3]) is None
    for agent in agents.values():
        agent.argv[1] = "/app/train.py"
    found = families._family(1, [2, 3])
    assert found is not None and [member.pid for member in found.members] == [2, 3]


def test_where_all_ranks_have_ended_their_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "boxes"
    program = "import time, hangdoctor.probe as p; p.install(); p.iteration(1); print(1, flush=True); time.sleep(600)"
    named = {"HANGDOCTOR_DIR": str(folder), "RANK": "0", "WORLD_SIZE": "1"}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, env=os.environ | named, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None and rank.stdout.readline()
        rank.kill()
    monkeypatch.setenv("HANGDOCTOR_DIR", str(folder))
    monkeypatch.setattr(psutil, "pids", list)
    monkeypatch.setattr(box_folders, "default_folders", list)  # of other tests
    with pytest.raises(NoRanksFound) as raised:
        capture_node(CaptureOptions(timeout_s=30), "n1")
    assert f"hangdoctor diagnose {folder}." in raised.value.help


def diagnosed(*words: str, cwd: Path) -> dict[str, Any]:
    return json.loads(hangdoctor(*words, "--json", "-", "--no-bundle", cwd=cwd).stdout)


def _numbered_lines(*lines: str) -> list[families.Member]:
    return [families.Member(n, 1, n, line.split(), {}) for n, line in enumerate(lines)]


@pytest.mark.parametrize(
    "line", ["python fit.py {} 4021", "python fit.py --process_id={}", "python fit.py --rank {}"]
)
def test_one_that_has_not_connected_is_of_the_family_by_its_number(line: str) -> None:
    made = _numbered_lines(*(line.format(n) for n in range(4)), "python eval.py --step 7")
    assert [m.pid for m in families.alike(made, {0, 1, 3})] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        "python fit.py 7 4021",  # leaves numbers out, and has no name that says rank
        "python fit.py 1 4022",  # another run's
        "python other.py 2 4021",
    ],
)
def test_what_its_number_does_not_place_is_left_out(line: str) -> None:
    made = _numbered_lines("python fit.py 0 4021", "python fit.py 1 4021", line)
    assert [m.pid for m in families.alike(made, {0, 1})] == [0, 1]
