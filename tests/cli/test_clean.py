"""`hangdoctor clean`: what ended jobs have left goes; nothing of a living job, and nothing that is not ours."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdoctor.cli import clean
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture
from hangdoctor.probe import folder as folders
from hangdoctor.probe import format as fmt
from hangdoctor.storage import bundle, leftovers
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import keys
from hangdoctor.transport.folder_lock import only_collector

ROOT = Path(__file__).parents[2]
RANK = """
import time
import hangdoctor.probe as probe
probe.install()
probe.iteration(1)
print("up", flush=True)
time.sleep(600)
"""
OLD_S = 10 * 86_400.0


class Home:
    """A user's places, all in one folder."""

    def __init__(self, base: Path, shared: Path) -> None:
        self.base, self.shared = base, shared
        self.jobs, self.here = base / ".hangdoctor" / "jobs", base / "here"
        self.here.mkdir()

    def clean(self, *words: str) -> Result:
        done = CliRunner().invoke(clean.command, words, catch_exceptions=False)
        assert done.exit_code == 0
        return done

    def run(self, name: str, age_s: float | None) -> subprocess.Popen[bytes]:
        """A run with one rank: killed that long ago, or alive."""
        folder = self.shared / name
        environ = os.environ | {
            "HANGDOCTOR_DIR": str(folder),
            "PYTHONPATH": str(ROOT),
            "RANK": "0",
            "WORLD_SIZE": "1",
        }
        rank = subprocess.Popen([sys.executable, "-c", RANK], env=environ, stdout=subprocess.PIPE)
        assert rank.stdout is not None and rank.stdout.readline() == b"up\n"
        if age_s is not None:
            rank.kill()
            rank.wait()
            [box] = folder.glob(f"*{fmt.SUFFIX}")
            beat_ns = round((time.time() - age_s) * 1e9)
            with box.open("r+b") as file:
                os.pwrite(file.fileno(), beat_ns.to_bytes(8, "little"), fmt.H_BEAT_WALL[0])
        return rank

    def job(self, name: str, incidents: int = 0, age_s: float = OLD_S) -> Path:
        folder = self.jobs / name
        keys.make(folder)
        for number in range(incidents):
            capture = JobCapture("j", taken=1_700_000_000.0 + number)
            Incidents(folder).save(capture, diagnose(capture), "report", "stall")
        age(folder, age_s)
        return folder

    def bundle(self, name: str, age_s: float = OLD_S) -> Path:
        capture = JobCapture("j", taken=time.time() - age_s)
        return bundle.save(self.here / name, capture, diagnose(capture), "report", ["dump"])


def age(folder: Path, age_s: float) -> None:
    at = time.time() - age_s
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (at, at))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    shared = Path("/dev/shm") / f"hangdoctor-clean-test-{os.getpid()}"
    shared.mkdir(mode=0o700)
    monkeypatch.setattr(folders, "places", lambda: [shared])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    made = Home(tmp_path, shared)
    monkeypatch.chdir(made.here)
    yield made
    shutil.rmtree(shared)


def test_a_job_that_had_a_page_and_was_traced_goes_like_any_other(home: Home) -> None:
    folder = home.job("served")
    for name in ("metrics.token", "hangdoctor-collector-trace.json"):
        (folder / name).write_text("{}")
    age(folder, OLD_S)
    home.job("annotated")
    (home.jobs / "annotated" / "notes.txt").write_text("mine")
    said = home.clean().stdout
    assert not folder.exists() and (home.jobs / "annotated").is_dir(), said
    assert "files that are not hangdoctor's: notes.txt" in said


def test_boxes_of_ended_runs_go_and_those_of_living_and_fresh_ones_stay(home: Home) -> None:
    home.run("run-old", 3600.0)
    home.run("run-fresh", 1.0)
    living = home.run("run-alive", None)
    (home.shared / "not-ours").mkdir()
    try:
        said = home.clean("--dry-run").stdout
        assert sorted(p.name for p in home.shared.iterdir()) == [
            "not-ours",
            "run-alive",
            "run-fresh",
            "run-old",
        ]
        [going] = [line for line in said.splitlines() if line.startswith("remove")]
        assert "run-old" in going and " MB " in going and "1 of 3 would be removed" in said
        home.clean()
        assert sorted(p.name for p in home.shared.iterdir()) == [
            "not-ours",
            "run-alive",
            "run-fresh",
        ]
        assert living.poll() is None
    finally:
        living.kill()
        living.wait()


def test_a_file_of_the_user_in_a_folder_of_boxes_stays(home: Home) -> None:
    home.run("run-old", 3600.0)
    mine = home.shared / "run-old" / "notes.txt"
    mine.write_text("mine")
    done = CliRunner().invoke(clean.command, [])
    assert mine.read_text() == "mine" and isinstance(done.exception, clean.CleanError)
    assert not list(mine.parent.glob(f"*{fmt.SUFFIX}"))


