"""The simulated part: faults x layouts x seeds, with all ranks' dumps and with a tenth of the ranks
silent.
"""

from __future__ import annotations

import math
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import RankOps
from hangdoctor.readers.flight_recorder import read_folder

from . import sim_mirror, sim_twins
from .score import Expected, Result, Said, judge
from .sim_faults import DIFFERENCES
from .sim_layout import Mesh, draw_mesh
from .simulate import KINDS, MOVING, Case, Settings, simulate

LAYOUTS = (
    Layout(dp=2, pp=2, tp=2),
    Layout(dp=4, pp=2, tp=2),
    Layout(dp=2, pp=4, tp=4),
    Layout(dp=4, pp=4, tp=8),
)
QUICK_LAYOUTS = LAYOUTS[:2]
MANY = Layout(dp=16, pp=8, tp=8)  # 1,024 ranks, through files
MESH_MOST = 64  # ranks of a random layout
# Layouts of a seed are ten from here on; while the diagnosis was developed, seeds below 100 were looked at.
MESH_SEEDS = 2000
HUGE_MESH = Mesh(order=("dp", "tp", "pp", "cp"), tp=4, pp=8, dp=128, cp=4, shard=16, names="none")
HUGE = Layout(dp=128, pp=16, tp=8)  # 16,384 ranks, in memory
# Two captures tell a job that moves from one that hangs; a folder of dumps is one capture.
NEEDS_TWO = frozenset(MOVING)

Say = Callable[[str], None]


def capture_of(
    ops: Iterable[RankOps],
    before: Iterable[RankOps] = (),
    layout: Layout | None = None,
    world: int = 0,
) -> JobCapture:
    """Operations alone, as a capture: no process is known."""
    earlier = {o.rank: o for o in before}
    ranks = [
        RankCapture(
            pid=0, rank=o.rank, world_size=o.world_size, ops=o, ops_before=earlier.get(o.rank)
        )
        for o in ops
    ]
    world = world or max((r.world_size for r in ranks), default=0)
    return JobCapture("simulated", [NodeCapture("", ranks=ranks)], world_size=world, layout=layout)


def capture_of_folder(folder: Path) -> JobCapture:
    """What the diagnosis makes of a folder of dumps, with nothing else known."""
    found = read_folder(folder)
    return capture_of(found.ops.values(), world=found.world_size)


def expected(case: Case) -> Expected:
    """What a right verdict of a case says."""
    truth = case.truth
    if case.kind in MOVING:
        return Expected([], ["slow"], hang=False, innocent_if_slow=truth.ranks)
    difference = DIFFERENCES.get(case.kind, "")
    if set(truth.ranks) & set(case.missing):
        difference = ""
    pair = sim_mirror.either(case) if case.settings.only_active else []
    return Expected(
        truth.ranks,
        truth.kinds,
        alternatives=[*truth.alternatives, pair] if pair else truth.alternatives,
        difference=difference,
        undecidable=bool(pair),
    )


def cases(
    layouts: Iterable[Layout | Mesh],
    seeds: Iterable[int],
    silent: float,
    *,
    only_active: bool = False,
) -> Iterator[Case]:
    """All kinds of fault in all layouts that have a place for them."""
    settings = Settings(silent=silent, only_active=only_active)
    for layout in layouts:
        for kind in sorted(KINDS):
            for seed in seeds:
                try:
                    yield simulate(kind, layout, seed, settings)
                except ValueError:
                    continue


def meshes(seeds: Iterable[int]) -> Iterator[tuple[Mesh, int]]:
    """Random layouts, as frameworks number their ranks, each with its seed."""
    for seed in seeds:
        yield draw_mesh(seed, MESH_MOST), seed


def run_meshes(seeds: Iterable[int], silent: float, say: Say) -> list[Result]:
    """All kinds of fault in random layouts: two captures, and what one moment's dump files say."""
    results = []
    for mesh, seed in meshes(seeds):
        results += run_memory([mesh], [seed], silent, say, before="any layout: ")
        if not silent:
            results += run_files([mesh], [seed], silent, say, before="any layout: ")
    return results


