"""A real Prometheus scrapes the collector; the rules and the dashboard in examples/monitoring hold
against what it exports.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.livejob import ROOT, LiveJob
from tests.support.stage import free_port, wait_until

pytestmark = pytest.mark.torch
EXAMPLES = ROOT / "examples" / "monitoring"
DASHBOARD = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
QUERIES = [t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]]


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program} (Debian's package prometheus)")


def exported(live: LiveJob) -> str:
    return live.request("/metrics")[2].decode()


def names(text: str) -> set[str]:
    """Of what is exported, with the names that a summary's samples have."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    return {
        n
        for name, kind in kinds.items()
        for n in ([name, f"{name}_sum", f"{name}_count"] if kind == "summary" else [name])
    }


def test_promtool_finds_no_fault(live: LiveJob, tmp_path: Path) -> None:
    needs("promtool")
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exported(live),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        subprocess.run(
            ["promtool", *command], cwd=EXAMPLES, check=True, capture_output=True, timeout=30
        )
    shutil.copytree(EXAMPLES, tmp_path / "m")
    (tmp_path / "m" / "metrics.token").write_text("x")
    subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"],
        cwd=tmp_path / "m",
        check=True,
        capture_output=True,
        timeout=30,
    )


def test_dashboard_and_rules_ask_for_names_that_exist(live: LiveJob) -> None:
    there = names(exported(live)) | {"up"}
    rules = (EXAMPLES / "alerts.yml").read_text()
    asked = set(
        re.findall(
            r"\bhangdoctor_\w+",
            " ".join([*QUERIES, *re.findall(r"expr: (?:>-\n)?((?:.*\n)(?:\s{10}.*\n)*)", rules)]),
        )
    )
    assert len(asked) > 10 and asked <= there, asked - there
    documented = set(re.findall(r"`(hangdoctor_\w+)`", (ROOT / "docs" / "live.md").read_text()))
    assert {n.removesuffix("_sum").removesuffix("_count") for n in there - {"up"}} == documented, (
        "docs/live.md lists each"
    )


def test_values_are_those_of_the_job(live: LiveJob) -> None:
    text = exported(live)
    found = {k: float(v) for k, v in re.findall(r"^(hangdoctor_[^ ]+) (\S+)$", text, re.M)}
    assert (
        found['hangdoctor_ranks{state="moving"}'] == 4 and found["hangdoctor_agents_connected"] == 1
    )
    assert (
        'hangdoctor_rank_iteration{node="n1",rank="3"}' in found
        and found["hangdoctor_received_bytes_total"] > 500
    )
    assert (
        found["hangdoctor_iteration_min"]
        <= found['hangdoctor_rank_iteration{node="n1",rank="3"}']
        <= found["hangdoctor_iteration_max"] + 1
    )
    assert found["hangdoctor_progress_age_seconds"] < 10


class Prometheus:
    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    "--config.file=prometheus.yml",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--storage.tsdb.path=data",
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return None


@pytest.fixture(scope="module")
def prometheus(live: LiveJob, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """With the configuration of the examples, but for the port and the interval."""
    needs("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    config = (EXAMPLES / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:8470", live.address.removeprefix("http://")).replace(
        "15s", "1s"
    )
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(EXAMPLES / "alerts.yml", folder)
    shutil.copy(live.folder / "metrics.token", folder)
    found = Prometheus(folder, free_port())
    yield found
    found.process.terminate()
    found.process.wait(timeout=20)


def test_prometheus_scrapes_and_every_query_of_the_dashboard_works(
    live: LiveJob, prometheus: Prometheus
) -> None:
    def values(query: str) -> list[float]:
        data = prometheus.ask("query", query=query)
        return [float(r["value"][1]) for r in data["result"]] if data else []

    wait_until(lambda: values('up{job="hangdoctor"}') == [1.0], "the collector is scraped")
    first = values("hangdoctor_iteration_max")
    wait_until(
        lambda: values("hangdoctor_iteration_max") > first,
        "the iteration moves from scrape to scrape",
    )
    empty = []
    for query in QUERIES:
        data = prometheus.ask("query", query=query.replace("$instance", ".*"))
        assert data is not None, query
        if not data["result"]:
            empty.append(query)
    assert len(empty) <= 4, (
        f"panels without data: {empty}"
    )  # no incident, no capture yet; rates need two scrapes
    groups = prometheus.ask("rules")["groups"]
    wait_until(
        lambda: all(
            r["health"] == "ok" for g in prometheus.ask("rules")["groups"] for r in g["rules"]
        ),
        "the rules are sound",
    )
    assert {r["name"] for g in groups for r in g["rules"]} >= {
        "TrainingStalled",
        "Straggler",
        "CollectorGone",
    }


def test_events_of_the_training_are_counted_and_listed(live: LiveJob) -> None:
    def kept() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(live.request("/api/v1/events")[2])["events"]
        return found

    before = len(kept())
    (live.control / "event").write_text("lm loss 14 (counted)")
    wait_until(lambda: len(kept()) > before, "the event is listed")
    newest = kept()[0]
    assert (newest["kind"], newest["text"], newest["rank"]) == ("spike", "lm loss 14 (counted)", 0)
    assert f'hangdoctor_training_events_total{{kind="spike"}} {before + 1}.0' in exported(live)
