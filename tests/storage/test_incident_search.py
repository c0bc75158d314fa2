"""`incidents search` and `export`: the incidents of all jobs, from their folders."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hangdoctor.storage import bundle, incident_search
from hangdoctor.storage.incident_search import IncidentSearch, Query
from hangdoctor.storage.incidents import Incidents
from tests.support.fleet import FLEET, keep_fleet
from tests.support.stage import hangdoctor

ROOT = Path(__file__).parents[2]


def ids(root: Path, *words: str, **more: str) -> list[str]:
    """What is found with FTS5, which is the same without it and without a file."""
    query = Query(words=words, **more)  # type: ignore[arg-type]
    found = [
        [entry.place for entry in IncidentSearch([root], root / f"{fts5}.sqlite", fts5).find(query)]
        for fts5 in (True, False)
    ]
    assert found[0] == found[1]
    return found[0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return keep_fleet(tmp_path / "jobs")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that only search."""
    return keep_fleet(tmp_path_factory.mktemp("unchanged") / "jobs")


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (["rank5", "all_reduce"], ["gpt-2", "gpt-1"]),
        (["rank", "5"], ["gpt-2", "gpt-1"]),
        (["RANK5", "n2"], ["gpt-1"]),
        (["rank50"], ["vision-3"]),
        (["stopped"], ["vision-3"]),
        (["load_batch", "data.py"], ["gpt-2", "gpt-1"]),
        (["all_red*"], ["gpt-2", "gpt-1"]),
        (["all_red"], []),
        (["TP"], ["gpt-2", "gpt-1"]),
        (["batch_data"], ["gpt-2", "gpt-1"]),
        (["data_batch"], []),
        (["run-vision"], ["vision-3"]),
        (['"; DROP TABLE entries; --'], []),
        (["*", "-", "%"], ["vision-3", "gpt-2", "gpt-1"]),
        ([], ["vision-3", "gpt-2", "gpt-1"]),
    ],
)
def test_all_words_must_match(unchanged: Path, words: list[str], places: list[str]) -> None:
    assert ids(unchanged, *words) == places


def test_by_job_user_node_and_time(unchanged: Path) -> None:
    assert ids(unchanged, job="gpt") == ["gpt-2", "gpt-1"]
    assert ids(unchanged, job="RUN-VISION") == ["vision-3"]
    assert ids(unchanged, node="n2") == ["gpt-1"]
    assert ids(unchanged, user="no-such-user") == []
    late = Query(since=FLEET[1].at)
    index = IncidentSearch([unchanged], unchanged / "since.sqlite")
    assert [entry.place for entry in index.find(late)] == ["vision-3", "gpt-2"]
    assert {entry.user for entry in index.find(Query())} == {index.find(Query())[0].user}


