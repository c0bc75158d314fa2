"""The GPUs of this node by nvidia-smi, and what the kernel's log says of them.

NVIDIA's library is not loaded: a call into a driver in trouble never returns, and a program that
hangs in one can be left behind. One that still hangs keeps the next from being started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import xml.etree.ElementTree as tree
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..model.gpu import Gpu
from ..text.late import late
from ..text.plain import readable
from ..text.ranges import number_in
from . import kernel_log

_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib")
_MAX_BYTES = 8 << 20  # of an answer; 16 GPUs take 300 KB
_NO_DEVICE = 6  # nvidia-smi's exit status
_MOST = 64  # GPUs of a node, and processes of a GPU
_NUMBER = late(r"\d{1,12}")
_LINK_GPU = late(r"^GPU (\d{1,3}):")
_LINK_ERRORS = late(r"(?:Replay|Recovery|CRC|Symbol|Malformed|Integrity)[\w /]*: +(\d{1,12})\s*$")
# A clock is lowered for these as it should be: nothing to do, or the limit that it has.
_USUAL = ("gpu_idle", "sw_power_cap", "applications_clocks_setting", "display_clocks_setting")
_hung: list[subprocess.Popen[bytes]] = []


class Found(Struct):
    """What a node's GPUs are and do."""

    gpus: list[Gpu] = []
    notes: list[str] = []  # why it is not all


class Asked:
    """nvidia-smi under way while the capture goes on."""

    def __init__(self, seconds: float, since: float) -> None:
        """Start it; the arguments are those of `read`."""
        self._found: list[Found] = []
        self._thread = threading.Thread(target=self._read, args=(seconds, since), daemon=True)
        self._thread.start()

    def _read(self, seconds: float, since: float) -> None:
        try:
            self._found.append(read(seconds, since))
        except Exception as error:
            why = f"the GPUs could not be read: {type(error).__name__}: {error}"
            self._found.append(Found(notes=[why[:200]]))

    def wait(self, seconds: float) -> Found:
        """What it found, within so many seconds."""
        self._thread.join(max(0.0, seconds))
        if not self._found:
            return Found(notes=["the GPUs were not read: nvidia-smi has not answered in time"])
        return self._found[0]


def read(seconds: float, since: float, kernel: Path = kernel_log.DEVICE) -> Found:
    """All GPUs of this node; none, without a note, where it has none.

    Args:
        seconds: until nvidia-smi is given up.
        since: errors in the kernel's log before this moment are left out (seconds since the epoch).
    """
    program = shutil.which("nvidia-smi", path=os.environ.get("PATH", "")) or _elsewhere()
    if program is None:
        return Found()
    _hung[:] = [process for process in _hung if process.poll() is None]
    if _hung:
        which = f"nvidia-smi (process {_hung[0].pid})"
        return Found(notes=[f"{which} has hung since an earlier capture"])
    answer, error = _run([program, "-q", "-x"], 0.7 * seconds)
    if error:
        return Found(notes=[error])
    found = Found(parse(answer))
    if not found.gpus:
        found.notes.append("nvidia-smi lists no GPU")
    elif len(found.gpus) > 1:
        links, error = _run([program, "nvlink", "-e"], 0.3 * seconds)
        if not error:
            _add_links(found.gpus, links.decode(errors="replace"))
    _add_xids(found, since, kernel)
    return found


def _elsewhere() -> str | None:
    """In its usual folders: what comes in through ssh or srun may have a bare PATH."""
    return shutil.which("nvidia-smi", path=":".join(_PLACES))


