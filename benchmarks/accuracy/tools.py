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
torchelastic, nvrx-logs. Without --tool, hangdoctor alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.progress import say
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job

from . import cases, report
from .cases import Truth
from .score import Result, Said, Tally, judge

_ROOT = Path(__file__).parents[2]
_ADAPTER = f"{sys.executable} -m benchmarks.accuracy.adapters"
KNOWN = {
    "hangdoctor": f"{sys.executable} -m hangdoctor diagnose --json - {{folder}}",
    "torch": f"{_ADAPTER} torch {{folder}}",
    "nvrx": f"{_ADAPTER} nvrx {{folder}}",
    "torchelastic": f"{_ADAPTER} torchelastic {{folder}}",
    "nvrx-logs": f"{_ADAPTER} nvrx-logs {{folder}}",
}
NOT_MEASURED = "not measured"  # a status: the tool is not installed here, or reads no such evidence


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

    @classmethod
    def named(cls, text: str) -> Tool:
        """``NAME=COMMAND``, or a known name.

        Raises:
            ValueError: neither.
        """
        name, _, command = text.partition("=")
        command = command or KNOWN.get(name, "")
        if not command or " " in name:
            known = ", ".join(KNOWN)
            raise ValueError(f"{text!r} is no NAME=COMMAND, and none of {known}")
        return cls(name, command)

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
    """The tool's result in each case, and why it has no answer, "" where it has."""
    for evidence, truth in some:
        began = time.perf_counter()
        answer, failed = ask(tool, evidence, truth, timeout_s)
        yield score(tool, answer, truth, time.perf_counter() - began), failed


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Markdown: by evidence and framework, by fault, and how often a stated confidence is right."""
    names = list(dict.fromkeys(r.part for r in results))
    yield "## By evidence and framework"
    yield ""
    head = ["evidence (framework)", "tool", "cases", "exact", "a victim named", "no one named"]
    yield from report.table([*head, "kind right", "seconds, median"], _by_evidence(results, names))
    for name in names:
        said = [s for r in results if r.part == name for s in r.said]
        if said:
            yield f"## How often a confidence is right: {name}"
            yield ""
            yield from reliability(said)


def reliability(said: Sequence[Said]) -> Iterator[str]:
    """Stated confidence against how often it is right, by bands of it."""
    rows = report.by_band(said)
    yield from report.table(["confidence", "causes", "says, mean", "right"], rows)


def _by_evidence(results: Sequence[Result], names: Iterable[str]) -> Iterator[list[str]]:
    for mode in sorted({r.mode for r in results}):
        for name in names:
            some = [r for r in results if r.mode == mode and r.part == name]
            read = [r for r in some if r.status != NOT_MEASURED]
            if not read:
                yield [mode, name, str(len(some)), *[NOT_MEASURED] * 2, "-", "-", "-"]
                continue
            tally = Tally.of(read)
            silent = sum(not any(ranks for _, ranks in r.named) for r in read) / len(read)
            middle = sorted(r.took_s for r in read)[len(read) // 2]
            shares = [report.percent(s) for s in (tally.exact, tally.victim, silent)]
            kind = report.percent(tally.kind) if all(r.kind_said for r in read) else "-"
            yield [mode, name, str(len(read)), *shares, kind, f"{middle:.2f}"]


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
    results = []
    for tool in args.tool or [Tool.named("hangdoctor")]:
        say(f"{tool.name}: {len(some)} cases")
        for result, failed in run(tool, some, args.timeout):
            results.append(result)
            missed = args.misses and not result.exact and result.status != NOT_MEASURED
            if failed or missed:
                why = failed or f"says {result.status} {result.named}, true: {result.expected}"
                say(f"{tool.name}: {result.mode}: {result.place}: {why}")
    if args.raw:
        args.raw.write_bytes(msgspec.json.encode(results))
    print("\n".join(tables(results)))


if __name__ == "__main__":
    main()
