"""Hangs of other people's frameworks, with nothing prepared and under `hangdoctor run`.

    python -m benchmarks.frameworks [--half dev|held] [--only WORD] [--keep FOLDER]

Jobs whose framework is not installed are left out and counted; `make test-frameworks` installs them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from tests.support.framework_jobs import HangJob, capture, jobs, judge

_WORDS = ("exact", "other kind", "part", "innocent", "could not tell", "did not run")


def main() -> None:
    """Run the jobs, print a line for each and the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=("dev", "held"))
    parser.add_argument("--only", default="", help="jobs whose names begin so, with commas")
    parser.add_argument("--keep", type=Path, help="folder for the diagnoses")
    arguments = parser.parse_args()
    chosen = [j for j in jobs() if j.name.startswith(tuple(arguments.only.split(",")))]
    chosen = [j for j in chosen if arguments.half in (None, j.half)]
    for with_run in (False, True):
        counts = Counter(_measured(job, with_run, arguments.keep) for job in chosen)
        shown = ", ".join(f"{word} {counts[word]}" for word in _WORDS if counts[word])
        print(f"== {'hangdoctor run' if with_run else 'unprepared'}: {shown}", flush=True)


def _measured(job: HangJob, with_run: bool, keep: Path | None) -> str:
    missing = job.missing()
    if missing:
        print(f"{job.name}: {missing}")
        return "did not run"
    try:
        said = capture(job, with_run)
    except AssertionError as error:
        print(f"{job.name}: did not run: {error}")
        return "did not run"
    verdict = judge(job, said)
    frame = "" if verdict.frame else " (other frame)"
    print(f"{job.name} {'run' if with_run else 'bare'}: {verdict.word}{frame}: {said['summary']}")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        name = f"{job.name}.{'run' if with_run else 'bare'}.json"
        (keep / name).write_text(json.dumps(said, indent=1))
    return verdict.word


if __name__ == "__main__":
    main()
