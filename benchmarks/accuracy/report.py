"""The sections of docs/ACCURACY.md about simulated jobs, real jobs and logs. Formats, computes nothing but shares."""

from __future__ import annotations

from collections.abc import Iterator

from .findings import Findings, Made
from .score import Result, Tally
from .simulated import Size
from .tables import percent, reliability, table, worth

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
    "nothing prepared": 0.85,
    "logs alone": 0.75,
    "two captures, 10% silent": 0.90,
    "dump files, 10% silent": 0.90,
}


def section(found: Findings, part: str) -> Iterator[str]:
    """All that was measured in one part, below its title."""
    results = [r for r in found.results if r.part == part]
    yield from how(found.made[part])
    yield from _overview(results)
    yield from _by_confidence(results)
    if part == "simulated":
        yield from _sizes(found.sizes)
    yield "### By kind of fault"
    yield ""
    yield from _by_kind(results)
    yield from _misses(results)


def how(made: Made) -> Iterator[str]:
    """When, with what and on which seeds a part was measured."""
    yield f"Measured {made.date} with {made.versions}, in {made.took_s / 60:.0f} minutes; seeds {made.seeds}."
    yield from made.notes
    yield ""


def _overview(results: list[Result]) -> Iterator[str]:
    rows = []
    for mode in dict.fromkeys(r.mode for r in results):
        some = [r for r in results if r.mode == mode]
        tally = Tally.of(some)
        target = f"{TARGETS.get(mode, 0):.0%}"
        rows.append(
            [
                mode,
                str(tally.cases),
                percent(tally.exact),
                target,
                percent(sum(r.undecided for r in some) / len(some)),
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
            "undecidable",
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
    if any(r.undecided for r in results):
        yield "Undecidable: the verdict names a silent rank that is innocent, and another job in which that one is the"
        yield "culprit would have left the same evidence (`sim_twins.py`): a program in which the other rank's call is right."
        yield ""
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


def _by_confidence(results: list[Result]) -> Iterator[str]:
    """How often a stated confidence is right: of the causes that say 90 %, about 90 % should be
    right.
    """
    said = [s for r in results for s in r.said]
    if not said:
        return
    yield "### How often a confidence is right"
    yield ""
    yield "For each cause of each verdict: its stated confidence, and how often it is right (kind and ranks)."
    yield ""
    yield from reliability(said)
    kinds = sorted({s.kind for s in said})
    by_kind = [(f"`{kind}`", [s for s in said if s.kind == kind]) for kind in kinds]
    yield from table(
        ["kind", "causes", "says, mean", "right"], (worth(name, some) for name, some in by_kind)
    )


def _sizes(sizes: list[Size]) -> Iterator[str]:
    if not sizes:
        return
    yield "### Size"
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
    yield "### Every case that missed"
    yield ""
    if not missed:
        yield "None."
    for r in missed:
        named = ", ".join(f"{kind} {ranks}" for kind, ranks in r.named) or "no rank"
        nothing = " (this evidence shows nothing of it)" if r.no_evidence else ""
        yield f"- {r.part}, {r.mode}: {r.kind}, seed {r.seed}, {r.place}: culprits {r.expected or 'none'}, said {r.status}: {named}{nothing}"
    yield ""
