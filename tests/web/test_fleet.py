"""All jobs on one page: a real collector writes its status, the fleet view reads the folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.collector import status_file
from hangdoctor.collector.status_file import JobStatus
from hangdoctor.fleet.culprits import culprit_nodes
from hangdoctor.fleet.jobs import read_jobs, state_of
from hangdoctor.storage.incident_search import IncidentSearch, Query
from tests.support import axe
from tests.support.fleet import FLEET, One, keep_fleet, not_entered
from tests.support.livejob import ROOT, LiveJob
from tests.support.onpage import complaints, log_in, soon, text
from tests.support.scripted_agent import ScriptedAgent, outside, waiting
from tests.support.stage import hangdoctor, wait_until

NOW = time.time()
# Node n2 is a culprit in two jobs; in one of them the same hang was captured twice.
INCIDENTS = (
    One("gpt-1", "run-gpt", NOW - 86_000, not_entered("n2")),
    One("gpt-1", "run-gpt", NOW - 85_000, not_entered("n2")),
    One("gpt-2", "run-gpt", NOW - 9_000, not_entered("n2")),
    One("vision-3", "run-vision", NOW - 5_000, FLEET[2].cause),
)


def status(place: str, **more: Any) -> JobStatus:
    return JobStatus(at=time.time(), job=place, world_size=64, ranks=64, living=64, nodes=8, **more)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs that write no more: one of an earlier version, one that has ended, one killed."""
    root = keep_fleet(tmp_path_factory.mktemp("fleet") / "jobs", INCIDENTS)
    over = status("gpt-2", iteration=812, ended=True)
    over.living = 0
    status_file.save(root / "gpt-2", over)
    killed = status("vision-3", iteration=40)
    killed.at -= 3600
    status_file.save(root / "vision-3", killed)
    return root


class Fleet(LiveJob):
    """`hangdoctor fleet --web` on these folders, and one live job among them."""

    def __init__(self, folder: Path, jobs: Path) -> None:
        super().__init__(folder, world=0, more=("--stall-after", "2"))
        self.folder, self.jobs = jobs / "live-job", jobs
        self.page = folder / "fleet"

    def _begin(self) -> None:
        super()._begin()
        env = {"HOME": str(self.base), "PYTHONPATH": str(ROOT)}
        words = ("--root", str(self.jobs), "--folder", str(self.page), "--web", "127.0.0.1:0")
        self.start("fleet", "-m", "hangdoctor", "fleet", *words, **env)
        wait_until((self.page / "web.json").exists, lambda: self.log("fleet"))
        self.read_fleet()

    def read_fleet(self) -> None:
        told = json.loads((self.page / "web.json").read_text())
        self.address, self.token = told["address"], told["token"]

    def get(self, path: str) -> Any:
        code, _, body = self.request(path)
        assert code == 200, body
        return json.loads(body)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, jobs: Path) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("served")
    with Fleet(folder, jobs) as served, ScriptedAgent(served, "n1", 8) as agent:
        agent.report([outside(r, 60.0) if r == 5 else waiting(r, 60.0) for r in range(8)])
        wait_until(lambda: agent.beat() and row(served)["state"] == "stalled", "it stalls")
        yield served


def row(fleet: Fleet, place: str = "live-job") -> dict[str, Any]:
    return next(r for r in fleet.get("/api/v1/jobs")["jobs"] if r["place"] == place)


def test_what_a_status_means() -> None:
    told = status("x")
    assert state_of(told, told.at) == "running" and state_of(None, told.at) == "no status"
    assert state_of(told, told.at + 61) == "not watched"
    told.stalled = True
    assert state_of(told, told.at) == "stalled"
    told.living = 0
    assert state_of(told, told.at) == "ended"
    told.ranks = 0
    assert state_of(told, told.at) == "starting"
    told.ended = True
    assert state_of(told, told.at + 1e6) == "ended"
    told.living = 3
    assert state_of(told, told.at) == "not watched", "its sidecar was stopped, and ranks run"


def test_nodes_count_hangs_and_jobs_not_captures(jobs: Path, tmp_path: Path) -> None:
    entries = IncidentSearch([jobs], tmp_path / "index.sqlite").find(Query())
    [n2] = culprit_nodes(entries)
    assert (n2.node, n2.jobs, n2.incidents, n2.kinds) == ("n2", 2, 2, {"not_entered": 2})
    assert {n.node for n in culprit_nodes(entries, least=1)} == {"n2", "n7"}
    later = read_jobs([jobs], entries, NOW + 40 * 86_400)
    assert later == [], "what is over for long is not shown"


