"""Which cores a rank runs on: those near its GPU, else its share of the NUMA nodes of this host.

The kernel's own tables: /sys/bus/pci/devices/*/numa_node and /sys/devices/system/node/node*/cpulist
(https://docs.kernel.org/admin-guide/abi-stable.html). Cores are only ever given up, never taken:
what a launcher has bound stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Cores = frozenset[int]


@dataclass(frozen=True)
class Rank:
    """Who is bound: its number on this host, of how many (0: unknown), and the address of its GPU
    on the PCI bus; "" where there is none, "?" where it is not known.
    """

    local: int
    count: int = 0
    gpu: str = ""


@dataclass(frozen=True)
class Host:
    """Where the kernel's tables are."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")


def bind(rank: Rank, host: Host | None = None) -> str:
    """Bind all threads of this process; returns what was done, in a sentence."""
    host = host or Host()
    inherited = frozenset(os.sched_getaffinity(0))
    nodes = numa_nodes(host)
    mine = f"cores {written(inherited)}"
    if inherited < allowed(host):
        return f"keeps {mine}: its launcher has bound it"
    if len(nodes) < 2:
        return f"keeps {mine}: this host has one NUMA node"
    node = nearest(rank, nodes, host)
    if node is None:
        return f"keeps {mine}: the NUMA node of its GPU {rank.gpu} is not known"
    wanted = nodes[node] & inherited
    why = f"NUMA node {node}{f' of GPU {rank.gpu}' if rank.gpu else ''}"
    if not wanted:
        return f"keeps {mine}: it may use none of {why}"
    _set_threads(wanted)
    return f"is bound to cores {written(wanted)}: {why}"


def _set_threads(cores: Cores) -> None:
    """Of this process: libraries have started some, and a new one has the cores of its creator."""
    os.sched_setaffinity(0, cores)
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:
            continue  # it has ended


def nearest(rank: Rank, nodes: Mapping[int, Cores], host: Host) -> int | None:
    """The NUMA node of the rank's GPU; without one, its share of them, neighbours together."""
    if rank.gpu:
        number = _read(host.sys / "bus/pci/devices" / rank.gpu / "numa_node")
        return int(number) if number.isdigit() and int(number) in nodes else None
    numbers = sorted(nodes)
    if rank.local < rank.count:
        return numbers[rank.local * len(numbers) // rank.count]
    return numbers[rank.local % len(numbers)]


def numa_nodes(host: Host) -> dict[int, Cores]:
    """Cores of each NUMA node; those that have memory alone are left out."""
    found = {}
    for folder in (host.sys / "devices/system/node").glob("node[0-9]*"):
        cores = parsed(_read(folder / "cpulist"))
        if cores:
            found[int(folder.name.removeprefix("node"))] = cores
    return found


def allowed(host: Host) -> Cores:
    """The cores that this process's cgroup has, else all that are on."""
    for folder, name in _cpusets(host):
        for place in (folder, *folder.parents):
            cores = parsed(_read(place / name))
            if cores:
                return cores
            if place == host.sys / "fs/cgroup":
                break
    return parsed(_read(host.sys / "devices/system/cpu/online"))


def _cpusets(host: Host) -> list[tuple[Path, str]]:
    """(folder, file) of the cgroup's cores, by version 1 and version 2."""
    base, found = host.sys / "fs/cgroup", []
    for line in _read(host.proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuset" in controllers.split(","):
            found.append((base / "cpuset" / path.lstrip("/"), "cpuset.effective_cpus"))
        elif not controllers:
            found.append((base / path.lstrip("/"), "cpuset.cpus.effective"))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def parsed(text: str) -> Cores:
    """``0-3,8`` -> 0, 1, 2, 3, 8."""
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def written(cores: Cores) -> str:
    """0, 1, 2, 3, 8 -> ``0-3,8``."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and parts[-1][-1] == core - 1:
            parts[-1][1:] = [core]
        else:
            parts.append([core])
    return ",".join("-".join(map(str, part)) for part in parts)


def pci_address(properties: Any) -> str:
    """A GPU's address as the kernel writes it, from torch's properties of the device; "?" where
    this torch has none.
    """
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    if not all(hasattr(properties, name) for name in names):
        return "?"
    domain, bus, device = (getattr(properties, name) for name in names)
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
