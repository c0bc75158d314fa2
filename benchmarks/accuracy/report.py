"""docs/ACCURACY.md out of the results. Formats, computes nothing but shares."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hangdoctor._version import __version__

from .score import Result, Said, Tally
from .simulated import Size

TARGETS = {
    "black box": 0.95,
    "dumps only": 0.95,
    "two captures": 0.95,
    "dump files": 0.95,
    "active-only dumps": 1.00,
    "active-only dumps, 10% silent": 0.90,
    "any layout: two captures": 0.95,
    "any layout: dump files": 0.95,
    "any layout: two captures, 10% silent": 0.90,
    "stacks only": 0.80,
    "stacks only, no probe": 0.80,
    "logs alone": 0.75,
    "two captures, 10% silent": 0.90,
    "dump files, 10% silent": 0.90,
}


@dataclass
class Findings:
    """Everything that a run found."""

    results: list[Result] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    took_s: float = 0.0
    notes: list[str] = field(default_factory=list)


def percent(share: float) -> str:
    """``97.3 %`` of a share of 1."""
    return f"{100 * share:.1f} %"


def lines(found: Findings) -> Iterator[str]:
    """The whole document."""
    ours = [r for r in found.results if not r.peer]
    yield "# Accuracy"
    yield ""
    yield "Written by `python -m benchmarks.accuracy`; do not edit. How it is measured is described at the end."
    yield ""
    yield f"hangdoctor {__version__}, Python {platform.python_version()}, torch {_torch()}, {platform.system()} {platform.machine()}, "
    yield f"{time.strftime('%Y-%m-%d')}, {found.took_s / 60:.0f} minutes. Seeds: {_seeds(found.results)}."
    yield ""
    yield "## Results"
    yield ""
    yield from _overview(ours)
    yield from _reliability(ours)
    yield from _peers([r for r in found.results if r.part != "logs"])
    yield from _log_peers([r for r in found.results if r.part == "logs"])
    yield from _sizes(found.sizes)
    parts = ("real", "Real jobs"), ("simulated", "Simulated NCCL jobs"), ("logs", "Logs alone")
    for part, title in parts:
        some = [r for r in ours if r.part == part]
        if some:
            yield f"## {title} by kind of fault"
            yield ""
            yield from _by_kind(some)
    yield from _misses(ours)
    yield from _method(found)


def _seeds(results: list[Result]) -> str:
    """A fault that did not hang the job was drawn again, with a thousand more on its seed."""
    said = []
    for part in dict.fromkeys(r.part for r in results):
        drawn = sorted({r.seed % 1000 for r in results if r.part == part})
        said.append(f"{part} {', '.join(map(str, drawn))}")
    return "; ".join(said) or "none"


def _torch() -> str:
    module = sys.modules.get("torch")
    if module is not None:
        return str(module.__version__)
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join(" --- " if i == 0 else " ---: " for i in range(len(head))) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _overview(results: list[Result]) -> Iterator[str]:
    rows = []
    for part, mode in dict.fromkeys((r.part, r.mode) for r in results):
        some = [r for r in results if (r.part, r.mode) == (part, mode)]
        tally = Tally.of(some)
        target = f"{TARGETS.get(mode, 0):.0%}"
        rows.append(
            [
                f"{part}: {mode}",
                str(tally.cases),
                percent(tally.exact),
                target,
                percent(tally.victim),
                percent(tally.kind),
                _explained(some),
            ]
        )
    yield from table(
        [
            "evidence",
            "cases",
            "exact culprits",
            "target",
            "a victim named (target 1 %)",
            "kind right",
            "difference right (target 95 %)",
        ],
        rows,
    )
    yield from _undecidable(results)


def _undecidable(results: list[Result]) -> Iterator[str]:
    """How many cases no evidence of that kind decides for certain."""
    yield from _by_real_dumps([r for r in results if r.part == "real" and r.undecidable], results)
    yield from _other_difference(results)
    yield from _silent_alike(results)
    simulated = (r for r in results if r.part == "simulated" and r.undecidable)
    for mode in dict.fromkeys(r.mode for r in simulated):
        some = [r for r in results if r.mode == mode]
        either = [r for r in some if r.undecidable]
        both = sum(r.exact and _all_named(r) != set(r.expected) for r in either)
        alone = sum(r.exact for r in either) - both
        yield f"{mode[:1].upper()}{mode[1:]}: in {len(either)} of {len(some)} cases another culprit in another program leaves"
        yield f"the same files to the byte (`sim_mirror.py`). There, both ranks were named in {both} and the culprit alone in {alone}."
        yield ""


def _by_real_dumps(either: list[Result], results: list[Result]) -> Iterator[str]:
    """Of gloo's dumps: how many cases leave what another fault leaves, and what was said there."""
    if not either:
        return
    modes = {r.mode for r in either}
    every = sum(r.mode in modes for r in results)
    silent = sum(not r.named for r in either)
    alone = sum(len(r.named) > 0 and _all_named(r) == set(r.expected) for r in either)
    yield f"Dumps only: in {len(either)} of {every} cases another fault leaves the same records, times apart (`real_twins.py`): a"
    yield "neighbour stage that made no transfer, an evaluation that only lasts, or nothing at all. There, the culprit alone was"
    yield f"named in {alone}, no rank in {silent}, and a set of neighbour stages that says so in {len(either) - alone - silent}."
    yield ""


