"""Ranks bound to cores: real affinity of a real process, over a fake /sys in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.train import binding
from hangdoctor.train.binding import Host, Rank, parsed, written

ROOT = Path(__file__).parents[2]
MINE = sorted(os.sched_getaffinity(0))
# As the trainer binds: with a thread that is there already, and one that comes later.
PROGRAM = """
import json, os, sys, threading
from pathlib import Path
from hangdoctor.train.binding import Host, Rank, bind
folder, kept, rank = Path(sys.argv[1]), json.loads(sys.argv[2]), Rank(*json.loads(sys.argv[3]))
if kept:
    os.sched_setaffinity(0, kept)
done, seen = threading.Event(), {}
def note(name):
    seen[name] = sorted(os.sched_getaffinity(0))
def old():
    done.wait(60)
    note("old")
before = threading.Thread(target=old)
before.start()
seen["says"] = bind(rank, Host(folder / "sys", folder / "proc"))
done.set()
after = threading.Thread(target=note, args=("new",))
after.start(), after.join(), before.join()
note("main")
print(json.dumps(seen))
"""


def fake_sys(folder: Path, nodes: Mapping[int, str], online: str, **gpus: str) -> Path:
    """The kernel's tables of a host with these NUMA nodes and GPUs (address: its node)."""
    files = {f"devices/system/node/node{n}/cpulist": text for n, text in nodes.items()}
    files["devices/system/cpu/online"] = online
    files |= {f"bus/pci/devices/{name}/numa_node": node for name, node in gpus.items()}
    for name, text in files.items():
        path = folder / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


def bound(folder: Path, *rank: Any, kept: list[int] | None = None) -> dict[str, Any]:
    """What the process says, and the cores of its threads."""
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(kept), json.dumps(rank)]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(len(MINE) < 2, reason="this process may use one core alone")
def test_a_rank_gets_the_cores_near_its_gpu_and_a_launchers_binding_stays(tmp_path: Path) -> None:
    """As on Polaris: GPU 0 is near the last NUMA node."""
    first, rest = MINE[:1], MINE[1:]
    nodes = {0: written(frozenset(first)), 1: written(frozenset(rest))}
    gpus = {"0000:07:00.0": "1", "0000:85:00.0": "0", "0000:c7:00.0": "-1"}
    fake_sys(tmp_path, nodes, written(frozenset(MINE)), **gpus)
    for gpu, cores in (("0000:07:00.0", rest), ("0000:85:00.0", first)):
        seen = bound(tmp_path, 0, 2, gpu)
        assert seen["old"] == seen["new"] == seen["main"] == cores
        assert f"of GPU {gpu}" in seen["says"] and written(frozenset(cores)) in seen["says"]
    seen = bound(tmp_path, 0, 2, "0000:c7:00.0")
    assert seen["main"] == MINE and "is not known" in seen["says"]
    # Without GPUs by the number on the host; what a launcher has bound stays.
    assert bound(tmp_path, 1, 2)["main"] == rest
    seen = bound(tmp_path, 1, 2, kept=first)
    assert seen["main"] == seen["new"] == first and "its launcher has bound it" in seen["says"]


def test_neighbours_share_a_numa_node(tmp_path: Path) -> None:
    nodes = {0: parsed("0-7"), 1: parsed("8-15")}
    host = Host(tmp_path / "sys", tmp_path / "proc")
    assert [binding.nearest(Rank(n, 4), nodes, host) for n in range(4)] == [0, 0, 1, 1]
    assert [binding.nearest(Rank(n), nodes, host) for n in range(4)] == [0, 1, 0, 1]
    assert binding.nearest(Rank(0, 1, "?"), nodes, host) is None


@pytest.mark.parametrize(
    ("cgroup", "file", "cores"),
    [
        ("0::/job/step_0", "job/cpuset.cpus.effective", "0-3"),
        ("3:cpuset:/job\n1:name=systemd:/x", "cpuset/job/cpuset.effective_cpus", "4,6"),
        ("0::/job", "other", "0-63"),
    ],
)
def test_the_cgroups_cores_are_what_a_launcher_can_have_narrowed(
    tmp_path: Path, cgroup: str, file: str, cores: str
) -> None:
    fake_sys(tmp_path, {}, "0-63")
    for path, text in ((f"sys/fs/cgroup/{file}", cores), ("proc/self/cgroup", cgroup)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    host = Host(tmp_path / "sys", tmp_path / "proc")
    assert written(binding.allowed(host)) == cores


def test_lists_of_cores() -> None:
    assert parsed("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11}
    assert parsed("") == frozenset() and written(frozenset()) == ""
    for text in ("0", "0-1", "0-3,8,10-11"):
        assert written(parsed(text)) == text


def test_a_gpus_address_is_the_kernels() -> None:
    class Properties:
        pci_domain_id, pci_bus_id, pci_device_id = 0, 0xC7, 0

    assert binding.pci_address(Properties()) == "0000:c7:00.0"
    assert binding.pci_address(object()) == "?"
