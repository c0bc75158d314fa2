"""Cases as folders, for any tool: evidence of a hang, and beside it what is true of it.

    python -m benchmarks.accuracy.cases FOLDER [--simulated] [--logs] [--real] [--frameworks]
                                               [--seeds N] [--first N] [--only FAULT,...]

writes FOLDER/NAME/evidence/ (all that a tool is given) and FOLDER/NAME/truth.json. Without a part
named, the simulated one. What each kind of evidence is:

dump files           Flight Recorder dumps of a simulated NCCL job, one pickle a rank; also
                     "active-only dumps", and both with a tenth of the ranks silent
any layout: ...      the same, in layouts drawn at random
logs alone           what a real job under torchrun printed
dumps of gloo        Flight Recorder dumps of a real job of eight gloo ranks
stacks, black box    a bundle of `hangdoctor dump` without its verdict (docs/bundle.md): the stacks
                     that py-spy read below raw/, a process and sample each; operations in
                     operations.bin
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.progress import say
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Diagnosis, Job
from hangdoctor.model.layout import Layout
from hangdoctor.storage import bundle

from . import simulated
from .score import Expected
from .simulate import Case

SCHEMA = "hangdoctor.case/1"
NO_SEED = -1  # of a case that is not drawn
SILENT = 0.1  # share of ranks without evidence, where it says so


class Truth(Struct):
    """truth.json. `ranks` are the culprits, `alternatives` other sets that are as right by this
    evidence, `wider` ranks that it cannot clear, `between` those of which any set that holds the
    culprits is right; see `score.Expected`.
    """

    evidence: str
    framework: str
    fault: str
    world_size: int
    ranks: list[int]
    kinds: list[str]  # right names for it, in hangdoctor's words; another tool may give none
    hang: bool = True
    status: str = ""
    alternatives: list[list[int]] = []
    wider: list[int] = []
    innocent_if_slow: list[int] = []
    undecidable: bool = False
    between: list[int] = []
    nothing_shown: bool = False
    seed: int = 0
    place: str = ""
    schema: str = SCHEMA

    def expected(self) -> Expected:
        """As the score wants it."""
        return Expected(
            self.ranks,
            self.kinds,
            hang=self.hang,
            alternatives=self.alternatives,
            wider=self.wider,
            innocent_if_slow=self.innocent_if_slow,
            status=self.status,
            undecidable=self.undecidable,
            between=self.between,
            nothing_shown=self.nothing_shown,
        )


def truth_of(expected: Expected, **known: object) -> Truth:
    """The truth about one case; `known` are the fields that the score does not need."""
    return Truth(
        ranks=expected.ranks,
        kinds=expected.kinds,
        hang=expected.hang,
        status=expected.status,
        alternatives=expected.alternatives,
        wider=expected.wider,
        innocent_if_slow=expected.innocent_if_slow,
        undecidable=expected.undecidable,
        between=expected.between,
        nothing_shown=expected.nothing_shown,
        **known,  # type: ignore[arg-type]
    )


def truth_of_simulated(made: Case, evidence: str) -> Truth:
    """The truth about a simulated case as this evidence shows it."""
    return truth_of(
        simulated.expected(made),
        evidence=evidence,
        framework="simulated, NCCL",
        fault=made.kind,
        world_size=made.layout.world_size,
        seed=made.seed,
        place=made.name,
    )


@contextlib.contextmanager
def case(folder: Path, name: str) -> Iterator[Path]:
    """The folder for the evidence of a case; of one that fails nothing stays."""
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    evidence = place / "evidence"
    evidence.mkdir(parents=True)
    try:
        yield evidence
    except BaseException:
        shutil.rmtree(place)
        raise


def finish(evidence: Path, truth: Truth) -> None:
    """Write the truth beside the evidence: with it the case is whole."""
    place = evidence.parent / "truth.json"
    place.write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1) + b"\n")


def read(folder: Path) -> list[tuple[Path, Truth]]:
    """All whole cases of a folder: evidence and truth.

    Raises:
        msgspec.DecodeError: a truth.json is none.
    """
    files = sorted(folder.glob("*/truth.json"))
    return [(f.parent / "evidence", msgspec.json.decode(f.read_bytes(), type=Truth)) for f in files]


def write_simulated(
    folder: Path,
    seeds: Sequence[int],
    only: Sequence[str],
    layouts: Sequence[Layout] = simulated.LAYOUTS[:3],
) -> None:
    """Dumps of all faults: in Megatron's order of ranks, and in layouts drawn at random."""
    for active in (False, True):
        for silent in (0.0, SILENT):
            mode = simulated.mode("active-only dumps" if active else "dump files", silent)
            cases = simulated.cases(layouts, seeds, silent, only_active=active)
            _write_simulated(folder, cases, mode, only)
    for mesh, seed in simulated.meshes(s + simulated.MESH_SEEDS for s in seeds):
        cases = simulated.cases([mesh], [seed], 0.0)
        _write_simulated(folder, cases, "any layout: dump files", only)


def _write_simulated(folder: Path, cases: Iterable[Case], mode: str, only: Sequence[str]) -> None:
    for made in cases:
        if made.kind in simulated.NEEDS_TWO or (only and made.kind not in only):
            continue
        name = f"{mode}-{made.name}".replace(" ", "_").replace(":", "").replace(",", "")
        with case(folder, name.replace("%", "")) as evidence:
            made.write(evidence)
            finish(evidence, truth_of_simulated(made, mode))


def _chosen(faults: Iterable[str], only: Sequence[str]) -> list[str]:
    return [fault for fault in faults if not only or fault in only]