def test_bundles_that_dump_saved_are_a_row_for_each_job(tmp_path: Path) -> None:
    saved = keep_fleet(tmp_path / "jobs", INCIDENTS[:3])
    place = tmp_path / "dumped"
    place.mkdir()
    for number, path in enumerate(sorted(saved.glob("*/incidents/*/"))):
        path.rename(place / f"hangdoctor-{number}")
    entries = IncidentSearch([place], tmp_path / "index.sqlite").find(Query())
    [row] = read_jobs([place], entries, NOW)
    assert (row.place, row.state, row.incidents, row.folder) == (
        "run-gpt",
        "no status",
        3,
        str(place),
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads folders of other users")
def test_root_sees_jobs_of_other_users(tmp_path: Path) -> None:
    other = tmp_path / "other"
    status_file.save(keep_fleet(tmp_path, FLEET[:1]) / "gpt-1", status("gpt-1"))
    (tmp_path / "gpt-1").rename(other)
    for path in (other, *other.rglob("*")):
        os.chown(path, 54_321, 54_321)
    index = IncidentSearch([tmp_path], tmp_path / "index.sqlite")
    [row] = read_jobs([tmp_path], index.find(Query()), time.time())
    assert (row.user, row.state, row.incidents) == ("54321", "running", 1)
    os.chown(other / "hangdoctor-status.json", 54_322, 54_321)
    assert read_jobs([tmp_path], [], time.time()) == [], "a third user's file says nothing"


def test_a_status_of_another_kind_is_none(tmp_path: Path) -> None:
    (tmp_path / "hangdoctor-status.json").write_text('{"schema": "other/1"}')
    assert status_file.load(tmp_path) is None
    (tmp_path / "hangdoctor-status.json").write_bytes(b"x" * 5000)
    assert status_file.load(tmp_path) is None


def test_the_api_and_the_metrics(fleet: Fleet) -> None:
    told = fleet.get("/api/v1/jobs")
    states = {r["place"]: r["state"] for r in told["jobs"]}
    assert states == {
        "live-job": "stalled",
        "gpt-2": "ended",
        "vision-3": "not watched",
        "gpt-1": "no status",
    }
    assert told["jobs"][0]["place"] == "live-job" and told["jobs"][0]["living"] == 8
    few = fleet.get("/api/v1/jobs?limit=1")
    assert (few["total"], len(few["jobs"]), few["counts"]["ended"]) == (4, 1, 1)
    own = json.loads((fleet.folder / "web.json").read_text())
    assert told["jobs"][0]["page"] == own["address"] and own["token"] not in json.dumps(told)
    found = fleet.get("/api/v1/incidents?words=rank5+all_reduce&job=gpt-2")
    [one] = found["incidents"]
    code, headers, body = fleet.request(f"/api/v1/incidents/{one['key']}/report")
    assert code == 200 and b"run-gpt" in body
    assert "sandbox" in headers["content-security-policy"]
    assert fleet.request("/api/v1/incidents/..%2f..%2fetc/report")[0] == 404
    assert fleet.request("/api/v1/incidents?since=yesterday")[0] == 400
    assert fleet.request("/api/v1/jobs", token="wrong")[0] == 401
    scraper = (fleet.page / "metrics.token").read_text().strip()
    code, _, body = fleet.request("/metrics", token=scraper)
    lines = body.decode()
    assert code == 200 and 'hangdoctor_fleet_jobs{state="stalled"} 1.0' in lines
    assert 'hangdoctor_fleet_node_jobs{node="n2"} 2.0' in lines
    assert 'job="live-job",state="stalled"' in lines and str(fleet.folder) in lines
    if shutil.which("promtool"):
        command = ["promtool", "check", "metrics"]
        done = subprocess.run(command, input=body, capture_output=True, timeout=30)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_page(browser: Any, fleet: Fleet) -> None:
    browser.get("about:blank")
    complaints(browser)  # of pages that other tests have left open
    log_in(browser, fleet, fleet.token)
    soon(
        browser,
        "sentence",
        lambda t: t == "4 jobs: 1 stalled, 1 not watched, 1 ended, 1 no status.",
    )
    first = soon(browser, "jobs", lambda t: "without progress for" in t)
    assert first.index("live-job") < first.index("gpt-2")
    soon(browser, "found", lambda t: t.endswith("incidents"))
    browser.find_element("css selector", "#nodes .pick").click()
    soon(browser, "found", lambda t: t == "3 incidents found")
    assert "Rank 50" not in text(browser, "incidents")
    from selenium.webdriver.common.keys import Keys

    browser.find_element("id", "filter").send_keys(Keys.ESCAPE)
    soon(browser, "incidents", lambda t: "Rank 50" in t)
    if axe.script() is not None:
        for theme in ("light", "dark"):
            media = [{"name": "prefers-color-scheme", "value": theme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
            assert axe.findings(browser) == [], theme
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert complaints(browser) == []


def test_the_table(fleet: Fleet, tmp_path: Path) -> None:
    env = os.environ | {"HOME": str(tmp_path), "TZ": "UTC"}
    done = hangdoctor("fleet", "--root", str(fleet.jobs), cwd=tmp_path, env=env)
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["JOB", "USER", "STATE"] and "stalled" in lines[1]
    assert lines[-1] == "n2: culprit 2 times in 2 jobs (not_entered 2)"


def test_it_ends_at_sigterm_and_takes_its_file_away(fleet: Fleet) -> None:
    fleet.processes["collector"].terminate()
    assert fleet.processes["collector"].wait(timeout=60) in (0, 130, -signal.SIGTERM)
    wait_until(lambda: row(fleet)["state"] == "not watched", "its collector has said so")
    fleet.processes["fleet"].terminate()
    fleet.processes["fleet"].wait(timeout=60)
    assert not (fleet.page / "web.json").exists() and "Traceback" not in fleet.log("fleet")