def _other_difference(results: list[Result]) -> Iterator[str]:
    """How many differences count as right that are another one than the true one."""
    some = [r for r in results if r.explained is not None]
    other = sum(r.same_evidence for r in some)
    if other:
        yield f"Differences: in {other} of {len(some)} cases another one was said that leaves the same evidence (`sim_twins.py`): a host"
        yield "that stops right after its wrong call may have left the other call out, or have meant to make it next."
        yield ""


def _silent_alike(results: list[Result]) -> Iterator[str]:
    """How many sets of silent ranks count as right because each of them could be the culprit."""
    some = sum(r.silent_alike for r in results)
    if some:
        yield f"Silent ranks: in {some} cases the verdict names the silent culprit and other silent ranks, each of which would"
        yield "have left the same evidence if it had been the one (`sim_twins.py`)."
        yield ""


def _all_named(result: Result) -> set[int]:
    return {rank for _, ranks in result.named for rank in ranks}


def _explained(results: list[Result]) -> str:
    """Of the exact verdicts on ranks whose calls differ, the share that says how they differ."""
    some = [r.explained for r in results if r.explained is not None]
    return f"{percent(sum(some) / len(some))} of {len(some)}" if some else "-"


_BANDS = (
    (0.9, 1.01),
    (0.8, 0.9),
    (0.7, 0.8),
    (0.55, 0.7),
    (0.45, 0.55),
    (0.0, 0.45),
)  # from, below


def _reliability(results: list[Result]) -> Iterator[str]:
    """How often a stated confidence is right: of the causes that say 90 %, about 90 % should be
    right.
    """
    said = [s for r in results for s in r.said]
    if not said:
        return
    yield "## How often a confidence is right"
    yield ""
    yield "For each cause of each verdict: its stated confidence, and how often it is right (kind and ranks)."
    yield ""
    yield from table(["confidence", "causes", "says, mean", "right"], by_band(said))
    kinds = sorted({s.kind for s in said})
    by_kind = [(f"`{kind}`", [s for s in said if s.kind == kind]) for kind in kinds]
    yield from table(
        ["kind", "causes", "says, mean", "right"], (_worth(name, some) for name, some in by_kind)
    )


def by_band(said: Sequence[Said]) -> Iterator[list[str]]:
    """Rows: a band of stated confidence, causes, its mean, and the share that is right."""
    for low, high in _BANDS:
        some = [s for s in said if low <= s.confidence < high]
        if some:
            yield _worth(f"{low:.0%} and more", some)


