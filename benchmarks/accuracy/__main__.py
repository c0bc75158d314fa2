"""python -m benchmarks.accuracy [--quick] [--real] [--simulated] [--logs] [--seeds N]: measure, and write
the sections of docs/ACCURACY.md that were measured. Other tools on the same cases: benchmarks.accuracy.tools.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.progress import say
from hangdoctor.diagnosis import diagnose

from . import document, findings, peers, simulated
from .coordinates import KINDS
from .findings import Findings, made_now
from .score import Result, judge
from .simulate import simulate
from .simulated import Size

ROOT = Path(__file__).parents[2]
PARTS = ("simulated", "real", "logs")


def measure_files(seed: int = 1) -> Size:
    """1,024 ranks' dumps: reading and diagnosing the folder in a process of its own, and torch's
    analyzer on it.
    """
    case = simulate("skipped", simulated.MANY, seed, in_memory=False)
    with tempfile.TemporaryDirectory(prefix="accuracy-") as name:
        folder = Path(name) / "dumps"
        case.write(folder)
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "benchmarks.accuracy.simulated", str(folder)],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        ours = time.perf_counter() - began
        right = judge(
            Result("", "", "", 0, ""),
            diagnose(simulated.capture_of_folder(folder)),
            simulated.expected(case),
        ).exact
        peer = peers.torch_analyzer(folder, timeout_s=600.0)
    name = "torch's analyzer" + (" (gave up)" if peer.status == "timeout" else "")
    known = peer.status != "not measured"
    return Size(
        "skipped, from dump files",
        case.layout.world_size,
        ours,
        peer.took_s if known else 0.0,
        peer=name if known else "",
        right=right,
    )


def run_simulated(quick: bool, seeds: range) -> Findings:
    """The simulated part."""
    found = Findings()
    layouts = simulated.QUICK_LAYOUTS if quick else simulated.LAYOUTS
    say("simulated: the largest case")
    found.sizes.append(simulated.measure_memory(simulated.MANY if quick else simulated.HUGE))
    for silent in (0.0, 0.1):
        say(f"simulated: {silent:.0%} of the ranks silent")
        found.results += simulated.run_memory(layouts, seeds, silent, say)
        found.results += simulated.run_files(layouts, seeds, silent, say)
        found.results += simulated.run_files(layouts, seeds, silent, say, only_active=True)
    found.results += run_meshes(1 if quick else 10 * len(seeds), seeds.start)
    if not quick:
        for silent in (0.0, 0.1):
            found.sizes.append(simulated.measure_memory(simulated.HUGE_MESH, silent=silent))
        say("simulated: 1,024 ranks from files, ours and torch's")
        found.sizes.append(measure_files())
    return found


def run_meshes(number: int, seed: int) -> list[Result]:
    """Random layouts, ten for each seed."""
    first = simulated.MESH_SEEDS + 10 * seed
    say(f"simulated: {number} random layouts")
    results = []
    for silent in (0.0, 0.1):
        results += simulated.run_meshes(range(first, first + number), silent, say)
    return results


def run_real(quick: bool, seeds: range, keep: Path | None) -> Findings:
    """The real part, which needs torch."""
    from .real import run_real as hang

    kinds = ["sleep", "stopped", "skipped", "missing_send", "healthy"] if quick else list(KINDS)
    say(f"real: {len(kinds)} kinds of fault")
    results = hang(kinds, seeds, say, keep=keep)
    if not quick:
        say("real: without the probe")
        results += hang(kinds, seeds[:1], say, probe=False, keep=keep)
    return Findings(results)


def run_logs(quick: bool, seeds: range) -> Findings:
    """The part with logs alone."""
    from . import logs

    kinds = ["exception", "kill", "sleep", "healthy"] if quick else list(logs.FAULTS)
    say(f"logs alone: {len(kinds)} kinds of end")
    return Findings(logs.run_logs(kinds, seeds, say))


def measure(args: argparse.Namespace) -> Findings:
    """The parts that the flags name; all of them where no flag does."""
    seeds = range(args.first, args.first + (1 if args.quick else args.seeds))
    chosen = [part for part in PARTS if getattr(args, part)] or list(PARTS)
    if importlib.util.find_spec("torch") is None:
        say("torch is not installed: only the simulated part is measured")
        chosen = [part for part in chosen if part == "simulated"]
    found = Findings()
    for part in chosen:
        began = time.monotonic()
        if part == "simulated":
            one = run_simulated(args.quick, seeds)
        elif part == "real":
            one = run_real(args.quick, seeds, args.keep)
        else:
            one = run_logs(args.quick, seeds)
        one.made[part] = made_now(seeds, time.monotonic() - began)
        found = findings.join([found, one])
    return found


def replay(folder: Path) -> Findings:
    """The real part from the captures that `--keep` left of an earlier run."""
    from .real import replay as diagnose_anew

    began = time.monotonic()
    results = diagnose_anew(folder)
    seeds = sorted({r.seed for r in results})
    note = "The captures that an earlier run kept were diagnosed anew."
    made = made_now(seeds, time.monotonic() - began, [note])
    return Findings(results, made={"real": made})


def main() -> None:
    """Measure, and write the document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a few kinds and small layouts: minutes instead of half an hour",
    )
    parser.add_argument("--real", action="store_true", help="the real part only")
    parser.add_argument("--simulated", action="store_true", help="the simulated part only")
    parser.add_argument("--logs", action="store_true", help="the part with logs alone only")
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="seeds of each kind (default 3)"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="the first seed (default 0)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the captures and logs of real jobs"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="DIR", help="hang nothing: diagnose anew what --keep left"
    )
    parser.add_argument("--raw", type=Path, metavar="FILE", help="keep the results as JSON too")
    parser.add_argument(
        "--render",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing: write their sections of the document, and leave the others",
    )
    parser.add_argument(
        "--note", metavar="TEXT", help="a sentence for the sections: how it was measured"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "ACCURACY.md")
    args = parser.parse_args()
    if args.render:
        found = findings.join([findings.read(file) for file in args.render])
    else:
        found = replay(args.replay) if args.replay else measure(args)
    for made in found.made.values() if args.note else ():
        made.notes = list(dict.fromkeys([*made.notes, args.note]))
    if args.raw:
        args.raw.write_bytes(msgspec.json.encode(found))
    before = args.output.read_text() if args.output.exists() else ""
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("\n".join(document.lines(found, before)) + "\n")
    say(f"written to {args.output}")


if __name__ == "__main__":
    main()
