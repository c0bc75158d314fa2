"""`hangdoctor preflight`: on this host as it is, over a stand-in for ssh, and its parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.preflight import gpu as preflight_gpu
from hangdoctor.preflight.checks import _run, check_folder, check_links
from hangdoctor.preflight.compare import conclude
from hangdoctor.preflight.readings import Check, NodeReadings
from hangdoctor.preflight.tools import check_ptrace
from tests.support.stage import hangdoctor

ROOT = Path(__file__).parents[2]
CHECKS = {"gpus", "ptrace", "names", "links", "clock", "/dev/shm", "memory", "limits", "left over"}


def findings(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f["check"]: f for f in result["findings"]}


def test_this_host_is_checked_and_a_running_rank_is_named(tmp_path: Path) -> None:
    environ = os.environ | {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "preflight",
        "MASTER_PORT": "1",
    }
    program = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
    rank = subprocess.Popen(program, env=environ, stdout=subprocess.PIPE)
    try:
        assert rank.stdout is not None
        rank.stdout.readline()
        flags = (
            "--path",
            str(tmp_path),
            "--path",
            str(tmp_path / "nowhere"),
            "--gpus",
            "0",
            "--timeout",
            "60",
            "--json",
            "-",
        )
        result = json.loads(
            hangdoctor("preflight", *flags, "--exit-code", cwd=tmp_path, code=10).stdout
        )
    finally:
        rank.kill()
        rank.communicate()
    found = findings(result)
    assert (
        result["schema"] == "hangdoctor.preflight/1"
        and result["verdict"] == "fail"
        and set(found) > CHECKS
    )
    assert (
        found[f"disk {tmp_path / 'nowhere'}"]["verdict"] == "fail"
        and "mounted" in found[f"disk {tmp_path / 'nowhere'}"]["advice"]
    )
    assert found[f"disk {tmp_path}"]["verdict"] in ("ok", "warn")
    left = found["left over"]
    assert left["verdict"] == "warn" and " rank" in left["reading"]
    assert "torchrun:" not in left["reading"] and "1 ranks" not in left["reading"]
    assert list(tmp_path.iterdir()) == []
    [facts] = result["facts"].values()
    assert facts["Python"].count(".") == 2 and "hangdoctor" in facts


def test_the_table_says_the_verdict_first_and_what_to_do(tmp_path: Path) -> None:
    out = hangdoctor(
        "preflight", "--path", "/nonexistent", "--timeout", "60", cwd=tmp_path
    ).stdout.splitlines()
    assert out[0].startswith("FAIL Not ready")
    assert "disk /nonexistent" in out[2] and "do: " in out[3]
    assert any(line.startswith("ok ") for line in out)
    quiet = hangdoctor("preflight", "--quiet", "--timeout", "60", cwd=tmp_path).stdout
    assert "\nok " not in quiet


SSH = """#!/bin/sh
for last; do host=$before; before=$last; done
case $host in
  gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