def _worth(name: str, said: Sequence[Said]) -> list[str]:
    mean = sum(s.confidence for s in said) / len(said)
    right = sum(s.right for s in said) / len(said)
    return [name, str(len(said)), percent(mean), percent(right)]


_DUMPS = ("dump files", "active-only dumps")
_COMMANDS = {"torch.distributed.flight_recorder": "torchfrtrace"}


def _peers(results: list[Result]) -> Iterator[str]:
    peers = [r for r in results if r.peer]
    if not peers:
        return
    yield "## Other analyzers on the same folders of dumps"
    yield ""
    folders = {(r.place, r.seed) for r in peers}
    ours = [r for r in results if not r.peer and (r.place, r.seed) in folders]
    by_name = {"hangdoctor": ours}
    for result in peers:
        by_name.setdefault(result.kind, []).append(result)
    rows = []
    kinds = [kind + silent for kind in _DUMPS for silent in ("", ", 10% silent")]
    for kind in kinds:
        for name, every in by_name.items():
            theirs = [r for r in every if r.mode == kind]
            if theirs:
                rows.append([kind, *_peer_row(_COMMANDS.get(name, name), theirs)])
    head = ["dumps", "analyzer", "folders", "exact culprits", "a victim named"]
    yield from table([*head, "seconds a folder, median"], rows)
    yield "A peer is right if any reading of its output is right, and its kind of fault is not asked for (`benchmarks/accuracy/peers.py`)."
    yield "`torchfrtrace` is torch's own, torch.distributed.flight_recorder.fr_trace. Dumps are those that NCCL's recorder writes, simulated."
    yield "hangdoctor's seconds are those of reading and diagnosing; a peer's include the start of its process. The machine did other work meanwhile."
    yield ""


def _log_peers(results: list[Result]) -> Iterator[str]:
    """Other analyzers on the same output of the same jobs."""
    peers = [r for r in results if r.peer]
    if not peers:
        return
    yield "## Other analyzers on the same logs"
    yield ""
    rows = [_log_row("hangdoctor", [r for r in results if not r.peer])]
    for name in dict.fromkeys(r.kind for r in peers):
        theirs = [r for r in peers if r.kind == name]
        if any(r.status == "not measured" for r in theirs):
            rows.append([name, "-", "not measured", "not measured"])
        else:
            rows.append(_log_row(name, theirs))
    rows.append(["torchfrtrace", "-", "reads dumps alone", "reads dumps alone"])
    yield from table(["analyzer", "jobs", "exact culprits", "a victim named"], rows)
    yield "By the ranks that it names, its kind of fault not asked for (`benchmarks/accuracy/log_peers.py`)."
    yield ""


def _log_row(name: str, results: list[Result]) -> list[str]:
    tally = Tally.of(results)
    return [name, str(tally.cases), percent(tally.exact), percent(tally.victim)]


