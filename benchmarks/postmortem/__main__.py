"""python -m benchmarks.postmortem [--only TEXT] [--keep DIR]: jobs that are over, by what they left.

Each case of `cases.py` is a real gloo job that fails or is ended; `hangdoctor diagnose` reads the
folders of its black boxes and nothing else. One line a case:

exact     the ranks and a kind that are right; no rank named where none is to blame
kind      the right ranks, by another kind
unknown   no rank named though one is to blame
innocent  a rank is named that merely ended with the others
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.progress import say
from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import HangdoctorError
from hangdoctor.model.diagnosis import Diagnosis

from .cases import CASES, Case
from .leave import leave


def judge(found: Diagnosis | None, case: Case) -> str:
    """The word for one verdict; None is one on nothing, where no box was left."""
    causes = found.causes if found is not None else []
    named = frozenset(r for c in causes for r in c.ranks)
    allowed = frozenset().union(*case.ranks) | case.wider
    if not named <= allowed:
        return "innocent"
    if named not in case.ranks:
        return "unknown"
    return "exact" if all(c.kind in case.kinds for c in causes) else "kind"


def verdict_on(folders: list[Path]) -> Diagnosis | None:
    """Of the first folder: those of the same job beside it are found from it."""
    try:
        return diagnose(load(folders[:1])) if folders else None
    except HangdoctorError as error:
        say(f"  refused: {error}")
        return None


def run(cases: list[Case], keep: Path | None) -> Counter[str]:
    """Run and judge; prints a line each."""
    counts: Counter[str] = Counter()
    for number, case in enumerate(cases):
        folder = Path(tempfile.mkdtemp(prefix="postmortem-"))
        try:
            folders = leave(case, folder)
            found = verdict_on(folders)
            word = judge(found, case)
            if keep is not None:
                skip = shutil.ignore_patterns("fifo", "*.sock")
                shutil.copytree(folder, keep / f"{number:02d}", ignore=skip)
        except RuntimeError as error:
            found, word = None, f"not run: {error}"
        finally:
            shutil.rmtree(folder)
        counts[word] += 1
        print(f"{number:02d} {word:9}{case.name}: {_said(found)}", flush=True)
    return counts


def _said(found: Diagnosis | None) -> str:
    if found is None:
        return "nothing was left"
    named = ", ".join(f"{c.kind} {c.ranks}" for c in found.causes)
    return f"[{found.status}: {named or '-'}] {found.summary}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postmortem", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what each job left")
    args = parser.parse_args()
    counts = run([c for c in CASES if args.only in c.name], args.keep)
    total = counts.total()
    print(", ".join(f"{n} {word}" for word, n in counts.most_common()), f"of {total}")
    sys.exit(0 if counts["exact"] >= 0.95 * total else 1)


if __name__ == "__main__":
    main()
