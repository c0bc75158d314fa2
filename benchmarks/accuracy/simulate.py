"""Simulated NCCL jobs of any TP x PP x DP with a fault in them, and the truth about it.

Same seed, same case.

    case = simulate("skipped", Layout(dp=128, pp=16, tp=8), seed=7)
    case.before, case.after     # list[RankOps]: two captures; the same list where nothing moved
    case.write(folder)          # Flight Recorder dumps as NCCL's ranks write them

A fault is put into one rank's program and the programs are run (`sim_engine`); a fault that does
not hang the job, or of which nothing shows, is put somewhere else. `python -m
benchmarks.accuracy.simulate` writes one case to a folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import RankOps

from . import sim_faults
from .sim_dumps import Exporter, Snapshot, write
from .sim_engine import NEVER, Members, Simulation
from .sim_faults import KINDS, Placed
from .sim_layout import Mesh, label
from .sim_program import Programs, Step

__all__ = ["KINDS", "Case", "Settings", "Truth", "simulate"]

MOVING = ("healthy", "slow")
PATIENCE_S = 600.0  # a hung job is captured this long after its last event


@dataclass(frozen=True)
class Settings:
    """What the job and its recorder are like."""

    micro_batches: int = 4
    iterations: int = 3  # simulated ones; the fault is in the last but one
    first_iteration: int = 1000  # those before are only counted
    ring: int = 50  # operations that a rank's recorder keeps
    silent: float = 0.0  # share of ranks without evidence
    timing: bool = False  # TORCH_NCCL_ENABLE_TIMING: the recorder learns of starts
    only_active: bool = False  # `include_only_active`: dumps without completed operations
    run_ahead: tuple[int, int] = (
        8,
        64,
    )  # operations that hosts may be ahead of their devices, from and to


@dataclass(frozen=True)
class Truth:
    """What a diagnosis should say.

    `kinds` are all right names for it, `alternatives` other right sets of ranks.
    """

    kind: str  # the fault as it was put in
    ranks: list[int]
    kinds: list[str]
    alternatives: list[list[int]] = field(default_factory=list)
    visible: bool = True  # dumps hold enough to single the ranks out
    detail: str = ""


@dataclass
class Case:
    kind: str
    seed: int
    layout: Layout | Mesh
    settings: Settings
    truth: Truth = field(init=False)
    missing: list[int] = field(default_factory=list)  # ranks without evidence
    before: list[RankOps] = field(default_factory=list)
    after: list[RankOps] = field(default_factory=list)
    exporter: Exporter = field(init=False, repr=False)
    changed: tuple[int, int, Step] | None = None  # the one call whose signature is wrong

    @property
    def name(self) -> str:
        return f"{self.kind}-{label(self.layout)}-s{self.seed}"

    def write(self, folder: Path, kind: str = "pickle", prefix: str = "") -> list[Path]:
        """Dump files of all ranks that are not silent, `kind` pickle or json."""
        silent = set(self.missing)
        ranks = [r for r in range(self.layout.world_size) if r not in silent]
        return list(
            write(
                self.exporter,
                ranks,
                folder,
                kind,
                prefix=prefix,
                only_active=self.settings.only_active,
            )
        )


def simulate(
    kind: str,
    layout: Layout | Mesh,
    seed: int,
    settings: Settings | None = None,
    in_memory: bool = True,
) -> Case:
    """Simulate one case.

    `in_memory=False` leaves `before` and `after` empty, for those who only write dumps.

    Raises:
        ValueError: the kind is unknown, or this layout has no place for it (no pipeline, no
            replicas ...).
    """
    settings = settings or Settings()
    if kind not in KINDS:
        raise ValueError(f"no fault is called {kind!r}; there are {', '.join(sorted(KINDS))}")
    # A text seed is hashed the same way in every process, unlike hash().
    named = str(layout) if isinstance(layout, Mesh) else f"{layout.dp}x{layout.pp}x{layout.tp}"
    rng = random.Random(f"{kind}/{named}/{seed}")
    members = Members(layout)
    programs = Programs(
        layout, settings.micro_batches, settings.iterations, settings.first_iteration
    )
    for _ in range(40):
        simulation = _job(members, programs, settings, rng)
        strikes = settings.first_iteration + max(0, settings.iterations - 2)
        placed = KINDS[kind](simulation, programs, rng, strikes)
        if placed is None:
            continue
        simulation.run()
        if kind in MOVING or sim_faults.shows(simulation, placed):
            silent = set(
                rng.sample(range(layout.world_size), round(settings.silent * layout.world_size))
            )
            snapshots = _snapshots(kind, simulation, programs, settings)
            case = _case(
                Case(kind, seed, layout, settings), placed, silent | set(placed.gone), snapshots
            )
            return _fill(case, snapshots) if in_memory else case
    raise ValueError(
        f"{kind} does not hang a job of {layout}: give it a pipeline, replicas and tensor parallelism"
    )


def _job(
    members: Members, programs: Programs, settings: Settings, rng: random.Random
) -> Simulation:
    by_rank = [programs.by_stage[stage] for stage in members.stage]
    run_ahead = [rng.randint(*settings.run_ahead) for _ in by_rank]
    return Simulation(members, by_rank, run_ahead)


def _case(
    case: Case, placed: Placed, silent: set[int], snapshots: tuple[Snapshot, Snapshot]
) -> Case:
    """Add the truth and what dumps are written from."""
    kinds = placed.kinds
    if silent & {*placed.ranks, *placed.complete}:
        kinds = [*dict.fromkeys([*kinds, "unreachable", "dead", "not_entered"])]
    case.missing = sorted(silent)
    case.truth = Truth(
        case.kind,
        sorted(placed.ranks),
        kinds,
        _alternatives(placed, silent),
        visible=placed.visible,
        detail=placed.detail,
    )
    case.exporter = Exporter(snapshots[1])
    case.changed = placed.changed
    return case


def _fill(case: Case, snapshots: tuple[Snapshot, Snapshot]) -> Case:
    """Add both captures in memory."""
    first, second = snapshots
    seen = sorted(set(range(case.layout.world_size)) - set(case.missing))
    case.after = [case.exporter.rank_ops(r) for r in seen]
    earlier = Exporter(first)
    case.before = case.after if first.when == second.when else [earlier.rank_ops(r) for r in seen]
    return case


def _snapshots(
    kind: str, s: Simulation, programs: Programs, settings: Settings
) -> tuple[Snapshot, Snapshot]:
    """The two captures: of a moving job at two moments of its run, of a hung one long after its
    last event.
    """
    last = max(max((e for e in ends if e != NEVER), default=0.0) for ends in s.ends)
    moments = (last * 0.45, last * 0.85) if kind in MOVING else (last + PATIENCE_S,) * 2
    one, two = (Snapshot(s, programs, when, settings.ring, settings.timing) for when in moments)
    return one, two


def _alternatives(placed: Placed, silent: set[int]) -> list[list[int]]:
    """With a silent culprit, all silent members of the operation that it blocks are equally
    suspect.
    """
    out = [sorted(a) for a in placed.alternatives]
    for rank, others in placed.holds_up.items():
        suspects = silent & set(others)
        if rank in silent and suspects != {rank}:
            out.append(sorted((set(placed.ranks) - {rank}) | suspects))
    missed = silent & set(placed.complete)
    return [*out, sorted(missed)] if missed else out


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the dumps of one simulated case, and truth.json beside them."
    )
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ring", type=int, default=50)
    parser.add_argument("--silent", type=float, default=0.0)
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--json", action="store_true", help="JSON instead of pickle")
    args = parser.parse_args()
    settings = Settings(ring=args.ring, silent=args.silent, timing=args.timing)
    layout = Layout(dp=args.dp, pp=args.pp, tp=args.tp)
    case = simulate(args.kind, layout, args.seed, settings, in_memory=False)
    files = case.write(args.folder, "json" if args.json else "pickle")
    # Beside the folder: the analyzers read whatever lies in it.
    truth = args.folder.with_name(args.folder.name + ".truth.json")
    truth.write_text(json.dumps(dataclasses.asdict(case.truth), indent=1) + "\n")
    print(
        f"{len(files)} dumps in {args.folder}, truth in {truth}: {case.truth.kind} at {case.truth.ranks}"
    )


if __name__ == "__main__":
    main()