def _peer_row(name: str, results: list[Result]) -> list[str]:
    if all(r.status == "not measured" for r in results):
        return [name, "-", "not measured", "not measured", ""]
    tally = Tally.of(results)
    middle = sorted(r.took_s for r in results)[len(results) // 2]
    return [name, str(tally.cases), percent(tally.exact), percent(tally.victim), f"{middle:.2f}"]


def _sizes(sizes: list[Size]) -> Iterator[str]:
    if not sizes:
        return
    yield "## Size"
    yield ""
    rows = []
    for s in sizes:
        peer = f"{s.peer}: {s.peer_s:.1f} s" if s.peer else "-"
        rows.append(
            [
                s.what,
                f"{s.ranks:,}",
                f"{s.ours_s:.2f} s",
                f"{s.peak_mb:.0f} MB" if s.peak_mb else "-",
                peer,
                "yes" if s.right else "no",
            ]
        )
    yield from table(
        ["case", "ranks", "hangdoctor", "largest process", "beside it", "culprit right"], rows
    )


def _by_kind(results: list[Result]) -> Iterator[str]:
    modes = list(dict.fromkeys(r.mode for r in results))
    rows = []
    for kind in dict.fromkeys(r.kind for r in results):
        row = [kind]
        for mode in modes:
            some = [r for r in results if r.kind == kind and r.mode == mode]
            row.append(f"{sum(r.exact for r in some)}/{len(some)}" if some else "-")
        rows.append(row)
    yield from table(["fault", *modes], rows)


def _misses(results: list[Result]) -> Iterator[str]:
    missed = [r for r in results if not r.exact]
    yield "## Every case that missed"
    yield ""
    if not missed:
        yield "None."
    for r in missed:
        named = ", ".join(f"{kind} {ranks}" for kind, ranks in r.named) or "no rank"
        nothing = " (this evidence shows nothing of it)" if r.no_evidence else ""
        yield f"- {r.part}, {r.mode}: {r.kind}, seed {r.seed}, {r.place}: culprits {r.expected or 'none'}, said {r.status}: {named}{nothing}"
    yield ""


def _method(found: Findings) -> Iterator[str]:
    yield "## How it is measured"
    yield ""
    yield "- Exact: the status is hang, and the ranks of all causes together are the culprits, no more and no fewer. For a job that"
    yield "  does not hang: the status is another one, and no rank but the slow one is named. A victim: a rank is named that is"
    yield "  neither a culprit nor in a set that this evidence does not separate from the culprits (a silent member of the group, a"
    yield "  wrong root where no root is recorded, with stacks alone the two ranks of which one skipped a call or the other made"
    yield "  one more)."
    yield "- Real: eight gloo ranks, TP2 x PP2 x DP2 with a 1F1B pipeline (`job.py`); a seed draws rank, step and place of each"
    yield "  fault (`coordinates.py`, `faults.py`). Each job hangs once and is judged in three modes from the same hang: with"
    yield "  stacks and /proc only, with the black box, and from Flight Recorder dumps only. Jobs without a probe show that stacks"
    yield "  are the same without it. Ranks are forked from one process that has imported torch. After an error of gloo a rank"
    yield "  waits for its launcher, as with elastic launchers."
    yield "- gloo aborts the process that is sent more than it expects, so a wrong shape or dtype kills its rank: `dead` is right."
    yield "- gloo's recorder has no sends and receives, no roots and no reduce operations, and nothing before the first group. Real"
    yield "  dumps alone do not separate a rank that waits for its neighbour stage from one that never made the call, nor a long"
    yield "  evaluation from a hang in it (`real_twins.py` hangs such pairs and compares the records). There, naming both stages"
    yield "  counts as exact, and naming none where nothing is recorded. With a wrong root, naming the whole group counts as right."
    yield "  NCCL's recorder has sends and receives; see the simulated part."
    yield "- Simulated: every rank's program runs with NCCL's semantics, run-ahead and short rings (`simulate.py`); a fault that"
    yield "  does not hang the job is put elsewhere. `two captures` is judged in memory, `dump files` from pickles of one moment"
    yield "  that are read back, without other knowledge."
    yield "- Logs alone: four gloo ranks under torchrun, with and without --tee and --log-dir, fail or hang in a chosen way; only"
    yield "  what they printed is read (`logs.py`). A call that one rank skips, and a good end, show no rank: naming none is right."
    yield "- Stacks do not show operation numbers. If one of two ranks has passed an operation in which the other waits, either it"
    yield "  skipped a call or the other made one too many: both are named. If two ranks are in two different calls, or have two"
    yield "  roots, nothing shows which is wrong."
    yield "- Time and memory of the largest case are those of the diagnosis alone, the fastest of three; for the files of 1,024"
    yield "  ranks, of a whole process each."
    for note in found.notes:
        yield f"- {note}"
