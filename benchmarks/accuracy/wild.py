"""python -m benchmarks.accuracy.wild FOLDER: pieces of evidence from elsewhere, against what is
known of them.

FOLDER holds NNN (a file or a folder of evidence) and NNN.json (the truth). One line a piece:

exact     kind, ranks and nodes as the truth has them, or as it says is as good; no rank named where
          nothing shows which it was
partly    some of the culprits, or the right ones with another kind, and no other rank
unknown   no rank named though the evidence shows which it was
innocent  a rank or node is named that is none of them
wrong     a verdict that names no rank, and of another kind or status
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import HangdoctorError
from hangdoctor.model.diagnosis import Diagnosis

ORDER = ("exact", "partly", "unknown", "wrong", "innocent", "refused")


class Judged(msgspec.Struct):
    """One piece."""

    name: str
    category: str
    verdict: str
    said: str
    truth: str
    took_s: float = 0.0


def kinds_of(truth: dict[str, Any]) -> list[str]:
    """The kinds that are right."""
    kinds = truth["kind"]
    told = [kinds] if isinstance(kinds, str) else list(kinds)
    return told + list(truth.get("acceptable_kinds", []))


def judge(diagnosis: Diagnosis, truth: dict[str, Any]) -> str:
    """The word for one diagnosis."""
    kinds = kinds_of(truth)
    named = {r for c in diagnosis.causes for r in c.ranks}
    nodes = {n.split(".")[0] for c in diagnosis.causes for n in c.nodes}
    right = [set(ranks) for ranks in truth.get("accept", [truth["ranks"]])]
    good_nodes = {n.split(".")[0] for n in [*truth["nodes"], *truth.get("acceptable_nodes", [])]}
    if not diagnosis.causes:
        return _without_causes(diagnosis, truth, kinds)
    other_nodes = not named and good_nodes and nodes and not nodes & good_nodes
    if not named <= set().union(*right) or other_nodes:
        return "innocent"
    if diagnosis.status == "healthy":
        return "wrong"
    if not all(c.kind in kinds for c in diagnosis.causes):
        return "partly" if named or nodes & good_nodes else "wrong"
    missing_node = not named and truth["nodes"] and not nodes
    return "exact" if named in right and not missing_node else "partly"


def _without_causes(diagnosis: Diagnosis, truth: dict[str, Any], kinds: list[str]) -> str:
    """Nobody named: right where nothing shows who it was."""
    status = truth["status"]
    allowed = [status] if isinstance(status, str) else status
    if diagnosis.status == "healthy" and "healthy" not in allowed:
        return "wrong"
    return "exact" if "unknown" in kinds else "unknown"


def run(folder: Path) -> list[Judged]:
    """All pieces of a folder."""
    found = []
    for file in sorted(folder.glob("*.json")):
        truth = json.loads(file.read_text())
        evidence = file.with_suffix("")
        began = time.perf_counter()
        try:
            diagnosis = diagnose(load([evidence]))
            verdict = judge(diagnosis, truth)
            said = f"{diagnosis.status}: {diagnosis.summary}"
        except HangdoctorError as error:
            verdict, said = "refused", str(error).splitlines()[0]
        wanted = f"{'/'.join(kinds_of(truth))} {truth['ranks']} {truth['nodes']}"
        took = time.perf_counter() - began
        found.append(Judged(file.stem, truth["category"], verdict, said, wanted, took))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="pieces whose category contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--brief", action="store_true", help="counts only, by category")
    args = parser.parse_args()
    pieces = [p for p in run(args.folder) if args.only in p.category]
    if args.json:
        sys.stdout.write(msgspec.json.encode(pieces).decode() + "\n")
        return
    if not args.brief:
        for piece in pieces:
            print(f"{piece.name}  {piece.verdict:<9} {piece.category[:34]:<34} {piece.said[:150]}")
            if piece.verdict != "exact":
                print(f"{'':<16}{'truth':<35}{piece.truth}")
    for title, some in (
        ("all", pieces),
        ("logs", [p for p in pieces if p.category.startswith("log")]),
    ):
        counts = Counter(p.verdict for p in some)
        shown = ", ".join(f"{name} {counts[name]}" for name in ORDER if counts[name])
        print(f"{title}: {len(some)} pieces in {sum(p.took_s for p in some):.1f} s: {shown}")


if __name__ == "__main__":
    main()
