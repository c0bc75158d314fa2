"""GPUs in words: heads of verdicts, evidence and advice."""

from __future__ import annotations

from ...model.gpu import Gpu, Xid
from .. import findings as f
from ..findings import Finding
from ..ops.evidence import Note
from . import clues, stories, terms
from .advice import by_story
from .differences import subject
from .release import on_node, pid_of

_SAYS = 80  # characters of the kernel's own words
_FALLEN = "the GPU has fallen off the bus"
_MEMORY = "an uncorrectable memory error"
_LINK = "an NVLink error"
_KERNEL = "a kernel made a bad memory access"
_PROCESSOR = "the GPU's own processor does not answer"
_MEANINGS = {
    13: _KERNEL,
    31: _KERNEL,
    48: _MEMORY,
    64: _MEMORY,
    74: _LINK,
    79: _FALLEN,
    94: _MEMORY,
    95: _MEMORY,
    109: "a kernel did not give way in time",
    119: _PROCESSOR,
    120: _PROCESSOR,
    140: _MEMORY,
    144: _LINK,
    145: _LINK,
    149: _LINK,
    154: "the GPU needs a reset",
}
_DO = {
    _FALLEN: "Drain the node and power-cycle it; check power, cooling and the PCIe slot.",
    _MEMORY: "Drain the node and reset the GPU; nvidia-smi -q -d ECC,ROW_REMAPPER shows whether that was enough.",
    _LINK: "Drain the node; nvidia-smi nvlink -e shows the link.",
    _KERNEL: "Run the rank's step again with CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer.",
}


def meaning(number: int) -> str:
    """``Xid 79 (the GPU has fallen off the bus)``."""
    known = _MEANINGS.get(number)
    return f"Xid {number} ({known})" if known else f"Xid {number}"


@stories.tell.register
def _(story: f.GpuFailed, finding: Finding) -> str:
    return f"{subject(finding)} failed first: its GPU reported {meaning(story.xid)}"


@stories.tell.register
def _(story: f.WaitsForDevice, finding: Finding) -> str:
    if story.op is not None:
        alone = f"it is the only member of {terms.op(story.op)}, which does not finish"
        return f"{subject(finding)} waits for its own GPU: {alone}"
    since = f" for {terms.duration(story.seconds)}" if story.seconds >= 1 else ""
    what = "what runs there does not end, or takes longer than that"
    return f"{subject(finding)} has been waiting for its own GPU{since}: {what}"


@by_story.register
def _(story: f.WaitsForDevice, finding: Finding) -> str:
    pid = pid_of(finding)
    look = f"cuda-gdb -p {pid}, then info cuda kernels" if pid else "cuda-gdb, info cuda kernels"
    return (
        f"See which kernel runs{on_node(finding)}: {look}. With CUDA_LAUNCH_BLOCKING=1 the next run "
        "is found at the line that launched it."
    )


@by_story.register
def _(story: f.GpuFailed, finding: Finding) -> str:
    known = _DO.get(_MEANINGS.get(story.xid, ""))
    return known or f"See dmesg -T{on_node(finding)} and NVIDIA's list of Xid errors."


@clues.say.register
def _(fact: f.GpuState) -> str:
    return ", ".join(_parts(fact.gpu)) or "no figures"


def _parts(gpu: Gpu) -> list[str]:
    """What is known of a GPU, the worst first."""
    parts = [_said(xid) for xid in gpu.xids[-2:]]
    if gpu.uncorrected > 0:
        errors = terms.count(gpu.uncorrected, "uncorrectable memory error")
        parts.append(f"{errors} since the driver was loaded")
    if gpu.link_errors > 0:
        parts.append(terms.count(gpu.link_errors, "NVLink error"))
    if gpu.busy >= 0:
        parts.append(f"{gpu.busy} % busy")
    if gpu.memory_mb >= 0 and gpu.memory_total_mb > 0:
        parts.append(f"{gpu.memory_mb} of {gpu.memory_total_mb} MB used")
    if gpu.clock_mhz >= 0:
        most = f" of {gpu.clock_max_mhz}" if gpu.clock_max_mhz > 0 else ""
        parts.append(f"clock {gpu.clock_mhz}{most} MHz")
    if gpu.slowed:
        parts.append(f"slowed down by {', '.join(gpu.slowed)}")
    return parts


def _said(xid: Xid) -> str:
    said = terms.cut(xid.says, _SAYS).rstrip(".")
    says = f": {said}" if said else ""
    return f"{meaning(xid.number)}{says}"


@clues.say.register
def _(fact: f.GpuStandsOut) -> str:
    own = "idle" if fact.busy < fact.least else "busy"
    theirs = "busy" if own == "idle" else "idle"
    return (
        f"its GPU is {own} ({fact.busy} %), those of the {fact.others} other ranks are {theirs} "
        f"({_range(fact.least, fact.most)})"
    )


def _range(least: int, most: int) -> str:
    return f"{least} %" if least == most else f"{least}-{most} %"


def stands_out(of: Note) -> str:
    """A GPU that differs from all others, of a rank that is not the cause."""
    own, theirs = ("idle", "busy") if of.number < 50 else ("busy", "idle")
    return (
        f"{_gpus(of)} {terms.choose(of.ranks, 'is', 'are')} {own} ({of.number} %), those of "
        f"{terms.ranks(of.blamed)} are {theirs}."
    )


def error(of: Note) -> str:
    """An error of a GPU that is not the cause."""
    return f"{_gpus(of)} reported {of.op} since the job began."


def _gpus(of: Note) -> str:
    return f"{terms.choose(of.ranks, 'The GPU', 'The GPUs')} of {terms.ranks(of.ranks)}"
