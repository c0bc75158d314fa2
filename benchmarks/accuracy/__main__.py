"""python -m benchmarks.accuracy [--quick] [--real] [--simulated] [--logs] [--peers] [--seeds N]: measure,
and write docs/ACCURACY.md.
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

from . import adapters, cases, peers, report, simulated, tools
from .coordinates import KINDS
from .score import Result, judge
from .simulate import Case, simulate
from .simulated import Size

ROOT = Path(__file__).parents[2]
PEER_LAYOUTS = (simulated.LAYOUTS[0], simulated.LAYOUTS[2])


PEERS = {
    "torch.distributed.flight_recorder": adapters.torch,
    "nvidia-resiliency-ext": adapters.nvrx,
}


def judge_peers(case: Case, folder: Path) -> list[Result]:
    """Both peers on one folder, as results beside ours; scored as any tool is (`tools.py`)."""
    what = "active-only dumps" if case.settings.only_active else "dump files"
    mode = simulated.mode(what, case.settings.silent)
    truth = cases.truth_of_simulated(case, mode)
    results = []
    for name, ask in PEERS.items():
        began = time.perf_counter()
        answer = ask(folder)
        took_s = time.perf_counter() - began
        result = tools.score(tools.Tool(name, ""), answer, truth, took_s)
        result.part, result.mode, result.kind, result.peer = "simulated", mode, name, True
        results.append(result)
    return results


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


def run_simulated(found: report.Findings, quick: bool, seeds: range) -> None:
    """Add the simulated part to `found`."""
    layouts = simulated.QUICK_LAYOUTS if quick else simulated.LAYOUTS
    say("simulated: the largest case")
    found.sizes.append(simulated.measure_memory(simulated.MANY if quick else simulated.HUGE))
    for silent in (0.0, 0.1):
        say(f"simulated: {silent:.0%} of the ranks silent")
        found.results += simulated.run_memory(layouts, seeds, silent, say)
        found.results += simulated.run_files(layouts, seeds, silent, say)
        found.results += simulated.run_files(layouts, seeds, silent, say, only_active=True)
        if not quick:
            found.results += run_peers(seeds[:1], silent)
    run_meshes(found, quick, seeds)
    if not quick:
        say("simulated: 1,024 ranks from files, ours and torch's")
        found.sizes.append(measure_files())


def run_peers(seeds: range, silent: float) -> list[Result]:
    """What the peers say of full and of active-only dumps."""
    results = []
    for only_active in (False, True):
        say(f"the peers, {silent:.0%} of the ranks silent, {only_active=}")
        results += simulated.run_files(
            PEER_LAYOUTS,
            seeds,
            silent,
            lambda _: None,
            peers=judge_peers,
            only_active=only_active,
        )
    return [r for r in results if r.peer]


def run_meshes(found: report.Findings, quick: bool, seeds: range) -> None:
    """Random layouts, ten for each seed."""
    first = simulated.MESH_SEEDS + 10 * seeds.start
    number = 1 if quick else 10 * len(seeds)
    say(f"simulated: {number} random layouts")
    drawn = range(first, first + number)
    for silent in (0.0, 0.1):
        found.results += simulated.run_meshes(drawn, silent, say)
    if not quick:
        found.sizes.append(simulated.measure_memory(simulated.HUGE_MESH))


def run_real(found: report.Findings, quick: bool, seeds: range, keep: Path | None) -> None:
    """Add the real part to `found`; a note in its place where torch is not installed."""
    from .real import run_real as hang

    if importlib.util.find_spec("torch") is None:
        found.notes.append("The real part was not measured: torch is not installed.")
        return
    kinds = ["sleep", "stopped", "skipped", "missing_send", "healthy"] if quick else list(KINDS)
    say(f"real: {len(kinds)} kinds of fault")
    found.results += hang(kinds, seeds, say, keep=keep)
    if not quick:
        say("real: without the probe")
        found.results += hang(kinds, seeds[:1], say, probe=False, keep=keep)


def run_logs(found: report.Findings, quick: bool, seeds: range) -> None:
    from . import logs

    kinds = ["exception", "kill", "sleep", "healthy"] if quick else list(logs.FAULTS)
    say(f"logs alone: {len(kinds)} kinds of end")
    found.results += logs.run_logs(kinds, seeds, say)


def measure(args: argparse.Namespace) -> report.Findings:
    """Both parts, or the one that the flags name."""
    seeds = range(args.first, args.first + (1 if args.quick else args.seeds))
    chosen = {args.real, args.simulated, args.logs}
    alone = args.replay or args.peers
    every = len(chosen) == 1 and not alone  # all of them, or none: then all
    found = report.Findings()
    began = time.monotonic()
    if args.peers:
        for silent in (0.0, 0.1):
            found.results += run_peers(seeds[:1], silent)
    if args.replay:
        from .real import replay

        found.results += replay(args.replay)
        found.notes.append(
            "Of the real jobs, the captures that an earlier run kept were diagnosed anew."
        )
    if every or args.simulated:
        run_simulated(found, args.quick, seeds)
    if every or args.real:
        run_real(found, args.quick, seeds, args.keep)
    if every or args.logs:
        run_logs(found, args.quick, seeds)
    found.took_s = time.monotonic() - began
    return found


def join(files: list[Path]) -> report.Findings:
    """The results of several runs as one."""
    parts = [msgspec.json.decode(f.read_bytes(), type=report.Findings) for f in files]
    return report.Findings(
        [r for p in parts for r in p.results],
        [s for p in parts for s in p.sizes],
        sum(p.took_s for p in parts),
        list(dict.fromkeys(n for p in parts for n in p.notes)),
    )


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
        "--peers", action="store_true", help="other analyzers on the simulated dumps only"
    )
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
        help="measure nothing: write the document from such files",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "ACCURACY.md")
    args = parser.parse_args()
    found = join(args.render) if args.render else measure(args)
    if args.raw:
        args.raw.write_bytes(msgspec.json.encode(found))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("\n".join(report.lines(found)) + "\n")
    say(f"written to {args.output}")


if __name__ == "__main__":
    main()
