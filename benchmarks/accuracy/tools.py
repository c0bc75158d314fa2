"""How often a tool names the culprits: any tool, on cases as folders.

    python -m benchmarks.accuracy.tools FOLDER [--tool 'NAME=COMMAND {folder}']... [--raw FILE]

FOLDER is what `benchmarks.accuracy.cases` writes; own cases of the same form may lie in it. The
command is started once a case, without a shell; {folder} is its evidence, {world_size} the job's
size. It prints one JSON object on standard output:

    {"status": "hang", "causes": [{"ranks": [3], "kind": "not_entered", "confidence": 0.9}]}

Everything but the ranks may be left out, and is then not asked for. A tool whose output leaves open
which ranks it means gives {"readings": [[3], [3, 4]]}: it is right if one of them is. `hangdoctor
diagnose --json -` prints this form; `benchmarks.accuracy.adapters` turns the output of others into
it, and is the example to write one by. Names without a command: hangdoctor, torch, nvrx,
torchelastic, nvrx-logs, majority; they are asked for evidence that they read. Without --tool,
hangdoctor alone.

`--raw FILE`, then `python -m benchmarks.accuracy --render FILE`, puts the tables into docs/ACCURACY.md.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.progress import say
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job

from . import cases, findings
from .cases import Truth
from .findings import Findings
from .known_tools import KNOWN, NOT_MEASURED
from .score import Result, judge
from .tool_tables import tables

_ROOT = Path(__file__).parents[2]


class SaidCause(Struct):
    """One cause of a tool's answer."""

    ranks: list[int]
    kind: str = ""
    confidence: float | None = None


class Answer(Struct):
    """What a tool prints; `status` hang, slow, failed, healthy, unknown, or not measured."""

    status: str = ""
    causes: list[SaidCause] = []
    readings: list[list[int]] = []


class Tool(Struct, frozen=True):
    """A tool by its command."""

    name: str
    command: str
    reads: tuple[str, ...] = ("",)

    @classmethod
    def named(cls, text: str) -> Tool:
        """``NAME=COMMAND``, or a known name.

        Raises:
            ValueError: neither.
        """
        if text in KNOWN:
            return cls(text, KNOWN[text].command, KNOWN[text].reads)
        name, _, command = text.partition("=")
        if not command or " " in name:
            known = ", ".join(KNOWN)
            raise ValueError(f"{text!r} is no NAME=COMMAND, and none of {known}")
        return cls(name, command)

    def can_read(self, truth: Truth) -> bool:
        """Whether it reads this kind of evidence at all."""
        return any(word in truth.evidence for word in self.reads)

    def words(self, evidence: Path, truth: Truth) -> list[str]:
        """The command for one case."""
        known = {"{folder}": str(evidence), "{world_size}": str(truth.world_size)}
        words = shlex.split(self.command)
        for pattern, value in known.items():
            words = [word.replace(pattern, value) for word in words]
        return words


def ask(tool: Tool, evidence: Path, truth: Truth, timeout_s: float) -> tuple[Answer, str]:
    """The tool's answer to one case, and why it has none, "" where it has."""
    environ = os.environ | {"PYTHONPATH": f"{_ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        done = subprocess.run(
            tool.words(evidence, truth),
            capture_output=True,
            timeout=timeout_s,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Answer(), f"no answer after {timeout_s:.0f} s"
    except OSError as error:
        return Answer(), f"{error}"
    try:
        return msgspec.json.decode(done.stdout, type=Answer), ""
    except msgspec.DecodeError as error:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Answer(), f"exit code {done.returncode}: {error}; {''.join(last)[:200]}"


def score(tool: Tool, answer: Answer, truth: Truth, took_s: float = 0.0) -> Result:
    """One answer against the truth."""
    if answer.status == NOT_MEASURED:
        return _result(tool, truth, NOT_MEASURED)
    if not answer.readings:
        return _judged(tool, answer, truth, took_s)
    read = [
        _judged(tool, Answer(answer.status, [SaidCause(ranks)]), truth, took_s)
        for ranks in answer.readings
    ]
    best = next((r for r in read if r.exact), None)
    # Its most careful reading counts where none is right: it names the fewest that merely wait.
    return best or min(read, key=lambda r: sum(len(ranks) for _, ranks in r.named))


def _judged(tool: Tool, answer: Answer, truth: Truth, took_s: float) -> Result:
    """By `score.judge`; what the tool left out is taken to be right."""
    status = answer.status or _right_status(answer, truth)
    kind = truth.kinds[0] if truth.kinds else ""
    causes = [
        Cause(c.kind or kind, sorted(c.ranks), [], c.confidence or 0.0, "")  # type: ignore[arg-type]
        for c in answer.causes
    ]
    diagnosis = Diagnosis(status, Job("", truth.world_size, []), "", causes)  # type: ignore[arg-type]
    result = judge(_result(tool, truth, status), diagnosis, truth.expected())
    given = [c.confidence is not None for c in answer.causes]
    result.said = [s for s, known in zip(result.said, given, strict=True) if known]
    result.kind_said = all(c.kind for c in answer.causes)
    result.took_s = took_s
    return result


def _right_status(answer: Answer, truth: Truth) -> str:
    """Of a tool that gives none: what naming ranks, or naming none, comes to."""
    named = any(c.ranks for c in answer.causes)
    if truth.hang:
        return truth.status or "hang"
    return "hang" if named else truth.status


def _result(tool: Tool, truth: Truth, status: str) -> Result:
    mode = f"{truth.evidence} ({truth.framework})"
    place = truth.place or truth.fault
    return Result(tool.name, mode, truth.fault, truth.seed, place, status)


def run(
    tool: Tool, some: Sequence[tuple[Path, Truth]], timeout_s: float
) -> Iterator[tuple[Result, str]]:
    """The tool's result in each case that it can read, and why it has no answer, "" where it has."""
    for evidence, truth in some:
        if not tool.can_read(truth):
            continue
        began = time.perf_counter()
        answer, failed = ask(tool, evidence, truth, timeout_s)
        yield score(tool, answer, truth, time.perf_counter() - began), failed


def main() -> None:
    """Run the tools and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.tools",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tool", action="append", type=Tool.named, metavar="NAME=COMMAND")
    parser.add_argument("--evidence", default="", help="only cases whose evidence begins so")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="a case")
    parser.add_argument("--misses", action="store_true", help="print each case that is not exact")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="keep the results as JSON too")
    args = parser.parse_args()
    some = [c for c in cases.read(args.folder) if c[1].evidence.startswith(args.evidence)]
    if not some:
        parser.error(f"no case in {args.folder}: python -m benchmarks.accuracy.cases writes some")
    results: list[Result] = []
    began = time.monotonic()
    try:
        for tool in args.tool or [Tool.named("hangdoctor")]:
            say(f"{tool.name}: {len(some)} cases")
            for result, failed in run(tool, some, args.timeout):
                results.append(result)
                missed = args.misses and not result.exact and result.status != NOT_MEASURED
                if failed or missed:
                    why = failed or f"says {result.status} {result.named}, true: {result.expected}"
                    say(f"{tool.name}: {result.mode}: {result.place}: {why}")
    finally:  # also what a run that is interrupted has measured
        if args.raw:
            seeds = sorted({truth.seed for _, truth in some} - {cases.NO_SEED})
            made = findings.made_now(seeds, time.monotonic() - began)
            found = Findings(tools=results, made={"tools": made})
            args.raw.write_bytes(msgspec.json.encode(found))
    print("\n".join(tables(results)))


if __name__ == "__main__":
    main()
