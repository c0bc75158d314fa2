"""Other analyzers of Flight Recorder dumps, run on the same folders, and which ranks each of them
names.

Neither prints a verdict for a machine, so that what it names is taken from its output by a rule:

torch   `torch.distributed.flight_recorder.fr_trace` with --allow-incomplete-ranks (without it, it
        refuses a folder with one dump missing). It reports collective after collective. A report's
        ranks are its "missing ranks: {...}", else every "Culprit rank N"; where no report names a
        rank, the ranks whose dumps it says it missed. Readings: the first report, the ranks named
        most often, all ranks named.
nvrx    nvidia-resiliency-ext's `fr_attribution` (CollectiveAnalyzer) without a language model.
        Readings: the "Missing Ranks" of the first row of its table, the same rows' union, which is
        its own `hanging ranks`.

A peer is right if ANY of its readings is right, the kind of fault aside: a person who knew which to
take would have been (`tools.score`, by way of `adapters.py`). A peer that fails or runs out of time
names no one. nvidia-resiliency-ext is never installed here; `--install-nvrx FOLDER` unpacks
it, without what it depends on, for this benchmark only.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hangdoctor.text.ranges import number_in

NVRX = "nvidia-resiliency-ext==0.7.0"  # its first release with the log stage
NVRX_FOLDER = "HANGDOCTOR_NVRX"  # environment variable: where it was unpacked
_MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"


@dataclass
class PeerResult:
    """What one analyzer said about one folder."""

    peer: str
    status: str  # ok, failed, timeout, not measured
    readings: list[list[int]] = field(default_factory=list)
    took_s: float = 0.0
    detail: str = ""


def torch_analyzer(folder: Path, timeout_s: float = 120.0) -> PeerResult:
    """torch's own analyzer; needs pickled dumps."""
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
    command += ["--prefix", _prefix(folder), "--allow-incomplete-ranks"]
    result, output = _run("torch", command, timeout_s, {})
    if result.status == "failed" and "No module named 'torch" in output:
        return PeerResult("torch", "not measured", detail="torch is not installed")
    result.readings = read_torch(output)
    return result


def nvrx_analyzer(folder: Path, timeout_s: float = 120.0, where: Path | None = None) -> PeerResult:
    """NVIDIA's analyzer, from the folder `where` or the one that HANGDOCTOR_NVRX names."""
    where = where or Path(os.environ.get(NVRX_FOLDER, "/nonexistent"))
    if not (where / "nvidia_resiliency_ext").is_dir():
        return PeerResult(
            "nvrx", "not measured", detail=f"not installed: see --install-nvrx and {NVRX_FOLDER}"
        )
    command = [
        sys.executable,
        "-m",
        _MODULE,
        "--fr-path",
        str(folder),
        "-p",
        _prefix(folder) + "*",
        "--emit-stdout",
    ]
    # Its result is what it prints to stdout; stderr is its log.
    result, output = _run("nvrx", command, timeout_s, {"PYTHONPATH": str(where)}, stderr=False)
    result.readings = read_nvrx(output)
    return result


def _prefix(folder: Path) -> str:
    """What the dumps' names have before the rank."""
    names = Counter(re.sub(r"\d+(\.\w+)?$", "", p.name) for p in folder.iterdir())
    return names.most_common(1)[0][0] if names else ""


def _run(
    peer: str, command: list[str], timeout_s: float, environ: dict[str, str], stderr: bool = True
) -> tuple[PeerResult, str]:
    began = time.monotonic()
    # To files: a pipe that no one reads would stop a talkative analyzer.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=out if stderr else err, env={**os.environ, **environ}
        )
        try:
            code = process.wait(timeout_s)
            status = "ok" if code == 0 else "failed"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = "timeout"
        took = time.monotonic() - began
        out.seek(0)
        err.seek(0)
        output = out.read().decode(errors="replace")
        last = (output if stderr else err.read().decode(errors="replace")).strip().splitlines()[-1:]
    return PeerResult(
        peer, status, took_s=took, detail=last[0][:200] if last and status == "failed" else ""
    ), output


_REPORT = re.compile(
    r"^(?:Not all ranks joining|Collective sequence number|Input/output mismatch)", re.MULTILINE
)


def read_torch(output: str) -> list[list[int]]:
    """Readings of fr_trace's output by the rule above; none where it names no rank."""
    reports: list[tuple[int, ...]] = []
    for text in _REPORT.split(output)[1:]:
        missing = re.search(r"^missing ranks: \{([\d, ]+)\}", text, re.MULTILINE)
        named = (
            re.findall(r"\d+", missing[1]) if missing else re.findall(r"Culprit rank (\d+)", text)
        )
        if named:
            reports.append(tuple(sorted({int(r) for r in named})))
    if not reports:
        undecided = re.findall(r"missed FR dumps from ranks \(\{([\d, ]+)\}\)", output)
        reports = [tuple(sorted({int(r) for r in re.findall(r"\d+", u)})) for u in undecided]
    if not reports:
        return []
    often = Counter(r for report in reports for r in report)
    most = [r for r, n in often.items() if n == max(often.values())]
    return [list(reports[0]), sorted(most), sorted(often)]


def read_nvrx(output: str) -> list[list[int]]:
    """Readings of fr_attribution's table by the rule above; none where it has no rows."""
    rows: list[list[int]] = []
    for line in output.splitlines():
        columns = [c.strip() for c in line.split("|")]
        if len(columns) >= 6 and number_in(columns[0].lstrip("-")) >= 0:
            rows.append(sorted(int(r) for r in columns[-1].split(",") if number_in(r.strip()) >= 0))
    rows = [r for r in rows if r]
    return [rows[0], sorted({r for row in rows for r in row})] if rows else []


def install_nvrx(target: Path) -> None:
    """Unpack the analyzer into a folder of its own.

    Its wheels ask for a newer C library, and for a newer Python, than the part used here needs.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--target",
    ]
    command += [
        str(target),
        "--platform",
        "manylinux_2_39_x86_64",
        "--python-version",
        "312",
        NVRX,
    ]
    subprocess.run(command, check=True, timeout=300)


def main() -> None:
    """Run the peers on one folder, and print what each names."""
    parser = argparse.ArgumentParser(
        description="Run the peers on a folder of dumps, or unpack NVIDIA's."
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--install-nvrx", type=Path, metavar="FOLDER")
    parser.add_argument("--timeout", type=float, default=120.0)
    args = parser.parse_args()
    if args.install_nvrx:
        install_nvrx(args.install_nvrx)
        print(f"export {NVRX_FOLDER}={args.install_nvrx}")
    if args.folder:
        for result in (
            torch_analyzer(args.folder, args.timeout),
            nvrx_analyzer(args.folder, args.timeout),
        ):
            print(
                f"{result.peer}: {result.status} in {result.took_s:.1f} s, names {result.readings} {result.detail}"
            )


if __name__ == "__main__":
    main()