esac
exec sh -c "$last"
"""


def test_hosts_are_asked_by_ssh_and_the_silent_one_is_a_failure(tmp_path: Path) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text("localhost slots=8\nip6-localhost\ngone\n")
    environ = os.environ | {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    flags = ("--hostfile", "hosts", "--gpus", "0", "--timeout", "60", "--json", "-")
    done = hangdoctor("preflight", *flags, "--exit-code", cwd=tmp_path, code=10, env=environ)
    result = json.loads(done.stdout)
    found = findings(result)
    assert (
        result["nodes"] == ["localhost", "ip6-localhost", "gone"]
        and "2 of 3 nodes answered" in done.stderr
    )
    assert (
        found["reached"]["nodes"] == ["gone"] and "No route to host" in found["reached"]["reading"]
    )
    assert (
        found["same versions"]["verdict"] == "ok" and "Python" in found["same versions"]["reading"]
    )
    assert sorted(found["ptrace"]["nodes"]) == ["ip6-localhost", "localhost"]
    assert "same clock" in found and "gone" in found["names"]["reading"]


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a\n")
    done = hangdoctor("preflight", "--local", "--hostfile", "hosts", cwd=tmp_path, code=2)
    assert "more than one target was given" in done.stderr
    assert "Traceback" not in hangdoctor("preflight", "--once", "e30", cwd=tmp_path, code=2).stderr
    hangdoctor("preflight", "--hostfile", "nowhere", cwd=tmp_path, code=1)
    for wrong in (("--rounds", "1"), ("--sizes", "x")):
        done = hangdoctor("preflight", "--collectives", *wrong, cwd=tmp_path, code=2)
        assert "Traceback" not in done.stderr


def test_a_check_that_does_not_answer_keeps_no_one_waiting() -> None:
    released = threading.Event()

    def stuck() -> Check:
        released.wait()
        return Check("stuck", "ok", "")

    def broken() -> Check:
        raise OSError(5, "Input/output error")

    try:
        found = _run(
            {"stuck": stuck, "broken": broken, "fine": lambda: Check("fine", "ok", "")}, 0.3
        )
    finally:
        released.set()
    assert [(c.name, c.verdict) for c in found] == [
        ("stuck", "fail"),
        ("broken", "unknown"),
        ("fine", "ok"),
    ]
    assert "no answer" in found[0].reading and "Input/output error" in found[1].reading


def test_ptrace_is_tried_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"PREFLIGHT_OF_{os.getpid()}"  # other tests have such processes, too
    monkeypatch.setenv(mark, "1")
    assert check_ptrace().verdict in ("ok", "fail")
    assert not [p for p in os.listdir("/proc") if p.isdigit() and has_in(p, mark)]


def has_in(pid: str, mark: str) -> bool:
    """Whether the process was started with that name in its environment."""
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def port(root: Path, name: str, state: str) -> None:
    folder = root / "infiniband" / name / "ports" / "1"
    folder.mkdir(parents=True)
    (folder / "state").write_text(state + "\n")


def test_ports_and_interfaces(tmp_path: Path) -> None:
    assert check_links(tmp_path).verdict == "warn"
    folder = tmp_path / "net" / "eth0"
    folder.mkdir(parents=True)
    (folder / "operstate").write_text("up\n")
    (folder / "speed").write_text("25000\n")
    assert (check_links(tmp_path).verdict, check_links(tmp_path).reading) == (
        "ok",
        "eth0 25000 Mb/s",
    )
    port(tmp_path, "mlx5_0", "4: ACTIVE")
    assert "1 InfiniBand" in check_links(tmp_path).reading
    port(tmp_path, "mlx5_1", "1: DOWN")
    assert check_links(tmp_path).verdict == "fail" and "mlx5_1/1" in check_links(tmp_path).reading


def test_room(tmp_path: Path) -> None:
    assert check_folder("d", tmp_path, 0).verdict in ("ok", "warn")
    assert check_folder("d", tmp_path, 1 << 40).verdict == "fail"


def test_rows_of_nvidia_smi() -> None:
    text = "0, NVIDIA H100 80GB HBM3, 550.54.15, 4, 0\n1, NVIDIA GeForce RTX 3090, 550.54.15, 1300, [N/A]\nno row\n"
    gpus = preflight_gpu.Gpus(preflight_gpu.parse(text))
    assert [(g.index, g.used_mb, g.uncorrected) for g in gpus.rows] == [(0, 4, 0), (1, 1300, 0)]
    assert gpus.facts() == {
        "GPUs": "1 x NVIDIA GeForce RTX 3090, 1 x NVIDIA H100 80GB HBM3",
        "GPU driver": "550.54.15",
    }


def node(name: str, torch: str = "2.13", kernel: str = "6.1") -> NodeReadings:
    checks = [
        Check("memory", "ok", f"{name} GB"),
        Check("limits", "warn", "1024 open files", "ulimit -n 4096"),
    ]
    return NodeReadings(name, checks, {"torch": torch, "kernel": kernel})


def test_alike_findings_are_joined_and_differences_named() -> None:
    nodes = {n: node(n) for n in ("n1", "n2", "n3")} | {
        "n4": node("n4", torch="2.12", kernel="5.15")
    }
    found = conclude(
        [*nodes, "n5"],
        nodes,
        {"n5": "no answer within 15 s"},
        {"n1": 0.0, "n2": 0.1, "n3": -0.1, "n4": 62.0},
    )
    by = {f.check: f for f in found.findings}
    assert found.verdict == "fail" and [f.verdict for f in found.findings] == [
        "fail",
        "fail",
        "warn",
        "warn",
        "warn",
        "ok",
    ]
    assert (
        by["same torch"].nodes == ["n4"]
        and by["same torch"].reading == "2.13 on n[1-3]; 2.12 on n4"
    )
    assert by["same kernel"].verdict == "warn" and by["reached"].nodes == ["n5"]
    assert by["limits"].nodes == ["n1", "n2", "n3", "n4"] and by["memory"].nodes == [
        "n1",
        "n2",
        "n3",
        "n4",
    ]
    for name, own in nodes.items():
        own.checks.append(Check("left over", "warn", f"pid {name}", "end it"))
    [left] = [f for f in conclude(list(nodes), nodes, {}, {}).findings if f.check == "left over"]
    assert (
        left.nodes == list(nodes)
        and left.reading == "n1 pid n1; n2 pid n2; n3 pid n3; and 1 more nodes"
    )
    assert by["same clock"].reading.startswith("n4 is 62.1 s ahead of n3")


@pytest.mark.parametrize("verdict", ["ok", "warn"])
def test_one_node_is_compared_with_no_other(verdict: str) -> None:
    own = NodeReadings("n1", [Check("memory", verdict, "x")], {"torch": "1"})  # type: ignore[arg-type]
    found = conclude(["n1"], {"n1": own}, {}, {})
    assert found.verdict == verdict and [f.check for f in found.findings] == ["memory"]


def test_facts_import_no_package() -> None:
    code = "import sys; from hangdoctor.preflight.checks import versions; versions(); assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
