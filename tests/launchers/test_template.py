"""Nodes reached by a command of the user's own: its words, its quotes, and what nodes make of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from hangdoctor.errors import LauncherError, UsageError
from hangdoctor.launchers import gather, reach, template
from hangdoctor.launchers.pbs_job import PbsJobReach
from hangdoctor.launchers.ray_reach import RayReach
from hangdoctor.launchers.remote import Outcome
from hangdoctor.launchers.ssh import SshReach
from tests.support.stage import hangdoctor

# As ssh does it: words after the name are joined, and a shell of the other side splits them.
_SSH = """#!/bin/sh
[ "$1" != -J ] || shift 2
shift
exec sh -c "$*"
"""
_NODE = """#!/bin/sh
case $1 in
  refuses) echo "refuses: no such container" >&2; exit 125;;
  hangs) echo $$ >"$0.pid"; sleep 600;;
  *) shift; exec "$@";;
esac
"""
_ODD = ["say", "two words", "it's", '"quoted"', "$HOME", "a;b", "*", "", "100%"]
_SHOW = ["/bin/sh", "-c", 'printf "<%s>" "$@"', "sh"]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`ssh` and `on-node`, in front of PATH."""
    for name, text in (("ssh", _SSH), ("on-node", _NODE)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def _asked(text: str, hosts: str, words: list[str], timeout_s: float) -> dict[str, Outcome]:
    found = template.TemplateReach(text, hosts)
    outcomes = reach.ask(found, words, timeout_s, lambda line: None)
    return {outcome.node: outcome for outcome in outcomes}


@pytest.mark.parametrize(
    "text",
    [
        "on-node {host}",
        "ssh {host}",
        "ssh -J gate {host}",
        "ssh gate ssh {host}",
        "ssh gate on-node {host}",
        "on-node {host} sh -c {command}",
        "ssh {host} {command}",
    ],
)
def test_every_word_arrives_as_it_was(
    programs: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [*_SHOW, *_ODD]
    monkeypatch.setattr(gather, "own_command", lambda words, python="": own)
    answer = _asked(text, "here", [], 30)["here"]
    shown = "".join(f"<{word}>" for word in _ODD)
    assert (answer.output, answer.errors, answer.code) == (shown, "", 0)


def test_a_node_that_refuses_or_hangs_keeps_no_other_waiting(programs: Path) -> None:
    """The agent itself on one of them; what hangs is ended."""
    begin = time.monotonic()
    found = _asked("on-node {host}", "here,refuses", ["--version"], 60)
    assert found["here"].output.startswith("hangdoctor") and found["here"].code == 0
    refused = found["refuses"]
    assert gather.why_silent(refused, "", 60) == "refuses: no such container"
    assert time.monotonic() - begin < 60
    hung = _asked("on-node {host}", "hangs", ["--version"], 1.0)["hangs"]
    assert hung.code is None and gather.why_silent(hung, "", 1.0) == "no answer within 1 s"
    started = Path(f"{programs / 'on-node'}.pid")
    assert not started.exists() or not psutil.pid_exists(int(started.read_text()))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--exec", "ssh n1", "--hosts", "n1"), "--exec has no {host}: ssh n1"),
        (("--exec", "ssh '{host}", "--hosts", "n1"), "a quote that is not closed"),
        (("--exec", "ssh {host}"), "--exec and --hosts are needed together"),
        (("--hosts", "n1"), "--exec and --hosts are needed together"),
        (("--exec", "ssh {host}", "--hosts", "n[1-"), "brackets do not match"),
        (("--exec", "ssh {host}", "--hosts", ","), "--hosts has no name in it"),
        (("--exec", "ssh {host}", "--hosts", "n1,-oX"), "a name that is none: '-oX'"),
        (("--exec", "ssh {host}", "--hosts", "n1", "--pbs"), "more than one target was given"),
    ],
)
def test_wrong_usage_is_said_and_how_it_is_right(
    flags: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    from click.testing import CliRunner

    from hangdoctor.cli import dump

    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(dump.command, flags, catch_exceptions=False, standalone_mode=False)
    assert said in str(caught.value)
    assert caught.value.help or "brackets" in said


def test_a_command_that_is_not_here(tmp_path: Path) -> None:
    missing = template.TemplateReach("no-such-program exec {host}", "c1")
    with pytest.raises(LauncherError, match="no-such-program was not found"):
        missing.nodes()


def test_each_name_once_and_in_order() -> None:
    found = template.TemplateReach("docker exec {host}", "b-[2-3],a_1,b-2,7")
    assert found.hosts == ["b-2", "b-3", "a_1", "7"]
    assert found.means == "docker"


def test_dump_says_which_containers_have_no_python(programs: Path, tmp_path: Path) -> None:
    flags = ("--exec", "on-node {host}", "--hosts", "c[1-2]", "--python", "/no/python")
    done = hangdoctor("dump", *flags, cwd=tmp_path, code=1)
    assert "the agent could not start on c[1-2]: there is no such Python" in done.stderr
    assert "--python PATH" in done.stderr


def test_where_no_node_answers_one_reason_is_said_once_with_what_shows_why(
    programs: Path, tmp_path: Path
) -> None:
    text = (programs / "on-node").read_text()
    (programs / "on-node").write_text(text.replace("refuses)", "n*)").replace("refuses:", "$1:"))
    target = ("--exec", "on-node {host}", "--hosts", "n[1-8]")
    done = hangdoctor("dump", "--no-bundle", *target, cwd=tmp_path, env={**os.environ})
    said = "no rank was captured (n[1-8] (8 nodes): no such container)."
    assert f"UNKNOWN Could not tell: {said}\nDO   See why: on-node n1 true." in done.stdout
    assert "missing node of unknown ranks on n[1-8] (8 nodes), see above" in done.stdout
    found = hangdoctor("preflight", *target, "--json", "-", cwd=tmp_path, env={**os.environ})
    [reached] = [f for f in json.loads(found.stdout)["findings"] if f["check"] == "reached"]
    assert len(reached["nodes"]) == 8 and reached["reading"] == "no such container"


@pytest.mark.parametrize(
    ("reach", "command"),
    [
        (template.TemplateReach("ssh -J gate {host}", "a"), "ssh -J gate {node} true"),
        (template.TemplateReach("on {host} sh -c {command}", "a"), "on {node} sh -c true"),
        (SshReach(Path("hosts")), "ssh {node} true"),
        (SshReach(Path("hosts"), "pdsh"), "pdsh -w {node} true"),
        (PbsJobReach("12"), "ssh {node} true"),
        (RayReach("10.0.0.2:6379"), "ray status --address 10.0.0.2:6379"),
    ],
)
def test_what_a_person_tries_by_hand(reach: reach.TriedByHand, command: str) -> None:
    assert reach.by_hand() == command
