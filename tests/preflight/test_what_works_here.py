"""`hangdoctor preflight --local`: what of hangdoctor works on this host, and the cure where it does not."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from hangdoctor.preflight import tools
from hangdoctor.preflight.checks import read_node
from hangdoctor.preflight.readings import Check, PreflightOptions
from hangdoctor.probe import folder as folders
from hangdoctor.probe import record_core
from hangdoctor.readers import pyspy

UP = "Slurmctld(primary) at login is UP\n"
DOWN = "Slurmctld(primary) at login is DOWN\n"
NO_CONFIGURATION = """scontrol: error: fetch_config: DNS SRV lookup failed
scontrol: error: _establish_config_source: failed to fetch config
scontrol: fatal: Could not establish a configuration source
"""


def slurm(folder: Path, ping: str, code: int = 0, jobs: str = "") -> None:
    """Commands that answer as Slurm 22.05.8 does."""
    folder.mkdir(exist_ok=True)
    stream = ">&2" if code else ""
    for name, body in {
        "scontrol": f"cat {stream} <<'END'\n{ping}END\nexit {code}",
        "srun": "echo slurm 22.05.8",
        "squeue": f"printf '{jobs}'",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


def test_the_probe_is_tried_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "root", lambda: tmp_path / "hangdoctor-0")
    found = tools.check_probe()
    assert found.verdict == "ok" and "can be read" in found.reading, found
    assert not [path.name for path in tmp_path.iterdir() if "preflight" in path.name]


def test_a_place_without_room_for_boxes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "root", lambda: tmp_path / "gone" / "hangdoctor-0")
    found = tools.check_probe()
    assert found.verdict == "fail" and str(tmp_path / "gone") in found.reading
    assert f"df -h {tmp_path / 'gone'}" in found.advice


def test_a_python_that_ignores_its_path_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated = tmp_path / "python"
    isolated.write_text(f'#!/bin/sh\nexec {sys.executable} -E "$@"\n')
    isolated.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(isolated))
    found = tools.check_probe()
    assert found.verdict == "fail" and "ignores PYTHONPATH" in found.reading
    assert "hangdoctor.probe.install()" in found.advice


def test_extensions_that_are_not_there_are_named_with_their_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_core, "native", None)
    found = tools.check_extensions()
    assert found.verdict == "warn" and "record" in found.reading
    assert "ten times" in found.reading and "gcc" in found.advice
    monkeypatch.setattr(record_core, "native", object())
    monkeypatch.setattr(tools.hooks, "extension", object)
    assert tools.check_extensions().verdict == "ok"


CURES = {
    "0": "--cap-add SYS_PTRACE",
    "1": "sudo sysctl kernel.yama.ptrace_scope=0, or: sudo setcap",
    "2": "sudo sysctl kernel.yama.ptrace_scope=0, or: sudo setcap",
    "3": "until the next boot",
    "": "--cap-add SYS_PTRACE",
}


@pytest.mark.parametrize("scope", CURES)
def test_the_cure_of_ptrace_fits_the_setting(scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = pyspy.StackResult([], "not permitted to read the process")
    monkeypatch.setattr(tools.pyspy, "dump", lambda *_: forbidden)
    monkeypatch.setattr(tools, "_text", lambda _: scope)
    found = tools.check_ptrace()
    assert found.verdict == "fail" and CURES[scope] in found.advice
    assert not scope or f"ptrace_scope {scope}" in found.reading


def test_no_pyspy_comes_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.pyspy, "find_pyspy", lambda: None)
    found = tools.check_ptrace()
    assert found.verdict == "fail" and found.advice.endswith("-m pip install py-spy")


def asked_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tools.check_slurm()


def test_slurm_answers_is_down_has_no_configuration_or_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(tmp_path / "up", UP, jobs="81\\n90\\n")
    found = asked_of(tmp_path / "up", monkeypatch)
    assert found.verdict == "ok" and "Slurm 22.05.8" in found.reading
    assert "2 running jobs of yours: hangdoctor dump --jobid 81" in found.reading
    slurm(tmp_path / "down", DOWN)
    found = asked_of(tmp_path / "down", monkeypatch)
    assert found.verdict == "warn" and "login is DOWN" in found.reading
    assert "--hostfile" in found.advice
    slurm(tmp_path / "none", NO_CONFIGURATION, code=1)
    assert "Could not establish a conf" in asked_of(tmp_path / "none", monkeypatch).reading
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    found = tools.check_slurm()
    assert found.verdict == "ok" and "--local" in found.reading


def test_the_page_takes_a_free_port_and_says_how_to_reach_it() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 8470))
            other.listen()
        except OSError:
            pass  # another page has it: the same case
        found = tools.check_page()
    assert found.verdict == "ok" and "127.0.0.1:8470 is in use" in found.reading
    command = found.reading.partition("hangdoctor sidecar")[2].partition(";")[0]
    port = command.rpartition(":")[2]
    assert port != "8470" and f"ssh -L {port}:127.0.0.1:{port}" in found.reading


def test_only_this_host_is_asked_for_slurm_and_the_page() -> None:
    there = {check.name for check in read_node(PreflightOptions(timeout_s=60)).checks}
    here = {check.name for check in read_node(PreflightOptions(timeout_s=60, here=True)).checks}
    assert {"ptrace", "extensions", "probe"} <= there
    assert here - there == {"Slurm", "page"}