def test_folders_of_collectors_go_only_where_no_collector_and_no_job_is(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, evidence = home.job("old"), home.job("with-incidents", incidents=2)
    watched, fresh = home.job("watched"), home.job("fresh", age_s=1.0)
    strange = home.job("strange")
    (strange / "thesis.tex").write_text("mine")
    age(strange, OLD_S)
    with only_collector(watched):
        age(watched, OLD_S)
        said = home.clean().stdout
    assert not gone.exists() and all(p.is_dir() for p in (evidence, watched, fresh, strange))
    assert "2 incidents, evidence; goes with --bundles DAYS" in said
    assert "its collector is running" in said and "thesis.tex" in said
    monkeypatch.setattr(clean, "_why_alive", lambda name, here: "Slurm: RUNNING")
    home.clean("--bundles", "1")
    assert evidence.is_dir()
    monkeypatch.undo()


def test_what_a_page_and_the_recorded_progress_leave_goes_too(home: Home) -> None:
    folder = home.job("paged")
    for name in ("metrics.token", "history.json", "hangdoctor-status.json"):
        (folder / name).write_text("{}")
    (folder / ".history.json.4711").write_text("")
    age(folder, OLD_S)
    assert "not hangdoctor's" not in home.clean().output
    assert not folder.exists()


def test_the_fleet_views_folder_and_the_index_of_the_search_go(home: Home) -> None:
    top = home.jobs.parent
    served, old, used = top / "fleet", top / "search-1.sqlite", top / "search-2.sqlite"
    served.mkdir(parents=True)
    page = {"address": "http://127.0.0.1:1", "token": "t", "host": "elsewhere"}
    (served / "web.json").write_text(json.dumps(page))
    for path in (old, used):
        path.write_text("x")
    age(old, 8 * 86_400.0)
    says = home.clean().stdout
    assert not old.exists() and "used in the last week" in says and used.exists()
    assert "its page is served" in says
    (served / "web.json").write_text(json.dumps(page | {"host": socket.gethostname(), "pid": 1}))
    (served / "notes.txt").write_text("mine")
    assert "not hangdoctor's: notes.txt" in home.clean().stdout
    (served / "notes.txt").unlink()
    home.clean()
    assert not served.exists()


def test_a_folder_of_a_collector_that_saw_no_rank_goes_unless_it_holds_a_users_file(
    home: Home,
) -> None:
    unused, annotated = home.job("unused", age_s=0.0), home.job("annotated", age_s=0.0)
    (annotated / "notes.txt").write_text("mine")
    leftovers.remove_unused(unused)
    leftovers.remove_unused(annotated)
    assert not unused.exists()
    assert (annotated / "notes.txt").read_text() == "mine" and (annotated / "keys").is_dir()


def test_incidents_go_on_request(home: Home) -> None:
    old, newer = home.job("old", incidents=1), home.job("newer", incidents=1, age_s=86_400.0)
    home.clean("--bundles", "5")
    assert not old.exists() and newer.is_dir()


def test_bundles_go_on_request_only_and_with_nothing_beside_them(home: Home) -> None:
    old, young = home.bundle("hangdoctor-old"), home.bundle("hangdoctor-young", age_s=60.0)
    other = home.here / "hangdoctor-src"  # a checkout, say
    other.mkdir()
    (other / "manifest.json").write_text('{"schema": "npm/1"}')
    link = home.here / "hangdoctor-link"
    link.symlink_to(young)
    home.clean()
    assert old.is_dir() and young.is_dir()
    home.clean("--bundles", "1")
    assert not old.exists() and young.is_dir() and other.is_dir() and link.is_symlink()


def test_what_someone_put_into_a_bundle_stays(home: Home) -> None:
    old = home.bundle("hangdoctor-old")
    (old / "report.html").write_text("mine")
    done = CliRunner().invoke(clean.command, ["--bundles", "1"])
    assert [p.name for p in old.iterdir()] == ["report.html"]
    assert isinstance(done.exception, clean.CleanError)


def test_a_manifest_that_names_files_elsewhere_removes_none_of_them(home: Home) -> None:
    old = home.bundle("hangdoctor-old")
    mine = home.here / "mine.txt"
    mine.write_text("mine")
    path = old / "manifest.json"
    evil = f'"files": {{"../mine.txt": "x", "{mine}": "x", '
    path.write_text(path.read_text().replace('"files": {', evil))
    CliRunner().invoke(clean.command, ["--bundles", "1"])
    assert mine.read_text() == "mine"