def test_folders_are_the_truth(root: Path) -> None:
    file = root / "index.sqlite"

    def found() -> list[str]:
        index = IncidentSearch([root], file)
        places = [entry.place for entry in index.find(Query())]
        assert index.trouble == ""
        return places

    assert found() == ["vision-3", "gpt-2", "gpt-1"]
    for gone in Incidents(root / "gpt-2").prune(0):
        assert gone.endswith("run-gpt")
    assert found() == ["vision-3", "gpt-1"]
    keep_fleet(root, FLEET[1:2])
    assert found() == ["vision-3", "gpt-2", "gpt-1"]
    file.unlink()
    assert found() == ["vision-3", "gpt-2", "gpt-1"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_one_index_serves_roots_that_overlap(root: Path) -> None:
    file = root / "index.sqlite"

    def found(*roots: Path) -> list[str]:
        return [entry.place for entry in IncidentSearch(roots, file).find(Query())]

    everything = ["vision-3", "gpt-2", "gpt-1"]
    assert found(root) == everything and found(root / "gpt-1") == ["gpt-1"]
    with sqlite3.connect(file) as db:
        numbers = db.execute("SELECT number FROM entries ORDER BY number").fetchall()
    assert found(root / "gpt-1", root) == everything and found(root / "gpt") == []
    with sqlite3.connect(file) as db:
        again = db.execute("SELECT number FROM entries ORDER BY number").fetchall()
    assert again == numbers, "nothing was read twice, and nothing of another root dropped"


def test_an_index_that_cannot_be_used_is_replaced_by_the_folders(root: Path) -> None:
    file = root / "index.sqlite"
    file.write_bytes(b"no database" * 500)
    index = IncidentSearch([root], file)
    assert len(index.find(Query())) == 3 and "was damaged" in index.trouble
    again = IncidentSearch([root], file)
    assert len(again.find(Query())) == 3 and again.trouble == ""
    with sqlite3.connect(file) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        locked = IncidentSearch([root], file)
        locked.busy_s = 0.01
        assert len(locked.find(Query())) == 3 and "locked" in locked.trouble
    nowhere = IncidentSearch([root], file / "below" / "a-file.sqlite")
    assert len(nowhere.find(Query())) == 3 and "cannot be used" in nowhere.trouble


def test_a_damaged_incident_is_left_out_and_named(root: Path) -> None:
    [saved] = (root / "gpt-1" / "incidents").glob("2*")
    (saved / "diagnosis.json").write_text("{")
    index = IncidentSearch([root], root / "index.sqlite")
    assert len(index.find(Query())) == 2
    assert [str(saved) in line for line in index.unread] == [True]


def test_of_more_than_the_bound_the_newest_stay(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident_search, "MAX_ENTRIES", 2)
    for n, place in enumerate(("gpt-1", "gpt-2", "vision-3"), 1):
        [manifest] = (root / place / "incidents").glob("2*/manifest.json")
        os.utime(manifest, (n * 1000, n * 1000))
    assert ids(root) == ["vision-3", "gpt-2"]


def searchers(root: Path, file: Path, number: int) -> Sequence[subprocess.Popen[str]]:
    program = (
        "import sys; from pathlib import Path\n"
        "from hangdoctor.storage.incident_search import IncidentSearch, Query\n"
        "sys.stdin.readline()\n"
        "index = IncidentSearch([Path(sys.argv[1])], Path(sys.argv[2]))\n"
        "index.busy_s = 60\n"
        "print(len(index.find(Query(words=['all_reduce']))), index.trouble)\n"
    )
    command = [sys.executable, "-c", program, str(root), str(file)]
    pipe = subprocess.PIPE
    return [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        for _ in range(number)
    ]


def test_several_write_at_once(root: Path) -> None:
    [saved] = (root / "gpt-1" / "incidents").glob("2*")
    for n in range(60):
        shutil.copytree(saved, saved.with_name(f"{saved.name}.{n + 2}"))
    processes = searchers(root, root / "index.sqlite", 3)
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=100)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=20)
    assert said == ["62"] * 3
    with sqlite3.connect(root / "index.sqlite") as db:
        counts = [
            db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("entries", "words")
        ]
    assert counts == [63, 63]


def test_the_verb(root: Path, tmp_path: Path) -> None:
    env = os.environ | {"HOME": str(tmp_path), "TZ": "UTC"}
    (tmp_path / ".hangdoctor").mkdir()
    root.rename(tmp_path / ".hangdoctor" / "jobs")
    told = hangdoctor("incidents", "search", "rank5", "all_reduce", cwd=tmp_path, env=env)
    head, first, second, _, where = told.stdout.splitlines()
    assert head.split()[2:] == ["JOB", "USER", "KIND", "RANKS", "NODES", "VERDICT"]
    assert "gpt-2" in first and "gpt-1" in second and "never reached all_reduce #12" in second
    assert where.startswith("The first in full: hangdoctor diagnose ") and told.stderr == ""
    assert bundle.is_bundle(Path(where.rpartition(" ")[2]))
    words = ("incidents", "export", "--job", "vision", "--output", "week.json")
    assert "1 incident written" in hangdoctor(*words, cwd=tmp_path, env=env).stderr
    told_json = json.loads((tmp_path / "week.json").read_text())
    assert told_json["schema"] == "hangdoctor.incidents/1"
    [one] = told_json["incidents"]
    assert one["place"] == "vision-3" and one["diagnosis"]["causes"][0]["ranks"] == [50]
