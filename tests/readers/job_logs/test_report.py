"""What the report shows of job logs, and that a bundle keeps it."""

from __future__ import annotations

import json
from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.report.html import as_bytes
from hangdoctor.report.terminal_report import plain
from hangdoctor.storage import bundle
from tests.support.read_logs import DATA
from tests.support.stage import hangdoctor


def test_a_bundle_replays_without_the_logs(tmp_path: Path) -> None:
    capture = load([DATA / "tree"])
    first = diagnose(capture)
    saved = bundle.save(tmp_path / "b", capture, first, plain(first), ["hangdoctor"])
    again = diagnose(bundle.load(saved))
    assert bundle.encode_diagnosis(again) == bundle.encode_diagnosis(first)
    page = as_bytes(bundle.load(saved), again, saved).decode()
    assert "What happened" in page and "attempt_0/1/stderr.log" in page


def test_the_chain_in_the_terminal(tmp_path: Path) -> None:
    text = plain(diagnose(load([DATA / "exception.log"])))
    verdict = "FAILED Rank 2 failed first: ValueError in fail (failing_job.py:30)"
    assert any(line.startswith(verdict) for line in text.splitlines()[-4:])
    assert "exception.log:13" in text
    lines = [line for line in text.splitlines() if "exception.log:" in line]
    assert 3 <= len(lines) <= 11


def test_flags_of_the_command(tmp_path: Path) -> None:
    log = str(DATA / "kill.log")
    done = hangdoctor("diagnose", log, "--json", "-", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert said["status"] == "failed" and said["causes"][0]["evidence"][0]["source"] == "log"
    assert {"role", "ranks", "node", "at", "file", "line", "says"} == set(said["chain"][0])
    hangdoctor("diagnose", str(DATA / "sleep.log"), "--exit-code", "-q", cwd=tmp_path, code=10)
    hangdoctor("diagnose", str(DATA / "healthy.log"), "--exit-code", "-q", cwd=tmp_path, code=0)
    assert "nothing to diagnose" in hangdoctor("diagnose", cwd=tmp_path, code=2).stderr


def test_rules_of_the_user_come_first(tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text(
        '[[rule]]\nid = "our_storage"\nanchor = ["lustre-7 says no"]\nmeaning = "our storage is being moved"\ndo = "Wait for the mail."\n'
    )
    log = tmp_path / "job.log"
    log.write_text("[rank3]: lustre-7 says no\n")
    import os

    env = os.environ | {"HANGDOCTOR_LOG_RULES": str(rules)}
    said = json.loads(hangdoctor("diagnose", str(log), "--json", "-", cwd=tmp_path, env=env).stdout)
    [cause] = said["causes"]
    assert (cause["kind"], cause["ranks"], cause["advice"]) == ("error", [3], "Wait for the mail.")
    rules.write_text("[[rule]]\nwhat = 1\n")
    refused = hangdoctor("diagnose", str(log), cwd=tmp_path, env=env, code=1)
    assert "mine.toml" in refused.stderr and "log_rules.toml" in refused.stderr
