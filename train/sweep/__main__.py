"""Run layouts as real jobs of a few iterations, and list them by seconds an iteration.

    python -m hangdoctor.train.sweep FILE.yaml --launcher local|sbatch|pbs --iterations 3

FILE.yaml has the trainer's options (`config: FILE`, `options:`), `gpus` (ranks that there is room
for), `node` (ranks a node), and one of `plan:` with `memory` and `tflops` of a GPU (the planner's
first layouts), `grid:` with a list of values for each option that varies, `jobs:` with a list of
options. Jobs that run out of memory, hang or are refused are rows too; a hang comes with
hangdoctor's verdict. Results are kept in --output: a second call runs what is missing, and with all
there prints the table.
Exit codes: 0 a job was measured, 10 none was, 1 a job could not be started, 2 usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..options import ConfigError
from ..output import write_json, write_lines
from ..plan import count, positive
from ..submit import scripts
from ..submit.schedulers import Pbs, Slurm
from . import rendered
from .candidates import Candidate, Sweep, read_sweep
from .launchers import Launcher, Local, Submitted
from .results import MEASURED, Result, Results
from .running import run
from .watch import Limits, Stopped

NOTHING_MEASURED = 10
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m train.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("file", type=Path, metavar="FILE.yaml", help="what to run")
    made.add_argument(
        "--launcher",
        choices=("local", "sbatch", "pbs"),
        default="local",
        help="local: torchrun on this host (default); sbatch and pbs: a job each",
    )
    made.add_argument(
        "--iterations", type=count, default=3, metavar="N", help="of each job (default 3)"
    )
    made.add_argument(
        "--output", type=Path, metavar="DIR", help="jobs and results (default FILE-sweep)"
    )
    _limits(made)
    made.add_argument(
        "--at-once", type=count, default=1, metavar="N", help="jobs side by side (default 1)"
    )
    made.add_argument("--again", action="store_true", help="run again what was not measured, too")
    made.add_argument("--list", action="store_true", help="list the jobs, start none")
    made.add_argument("--json", metavar="FILE|-", help="write the results as JSON")
    made.add_argument("--markdown", metavar="FILE|-", help="write the table as Markdown")
    return made


def _limits(made: argparse.ArgumentParser) -> None:
    limits = Limits()
    helps = {
        "stall": "without a new iteration before ranks are captured",
        "start": "until the first iteration, and for the end, before they are captured",
        "job": "that a job may run",
    }
    flags = {"stall": "--stall-after", "start": "--start-after", "job": "--limit"}
    for name, says in helps.items():
        usual = getattr(limits, name)
        made.add_argument(
            flags[name],
            dest=name,
            type=positive,
            default=usual,
            metavar="S",
            help=f"seconds {says} (default {usual:g})",
        )


def launcher_of(name: str) -> Launcher:
    """By its name on the command line."""
    if name == "sbatch":
        return Submitted(Slurm(), scripts.slurm, ".sbatch")
    if name == "pbs":
        return Submitted(Pbs(), scripts.pbs, ".pbs")
    return Local()


class Runner:
    """Runs what is missing, some jobs at a time."""

    def __init__(self, sweep: Sweep, options: argparse.Namespace, folder: Path) -> None:
        self.sweep, self.folder = sweep, folder
        self.at_once, self.again = options.at_once, options.again
        self.launcher = launcher_of(options.launcher)
        self.limits = Limits(options.start, options.stall, options.job)
        self.stop = threading.Event()

    def run(self, results: Results) -> None:
        """All that is missing.

        Raises:
            ConfigError: a job could not be started; those that run are ended.
        """
        missing = [c for c in self.sweep.candidates if self._is_missing(c, results)]
        with ThreadPoolExecutor(self.at_once) as pool:
            waiting = [pool.submit(self._one, candidate, results) for candidate in missing]
            try:
                for future in waiting:
                    future.result()
            finally:  # after a failure or Ctrl-C none is left to itself
                self.stop.set()
                pool.shutdown(cancel_futures=True)

    def _is_missing(self, candidate: Candidate, results: Results) -> bool:
        found = results.found.get(candidate.key)
        return found is None or (self.again and found.status != MEASURED)

    def _one(self, candidate: Candidate, results: Results) -> None:
        if not candidate.refused:
            _progress(f"{candidate.name}: started")
        result = run(
            candidate,
            self.sweep,
            self.launcher,
            self.limits,
            folder=self.folder,
            stop=self.stop,
        )
        results.add(result)
        seconds = f", {rendered.number(result.seconds)} s an iteration" if result.seconds else ""
        _progress(f"{candidate.name}: {result.status}{seconds}")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def listed(sweep: Sweep) -> Iterator[str]:
    """The jobs, and why some will not be started."""
    for candidate in sweep.candidates:
        refused = f": refused: {candidate.refused}" if candidate.refused else ""
        own = ", ".join(f"{name} {value}" for name, value in candidate.options.items())
        yield f"{candidate.name}: {own}{refused}"


def show(found: list[Result], sweep: Sweep, options: argparse.Namespace) -> None:
    """The table, and the files that were asked for."""
    if options.json:
        write_json(options.json, rendered.data(found))
    if options.markdown:
        write_lines(options.markdown, rendered.markdown(found, sweep.varied))
    if "-" not in (options.json, options.markdown):
        write_lines("-", rendered.table(found, sweep.varied))


def main(argv: list[str] | None = None) -> int:
    """Run what is missing and print; the exit code says whether anything was measured."""
    made = parser()
    options = made.parse_args(argv)
    if options.json == "-" and options.markdown == "-":
        made.error("--json - and --markdown -: only one of them can be printed")
    if options.iterations < 2:
        made.error("--iterations takes 2 or more: the first one is not counted")
    try:
        sweep = read_sweep(options.file, options.iterations)
    except ConfigError as error:
        made.exit(2, f"error: {error}\n")
    if options.list:
        write_lines("-", listed(sweep))
        return 0
    folder = options.output or options.file.with_name(f"{options.file.stem}-sweep")
    try:
        with Results(folder / "results.jsonl") as results:
            Runner(sweep, options, folder.resolve()).run(results)
            found = [results.found[c.key] for c in sweep.candidates]
            show(found, sweep, options)
    except (ConfigError, OSError) as error:
        _progress(f"error: {error}")
        return 1
    except (KeyboardInterrupt, Stopped):
        _progress(f"stopped: the same command goes on ({folder / 'results.jsonl'})")
        return INTERRUPTED
    return 0 if any(r.status == MEASURED for r in found) else NOTHING_MEASURED


if __name__ == "__main__":
    sys.exit(main())
