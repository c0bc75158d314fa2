"""One node before a job: what would make a training fail, or its hang hard to diagnose. Each check
is one function.

A check reads, changes nothing, and says what it read, what that means and what to do. One that does
not answer in time, as a file system may not, is a finding of its own and does not delay the others.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from .._version import __version__
from ..readers import discover, pyspy
from ..text.job_names import short_job
from ..text.plural import count
from . import gpu, tools
from .readings import Check, NodeReadings, PreflightOptions

_PACKAGES = ("torch", "deepspeed", "numpy", "transformers", "triton")
_MB = 1 << 20
_SHM_MB, _FREE_MB = (
    256,
    1024,
)  # below these a job has little room: black boxes and NCCL's buffers; checkpoints and logs
_SLOW_WRITE_S = 1.0
_FILES = 4096
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)


def read_node(options: PreflightOptions, node: str = "") -> NodeReadings:
    """All checks of this node, in parallel, under one deadline."""
    found = NodeReadings(node or os.environ.get("SLURMD_NODENAME") or platform.node())
    gpus = gpu.Gpus()
    checks: dict[str, Callable[[], Check]] = {
        "gpus": lambda: gpu.check_gpus(options.gpus, gpus),
        **tools.checks_of_node(),
        **(tools.checks_of_here() if options.here else {}),
        "names": lambda: check_names(options.peers),
        "links": check_links,
        "clock": check_clock,
        "/dev/shm": lambda: check_folder("/dev/shm", Path("/dev/shm"), _SHM_MB),
        **{f"disk {path}": _folder_check(path) for path in [tempfile.gettempdir(), *options.paths]},
        "memory": check_memory,
        "limits": check_limits,
        "left over": check_left_over,
    }
    found.checks = _run(checks, options.timeout_s)
    found.facts = versions() | gpus.facts()
    found.wall_s = time.time()
    return found


def _folder_check(path: str) -> Callable[[], Check]:
    return lambda: check_folder(f"disk {path}", Path(path), _FREE_MB)


def _run(checks: dict[str, Callable[[], Check]], timeout_s: float) -> list[Check]:
    done: dict[str, Check] = {}

    def one(name: str, check: Callable[[], Check]) -> None:
        try:
            done[name] = check()
        except (OSError, ValueError, subprocess.SubprocessError, psutil.Error) as error:
            done[name] = Check(name, "unknown", f"could not be read: {error}")

    threads = {
        name: threading.Thread(target=one, args=item, daemon=True)
        for name, item in zip(checks, checks.items(), strict=True)
    }
    for thread in threads.values():
        thread.start()
    end = time.monotonic() + timeout_s
    for thread in threads.values():
        thread.join(max(0.0, end - time.monotonic()))
    late = "Read the same thing by hand: a file system or driver that does not answer would also hang the job."
    return [
        done.get(name) or Check(name, "fail", f"no answer within {timeout_s:.0f} s", late)
        for name in checks
    ]


def check_names(peers: list[str]) -> Check:
    """Own name and those of the peers lead to addresses that the others can reach."""
    own = socket.gethostname()
    missing = [name for name in dict.fromkeys([own, *peers]) if not _addresses(name)]
    if missing:
        return Check(
            "names",
            "fail",
            f"these names do not resolve: {', '.join(missing[:8])}",
            "Check /etc/hosts and DNS: getent hosts NAME.",
        )
    addresses = _addresses(own)
    if peers and all(a.startswith("127.") or a == "::1" for a in addresses):
        advice = "Ranks of other nodes cannot reach it: set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to its interface, or fix /etc/hosts."
        return Check(
            "names", "warn", f"{own} is {', '.join(addresses)}, a loopback address", advice
        )
    return Check(
        "names",
        "ok",
        f"{own} is {', '.join(addresses[:3])}"
        + (f"; {len(peers)} peers have addresses" if peers else ""),
    )


def _addresses(name: str) -> list[str]:
    try:
        return sorted(
            {str(info[4][0]) for info in socket.getaddrinfo(name.rpartition("@")[2], None)}
        )
    except OSError:
        return []


def check_links(root: Path = Path("/sys/class")) -> Check:
    """InfiniBand and RoCE ports, else network interfaces."""
    ports = {
        p.parent.parent.parent.name + "/" + p.parent.name: p.read_text().strip()
        for p in root.glob("infiniband/*/ports/*/state")
    }
    down = sorted(name for name, state in ports.items() if "ACTIVE" not in state)
    if down:
        advice = "Run ibstat; NCCL would fall back to sockets or hang. To leave a port out on purpose, set NCCL_IB_HCA."
        return Check(
            "links",
            "fail",
            f"{len(down)} of {len(ports)} ports are not active: {', '.join(down[:6])}",
            advice,
        )
    if ports:
        return Check("links", "ok", f"{len(ports)} InfiniBand or RoCE ports active")
    return _check_interfaces(root / "net")


def _check_interfaces(root: Path) -> Check:
    others = [p for p in root.glob("*/operstate") if p.parent.name != "lo"]
    up = sorted(p.parent for p in others if p.read_text().strip() == "up")
    if not up:
        return Check(
            "links",
            "warn",
            "no network interface except loopback is up",
            "Run: ip link. A job on a single node needs none.",
        )
    return Check("links", "ok", ", ".join(_speed(interface) for interface in up[:6]))


def _speed(interface: Path) -> str:
    """``eth0 25000 Mb/s``; the name alone where the kernel knows no speed."""
    speed = _text(str(interface / "speed"))
    return interface.name if speed in ("", "-1") else f"{interface.name} {speed} Mb/s"


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    ]


def check_clock() -> Check:
    """adjtimex(2) without a change: whether something keeps the clock right, and how far off it may
    be.
    """
    state = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    if state.status & _UNSYNCHRONISED:
        return Check(
            "clock",
            "warn",
            "the clock is not synchronized",
            "Start chronyd or ntpd: otherwise times of different nodes cannot be compared.",
        )
    return Check("clock", "ok", f"synchronized, at most {state.maxerror / 1000:.0f} ms off")


def check_folder(name: str, path: Path, least_mb: int) -> Check:
    """Room, and a small file written through to the disk and removed again."""
    if not path.is_dir():
        return Check(
            name, "fail", f"{path} is not a folder here", "Is the file system mounted on this node?"
        )
    free = shutil.disk_usage(path).free // _MB
    begin = time.monotonic()
    with tempfile.TemporaryFile(dir=path) as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())
    took = time.monotonic() - begin
    if free < least_mb:
        return Check(
            name,
            "fail" if free < least_mb // 8 else "warn",
            f"{free} MB free",
            f"Free at least {least_mb} MB.",
        )
    if took > _SLOW_WRITE_S:
        return Check(
            name,
            "warn",
            f"4 kB took {took:.1f} s to write",
            "Checkpoints will be slow: is the file system overloaded?",
        )
    return Check(name, "ok", f"{free / 1024:.0f} GB free, 4 kB written in {took * 1000:.0f} ms")


def check_memory() -> Check:
    """Memory of the node: what is available, of all."""
    memory = psutil.virtual_memory()
    said = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GB available"
    if memory.available < 0.1 * memory.total:
        return Check(
            "memory",
            "warn",
            said,
            "Find what uses it: ps aux --sort=-rss | head. An earlier job may still be running.",
        )
    return Check("memory", "ok", said)


def check_limits() -> Check:
    """Open files, and locked memory where there is InfiniBand."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < _FILES:
        return Check(
            "limits",
            "warn",
            f"{files} open files",
            f"ulimit -n {_FILES}: data loaders and sockets of many ranks need more open files.",
        )
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if any(Path("/sys/class/infiniband").glob("*")) and locked != resource.RLIM_INFINITY:
        return Check(
            "limits",
            "warn",
            f"only {locked // 1024} kB of locked memory, and InfiniBand needs more",
            "ulimit -l unlimited",
        )
    return Check(
        "limits", "ok", f"{'unlimited' if files == resource.RLIM_INFINITY else files} open files"
    )


def check_left_over() -> Check:
    """Ranks that run already: of a job before, or of one that shares the node."""
    jobs = discover.find_jobs()
    if not jobs:
        return Check("left over", "ok", "no rank is running here")
    said = "; ".join(
        f"{short_job(j.key)}: {count(len(j.ranks), 'rank')}, pid {j.ranks[0].pid}" for j in jobs[:4]
    )
    if len(jobs) > 4:
        said += f"; and {count(len(jobs) - 4, 'more job')}"
    return Check(
        "left over",
        "warn",
        said,
        "These ranks use GPUs and ports. If they are left over from your earlier job, kill them; do not touch another user's job on a shared node.",
    )


def versions() -> dict[str, str]:
    """What should be the same on all nodes; packages by their metadata, none is imported."""
    found = {
        "hangdoctor": __version__,
        "Python": platform.python_version(),
        "kernel": platform.release(),
    }
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    program = pyspy.find_pyspy()
    if program is not None:
        try:
            found["py-spy"] = subprocess.run(
                [program, "--version"], capture_output=True, text=True, timeout=5
            ).stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            found["py-spy"] = f"does not start: {error}"
    return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