def run_memory(
    layouts: Iterable[Layout | Mesh],
    seeds: Iterable[int],
    silent: float,
    say: Say,
    before: str = "",
) -> list[Result]:
    """Operations as a black box would hold them: two captures, in memory."""
    results = []
    name = before + mode("two captures", silent)
    for case in cases(layouts, seeds, silent):
        result = Result("simulated", name, case.kind, case.seed, case.name)
        began = time.perf_counter()
        diagnosis = diagnose(capture_of(case.after, case.before, world=case.layout.world_size))
        result.took_s = time.perf_counter() - began
        results.append(judge(result, diagnosis, expected(case)))
        compare_twins(result, diagnosis, case, sim_twins.of_memory)
        _tell(say, results[-1])
    return results


def run_files(
    layouts: Iterable[Layout | Mesh],
    seeds: Iterable[int],
    silent: float,
    say: Say,
    only_active: bool = False,
    before: str = "",
) -> list[Result]:
    """Dump files of one moment, read back."""
    results = []
    name = before + mode("active-only dumps" if only_active else "dump files", silent)
    for case in cases(layouts, seeds, silent, only_active=only_active):
        if case.kind in NEEDS_TWO:
            continue
        folder = Path(tempfile.mkdtemp(prefix="accuracy-"))
        try:
            case.write(folder)
            result = Result("simulated", name, case.kind, case.seed, case.name)
            began = time.perf_counter()
            diagnosis = diagnose(capture_of_folder(folder))
            result.took_s = time.perf_counter() - began
            results.append(judge(result, diagnosis, expected(case)))
            compare_twins(result, diagnosis, case, sim_twins.of_dumps(case))
            _tell(say, results[-1])
        finally:
            shutil.rmtree(folder)
    return results


def compare_twins(
    result: Result, diagnosis: Diagnosis, case: Case, evidence: sim_twins.Evidence
) -> None:
    """Count another difference, or several silent ranks, as right where they would have left the
    same evidence.
    """
    named = {rank for _, ranks in result.named for rank in ranks}
    if not result.exact and sim_twins.equally_suspect(case, named, evidence):
        result.exact = result.silent_alike = True
        result.victim = False
        result.kind_right = all(kind == "unreachable" for kind, _ in result.named)
        result.said = [Said(s.kind, s.confidence, s.kind == "unreachable") for s in result.said]
    if not result.exact and sim_twins.another_job(case, named, evidence):
        result.undecided, result.victim = True, False
    if result.explained is not False:
        return
    said = {cause.difference for cause in diagnosis.causes or diagnosis.open}
    result.same_evidence = said <= sim_twins.same_evidence(case, evidence)
    result.explained = result.same_evidence


def mode(what: str, silent: float) -> str:
    """What the evidence is called."""
    return what + (f", {silent:.0%} silent" if silent else "")


def _tell(say: Say, result: Result) -> None:
    if not result.exact or not result.kind_right:
        say(
            f"{result.mode}: {result.place}: {result.status} {result.named}, expected {result.expected}: {result.summary[:300]}"
        )


@dataclass
class Size:
    """One large case."""

    what: str
    ranks: int
    ours_s: float
    peer_s: float = 0.0
    peer: str = ""
    peak_mb: float = 0.0
    right: bool = False


def measure_memory(
    layout: Layout | Mesh = HUGE, kind: str = "skipped", seed: int = 1, silent: float = 0.0
) -> Size:
    """Processor time of the diagnosis of 16,384 ranks that are in memory, and the process's largest
    size while it ran.
    """
    case = simulate(kind, layout, seed, Settings(silent=silent))
    capture = capture_of(case.after, world=layout.world_size)
    wanted = expected(case)
    took = math.inf
    for _ in range(3):  # the fastest: what else runs on the machine only adds
        began = time.process_time()
        diagnosis = diagnose(capture)
        took = min(took, time.process_time() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = judge(Result("simulated", "size", kind, seed, case.name), diagnosis, wanted)
    where = "any layout" if isinstance(layout, Mesh) else "TP, DP, PP"
    return Size(
        f"{kind}, {mode(where, silent)}, in memory",
        layout.world_size,
        took,
        peak_mb=peak,
        right=result.exact,
    )


def main() -> None:
    """Read and diagnose one folder of dumps; what `__main__` measures the time of."""
    import sys

    print(diagnose(capture_of_folder(Path(sys.argv[1]))).summary)


if __name__ == "__main__":
    main()