def write_logs(folder: Path, seeds: Sequence[int], only: Sequence[str]) -> None:
    """What real jobs under torchrun print."""
    from . import logs

    for fault in _chosen(logs.FAULTS, only):
        for seed in seeds:
            with case(folder, f"logs-{fault}-s{seed}") as evidence:
                rank, launch = logs.drawn(fault, seed)
                logs.run_job(fault, rank, launch, evidence)
                truth = truth_of(
                    logs.expected(fault, rank),
                    evidence=logs.MODE,
                    framework="torchrun, gloo",
                    fault=fault,
                    world_size=logs.WORLD,
                    seed=seed,
                    place=f"rank {rank}, {launch}",
                )
                finish(evidence, truth)


def write_real(folder: Path, seeds: Sequence[int], only: Sequence[str]) -> None:
    """Real jobs of eight gloo ranks, each hung once and kept in three forms."""
    from .coordinates import KINDS, draw
    from .real import NoHang, Stem

    with Stem() as stem:
        for fault in _chosen(KINDS, only):
            for seed in seeds:
                for attempt in range(6):
                    try:
                        _write_real(folder, stem, draw(fault, seed + 1000 * attempt), seed)
                    except (NoHang, TimeoutError) as error:
                        say(f"{fault}: {type(error).__name__} {error}; drawn again")
                        continue
                    break


def _write_real(folder: Path, stem: object, drawn: object, seed: int) -> None:
    from .coordinates import WORLD
    from .coordinates import Case as Drawn
    from .real import Stem, without_operations

    assert isinstance(stem, Stem) and isinstance(drawn, Drawn)
    running = stem.start(drawn, probe=True)
    try:
        running.wait_hung()
        full = running.capture(raw=True)
        dumps = {rank: answer.raw for rank, answer in running.answers().items()}
    finally:
        stem.end_job(running)
    modes = {"stacks only": "stacks", "black box": "black box", "dumps only": "dumps of gloo"}
    for mode, evidence_is in modes.items():
        if mode == "dumps only" and not _dumps_decide(drawn.kind, dumps):
            continue
        with case(folder, f"{mode.split()[0]}-{drawn.kind}-s{seed}") as evidence:
            if mode == "dumps only":
                _write_dumps(evidence, dumps)
            else:
                capture = full if mode == "black box" else without_operations(full)
                without_verdict(evidence, capture)
            truth = truth_of(
                drawn.expected(mode),
                evidence=evidence_is,
                framework="1F1B pipeline, gloo",
                fault=drawn.kind,
                world_size=WORLD,
                seed=seed,
                place=drawn.place,
            )
            finish(evidence, truth)


def _dumps_decide(fault: str, dumps: dict[int, dict[str, bytes]]) -> bool:
    """Whether there is something in them, and one moment is enough to know that the job hangs."""
    return any(dumps.values()) and fault not in ("slow_rank", "healthy")


def _write_dumps(evidence: Path, dumps: dict[int, dict[str, bytes]]) -> None:
    """As torch gives them: of gloo's recorder and NCCL's, the one that holds something."""
    for rank, raw in dumps.items():
        if raw:
            (evidence / f"gloo_trace_rank_{rank}").write_bytes(max(raw.values(), key=len))


def with_raw(capture: JobCapture, saved: Path) -> JobCapture:
    """The capture with what py-spy printed, which the bundle has in files of its own."""
    nodes = []
    for node in capture.nodes:
        files = sorted((saved / "raw" / node.node).glob("*"))
        nodes.append(replace(node, raw={file.name: file.read_text() for file in files}))
    return replace(capture, nodes=nodes)


def without_verdict(evidence: Path, capture: JobCapture) -> None:
    """A capture as a bundle that gives no answer away."""
    empty = Diagnosis("unknown", Job(capture.job, capture.world_size, []), "", [])
    evidence.rmdir()
    bundle.save(evidence, capture, empty, "", [])


def write_frameworks(folder: Path, seeds: Sequence[int], only: Sequence[str]) -> None:
    """Hangs of other people's frameworks, as far as they are installed."""
    del seeds  # each job is one program
    from hangdoctor.cli.diagnose import load
    from tests.support import framework_jobs

    for job in framework_jobs.jobs():
        missing = job.missing()
        if missing or (only and job.name not in only):
            say(f"{job.name}: {missing}" if missing else f"{job.name}: not chosen")
            continue
        for with_run in (False, True):
            evidence_is = "black box" if with_run else "stacks"
            with (
                case(folder, f"frameworks-{job.name}-{evidence_is.split()[0]}") as evidence,
                tempfile.TemporaryDirectory(prefix="case-") as scratch,
            ):
                saved = Path(scratch) / "bundle"
                framework_jobs.capture(job, with_run, saved)
                without_verdict(evidence, with_raw(load([saved]), saved))
                expected = Expected(list(job.culprits), list(job.kinds))
                truth = truth_of(
                    expected,
                    evidence=evidence_is,
                    framework=job.framework,
                    fault=job.name,
                    world_size=4,
                    seed=NO_SEED,
                )
                finish(evidence, truth)


PARTS = {
    "simulated": write_simulated,
    "logs": write_logs,
    "real": write_real,
    "frameworks": write_frameworks,
}


def main() -> None:
    """Write the cases."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument(
        "--only", default="", metavar="FAULT,...", help="of each part, these faults"
    )
    args = parser.parse_args()
    chosen = [part for part in PARTS if getattr(args, part)] or ["simulated"]
    only = [word for word in args.only.split(",") if word]
    for part in chosen:
        PARTS[part](args.folder, range(args.first, args.first + args.seeds), only)
    sys.stdout.write(f"{len(read(args.folder))} cases in {args.folder}\n")


if __name__ == "__main__":
    main()
