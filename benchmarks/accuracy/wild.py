"""python -m benchmarks.accuracy.wild FOLDER: pieces of evidence from elsewhere, against what is
known of them.

FOLDER holds NNN (a file or a folder of evidence) and NNN.json (the truth). One line a piece:

exact     kind, ranks and nodes as the truth has them, or as it says is as good; no rank named where
          nothing shows which it was
partly    some of the culprits, or the right ones with another kind, and no other rank
unknown   no rank named though the evidence shows which it was
innocent  a rank or node is named that is none of them
wrong     a verdict that names no rank, and of another kind or status

With --peers, other analyzers of logs stand beside it (`log_peers.py`), by the ranks alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import HangdoctorError
from hangdoctor.model.diagnosis import Diagnosis

from . import log_peers

ORDER = ("exact", "partly", "unknown", "wrong", "innocent", "refused")


class Judged(msgspec.Struct):
    """One piece."""

    name: str
    category: str
    verdict: str
    said: str
    truth: str
    took_s: float = 0.0
    ranks: str = ""  # by the ranks alone: right, missed, innocent
    kinds: list[str] = []  # that were said; "unknown" for none
    true_kinds: list[str] = []  # that are right, the best first


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


def by_ranks(named: list[int], truth: dict[str, Any]) -> str:
    """The word for some ranks alone, whatever the kind: right, missed, or innocent."""
    right = [set(ranks) for ranks in truth.get("accept", [truth["ranks"]])]
    if set(named) in right:
        return "right"
    return "missed" if set(named) <= set().union(*right) else "innocent"


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
        named: list[int] = []
        kinds = ["unknown"]
        try:
            diagnosis = diagnose(load([evidence]))
            verdict = judge(diagnosis, truth)
            said = f"{diagnosis.status}: {diagnosis.summary}"
            named = sorted({r for c in diagnosis.causes for r in c.ranks})
            kinds = sorted({str(c.kind) for c in diagnosis.causes}) or kinds
        except HangdoctorError as error:
            verdict, said = "refused", str(error).splitlines()[0]
        wanted = f"{'/'.join(kinds_of(truth))} {truth['ranks']} {truth['nodes']}"
        took = time.perf_counter() - began
        found.append(
            Judged(
                file.stem,
                truth["category"],
                verdict,
                said,
                truth=wanted,
                took_s=took,
                ranks=by_ranks(named, truth),
                kinds=kinds,
                true_kinds=kinds_of(truth),
            )
        )
    return found


def by_kind(pieces: list[Judged]) -> Iterator[str]:
    """Lines of a table: of each kind, how often it is right where it is said, and said where it is right."""
    yield "| kind | said | right of these | true | found of these |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for kind in sorted({k for p in pieces for k in (*p.kinds, p.true_kinds[0])}):
        said = [p for p in pieces if kind in p.kinds]
        true = [p for p in pieces if p.true_kinds[0] == kind]
        right = sum(kind in p.true_kinds for p in said)
        found = sum(bool(set(p.kinds) & set(p.true_kinds)) for p in true)
        yield f"| {kind} | {len(said)} | {right} | {len(true)} | {found} |"


def beside(folder: Path, only: str) -> Iterator[str]:
    """Lines of a table: the logs of a folder by the ranks alone, ours and other analyzers'."""
    ours = [p for p in run(folder) if p.category.startswith("log") and only in p.category]
    texts = [log_peers.texts_of(folder / p.name) for p in ours]
    truths = [json.loads((folder / f"{p.name}.json").read_text()) for p in ours]
    theirs = log_peers.verdicts(texts)
    shows = [[] not in t.get("accept", [t["ranks"]]) for t in truths]
    yield f"| analyzer, by the ranks alone | right of {len(ours)} logs | of {sum(shows)} that show a rank | innocent named |"
    yield "| --- | ---: | ---: | ---: |"
    yield _row("hangdoctor", [p.ranks for p in ours], shows)
    for peer in log_peers.PEERS:
        named = [v.of(peer) for v in theirs]
        if any(n is None for n in named):
            yield f"| {peer} | not measured | not measured | - |"
            continue
        words = [by_ranks(n or [], t) for n, t in zip(named, truths, strict=True)]
        yield _row(peer, words, shows)


def _row(name: str, words: list[str], shows: list[bool]) -> str:
    rank = sum(word == "right" for word, shown in zip(words, shows, strict=True) if shown)
    return f"| {name} | {words.count('right')} | {rank} | {words.count('innocent')} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="pieces whose category contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kinds", action="store_true", help="precision and recall by kind")
    parser.add_argument("--peers", action="store_true", help="other analyzers beside it")
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
    for line in by_kind(pieces) if args.kinds else ():
        print(line)
    for line in beside(args.folder, args.only) if args.peers else ():
        print(line)


if __name__ == "__main__":
    main()
