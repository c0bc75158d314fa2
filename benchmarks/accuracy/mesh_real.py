"""Real jobs of 8 to 16 gloo ranks in layouts drawn at random, judged by their black boxes.

    python -m benchmarks.accuracy.mesh_real [--layouts N] [--first N] [--only FAULT,...]

The programs, faults and truths are those of the simulation (`sim_program.py`, `sim_faults.py`); the
processes, operations and captures are real (`mesh_job.py`). A fault after which gloo ends a process
or the job goes on is drawn again: NCCL would hang there, gloo does not.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.progress import say
from hangdoctor.diagnosis import diagnose
from hangdoctor.launchers.local import LocalLauncher
from hangdoctor.model.capture import JobCapture
from hangdoctor.readers.node import CaptureOptions
from hangdoctor.readers.proc import stat_fields

from .mesh_job import ITERATIONS, MICRO_BATCHES
from .real import Stem, free_port, wait_at_rest
from .report import percent
from .score import Expected, Result, Tally, judge
from .sim_engine import Members, Simulation
from .sim_faults import DIFFERENCES, KINDS, Placed, shows
from .sim_layout import Mesh, draw_mesh
from .sim_program import Programs

MODE = "any layout: black box"
MOST = 16  # ranks
FIRST = 6000  # seeds from here on were never looked at while the diagnosis was developed
# Those after which gloo waits as NCCL does; of calls that do not fit it ends the process.
FAULTS = (
    "not_entered",
    "dead",
    "skipped",
    "extra",
    "swapped",
    "wrong_group",
    "missing_send",
    "missing_recv",
    "wrong_peer",
    "two_faults",
)
_DRAWS = 12
_HOW = {"not_entered": "sleep", "two_faults": "sleep", "dead": "die"}


@dataclasses.dataclass
class Drawn:
    """A fault in its place in one layout, and the programs of the ranks that have it."""

    kind: str
    mesh: Mesh
    placed: Placed
    changed: dict[str, dict[str, Any]]


def draw(kind: str, mesh: Mesh, rng: random.Random) -> Drawn | None:
    """A fault that hangs the simulated job; None where this layout has no place for it."""
    members = Members(mesh)
    programs = Programs(mesh, MICRO_BATCHES, ITERATIONS, 0)
    plain = [programs.by_stage[stage] for stage in members.stage]
    for _ in range(40):
        simulation = Simulation(members, list(plain), [1] * len(plain))
        placed = KINDS[kind](simulation, programs, rng, ITERATIONS - 2)
        if placed is None:
            continue
        simulation.run()
        if shows(simulation, placed):
            changed = {str(r): _changed(kind, simulation, plain, r) for r in placed.ranks}
            return Drawn(kind, mesh, placed, changed)
    return None


def _changed(kind: str, s: Simulation, plain: list[Any], rank: int) -> dict[str, Any]:
    mine, before = s.programs[rank], plain[rank]
    how = _HOW.get(kind, "")
    same = zip(mine, before, strict=False)
    differs = next((n for n, (a, b) in enumerate(same) if a != b), len(before))
    strikes = s.stop_host[rank] if how else differs
    return {"steps": [dataclasses.asdict(x) for x in mine], "strikes": strikes, "how": how}


def run_case(stem: Stem, drawn: Drawn) -> tuple[JobCapture | None, str]:
    """What `dump --local` captures of the hung job; None, and why, where it does not hang."""
    with tempfile.TemporaryDirectory(dir=stem.home) as name:
        folder, port = Path(name), free_port()
        order = {
            "ranks": list(range(drawn.mesh.world_size)),
            "folder": name,
            "port": port,
            "probe": True,
            "faults": [],
            "mesh": dataclasses.asdict(drawn.mesh),
            "changed": drawn.changed,
        }
        pids = stem.order(order)
        try:
            return _captured(drawn, folder, port, pids)
        finally:
            stem.order({})
            for file in stem.boxes.iterdir():
                file.unlink(missing_ok=True)


def _captured(
    drawn: Drawn, folder: Path, port: int, pids: list[int]
) -> tuple[JobCapture | None, str]:
    def struck() -> bool:
        return all((folder / f"at.{rank}").exists() for rank in drawn.placed.ranks)

    if not wait_at_rest(pids, struck):
        return None, "neither hangs nor ends"
    if len(list(folder.glob("finished.*"))) == len(pids):
        return None, "ends in spite of it"
    gone = [rank for rank, pid in enumerate(pids) if stat_fields(pid)[:1] in ([], ["Z"], ["X"])]
    if gone != (drawn.placed.ranks if drawn.kind == "dead" else []):
        return None, f"gloo ended ranks {gone}"
    capture = LocalLauncher().capture(
        CaptureOptions(job=f"127.0.0.1:{port}", keep_raw=False), lambda _: None
    )
    return capture, ""


def expected(drawn: Drawn) -> Expected:
    """As of a simulated case of which all ranks are seen."""
    placed = drawn.placed
    kinds = [*placed.kinds, "busy", "io_wait", "data_wait"] if drawn.kind in _HOW else placed.kinds
    # Blocked in the second of two swapped calls, a rank has left the first one out: gloo does not
    # let it go on to make it.
    difference = DIFFERENCES.get(drawn.kind, "") if drawn.kind != "swapped" else ""
    return Expected(
        sorted(placed.ranks), kinds, alternatives=placed.alternatives, difference=difference
    )


def run(seeds: Iterable[int], kinds: Iterable[str] = FAULTS) -> Iterator[Result]:
    """Each fault once in each layout, as far as it hangs there."""
    for seed in seeds:
        mesh = draw_mesh(seed, MOST)
        with Stem(mesh.world_size, arguments=()) as stem:
            for kind in kinds:
                result = _run_one(stem, kind, mesh, seed)
                if result is not None:
                    yield result


def _run_one(stem: Stem, kind: str, mesh: Mesh, seed: int) -> Result | None:
    rng = random.Random(f"{kind}/{mesh}/{seed}")
    for _ in range(_DRAWS):
        drawn = draw(kind, mesh, rng)
        if drawn is None:
            return None
        capture, why = run_case(stem, drawn)
        if capture is None:
            say(f"{kind} in {mesh}, {drawn.placed.detail}: {why}; drawn again")
            continue
        result = Result("real", MODE, kind, seed, f"{kind}-{mesh}-s{seed}")
        began = time.perf_counter()
        diagnosis = diagnose(capture)
        result.took_s = time.perf_counter() - began
        judge(result, diagnosis, expected(drawn))
        if not (result.exact and result.kind_right) or result.explained is False:
            said = f"{result.status} {result.named}, expected {result.expected}"
            say(f"MISS {result.place}: {drawn.placed.detail}: {said}: {result.summary[:260]}")
        return result
    return None


def main() -> None:
    """Run them and print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.mesh_real",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--layouts", type=int, default=6, metavar="N")
    parser.add_argument("--first", type=int, default=FIRST, metavar="N", help="the first seed")
    parser.add_argument("--only", default=",".join(FAULTS), metavar="FAULT,...")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.layouts)
    results = list(run(seeds, args.only.split(",")))
    for seed in seeds:
        some = Tally.of(r for r in results if r.seed == seed)
        mesh = draw_mesh(seed, MOST)
        print(f"{mesh} ({mesh.world_size} ranks): {some.cases} jobs, exact {percent(some.exact)}")
    every = Tally.of(results)
    told = [r.explained for r in results if r.explained is not None]
    shares = f"exact {percent(every.exact)}, a victim {percent(every.victim)}"
    print(f"all: {every.cases} jobs, {shares}, kind right {percent(every.kind)}")
    if told:
        print(f"difference right: {percent(sum(told) / len(told))} of {len(told)}")


if __name__ == "__main__":
    main()