def _run(command: Sequence[str], seconds: float) -> tuple[bytes, str]:
    """(what it printed, why that is not all)."""
    words = " ".join([Path(command[0]).name, *command[1:]])
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return b"", f"{words} could not be started: {error.strerror}"
    try:
        answer, _ = process.communicate(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        # In a call that the driver does not answer it cannot even be killed: it is not waited for.
        process.kill()
        _hung.append(process)
        return b"", f"{words} did not answer within {seconds:.1f} s: the GPU driver may hang"
    if process.returncode == _NO_DEVICE:
        return b"", "nvidia-smi finds no GPU: a step of Slurm without GPUs may not see them"
    if process.returncode:
        said = readable(answer[-300:].decode(errors="replace").strip())
        return b"", f"{words} failed: {said or process.returncode}"
    return answer[:_MAX_BYTES], ""


# ---------------------------------------------------------------------- what it printed


def parse(answer: bytes) -> list[Gpu]:
    """The GPUs of ``nvidia-smi -q -x``; fields that a version lacks stay unknown."""
    try:
        root = tree.fromstring(answer)
    except (tree.ParseError, ValueError):
        return []
    return [_gpu(place, node) for place, node in enumerate(root.findall("gpu")[:_MOST])]


def _gpu(index: int, node: tree.Element) -> Gpu:
    return Gpu(
        index=index,
        uuid=_text(node, "uuid"),
        bus=kernel_log.bus_of(node.get("id", "")),
        name=_text(node, "product_name"),
        pids=_pids(node),
        busy=_first(node, "utilization/gpu_util"),
        memory_mb=_first(node, "fb_memory_usage/used"),
        memory_total_mb=_first(node, "fb_memory_usage/total"),
        clock_mhz=_first(node, "clocks/sm_clock"),
        clock_max_mhz=_first(node, "max_clocks/sm_clock"),
        slowed=_slowed(node),
        uncorrected=_uncorrected(node),
    )


def _text(node: tree.Element, path: str) -> str:
    return readable((node.findtext(path) or "").strip()[:100])


def _first(node: tree.Element, path: str) -> int:
    """The number in "98 %", "1410 MHz"; -1 in "N/A" and where there is none."""
    match = _NUMBER.match(_text(node, path))
    return number_in(match[0]) if match else -1


def _pids(node: tree.Element) -> list[int]:
    found = [_first(p, "pid") for p in node.findall("processes/process_info")[:_MOST]]
    return sorted({pid for pid in found if pid > 0})


def _slowed(node: tree.Element) -> list[str]:
    """Reasons for a lower clock, which older drivers call throttle reasons."""
    reasons = [*node.findall("clocks_event_reasons/*"), *node.findall("clocks_throttle_reasons/*")]
    active = [r.tag for r in reasons if (r.text or "").strip() == "Active"]
    names = {re.sub(r"^clocks_(?:event|throttle)_reasons?_", "", tag) for tag in active}
    return sorted(readable(name) for name in names if name not in _USUAL)


def _uncorrected(node: tree.Element) -> int:
    """Uncorrectable errors since the driver was loaded; older GPUs call them double-bit errors."""
    volatile = node.find("ecc_errors/volatile")
    if volatile is None:
        return -1
    counts = [_first(volatile, e.tag) for e in volatile if "uncorrectable" in e.tag]
    counts.append(_first(volatile, "double_bit/total"))
    known = [count for count in counts if count >= 0]
    return sum(known) if known else -1


def _add_links(gpus: list[Gpu], text: str) -> None:
    """The error counters of ``nvidia-smi nvlink -e``, summed by GPU."""
    by_index = {gpu.index: gpu for gpu in gpus}
    gpu: Gpu | None = None
    for line in text.splitlines():
        head = _LINK_GPU.match(line)
        if head:
            gpu = by_index.get(int(head[1]))
            continue
        errors = _LINK_ERRORS.search(line)
        if errors and gpu is not None:
            gpu.link_errors = max(0, gpu.link_errors) + int(errors[1])


def _add_xids(found: Found, since: float, kernel: Path) -> None:
    """The errors of the kernel's log, on the GPU at their place on the bus."""
    by_bus = {gpu.bus: gpu for gpu in found.gpus}
    for bus, xid in kernel_log.xids(since, kernel):
        if bus in by_bus:
            by_bus[bus].xids.append(xid)
        else:
            # A GPU that has fallen off the bus is not listed any more.
            found.gpus.append(Gpu(index=-1, bus=bus, xids=[xid]))
            by_bus[bus] = found.gpus[-1]
