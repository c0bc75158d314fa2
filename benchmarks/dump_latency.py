"""Time from the start of `hangdoctor dump --local` to its verdict, on 8 hung torch ranks, and
py-spy's share of it.

    python -m benchmarks.dump_latency [--rounds 7]

Beside it, in the same rounds: a bare `py-spy dump` of each of the 8 processes, one after the other,
as people did by hand. And the diagnosis of 1,024 synthetic ranks from py-spy text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.progress import say
from hangdoctor.readers.pyspy import find_pyspy
from tests.support.stage import Stage


def timed(command: list[str], cwd: Path) -> tuple[float, str]:
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, done.stdout


def local(rounds: int, folder: Path) -> None:
    tool = [
        sys.executable,
        "-m",
        "hangdoctor",
        "dump",
        "--local",
        "--settle",
        "0",
        "--json",
        "-",
        "--bundle",
        "kept",
        "--job",
    ]
    totals, captures, shares, bare = [], [], [], []
    with Stage(folder / "job") as job:
        job.wait_ready().play("sleep", 3)
        for i in range(rounds + 1):
            say(f"local dump, round {i} of {rounds}" if i else "local dump, to warm up")
            seconds, out = timed([*tool, job.key], job.folder)
            verdict = json.loads(out)
            assert [c["ranks"] for c in verdict["causes"]] == [[3]], verdict["summary"]
            kept = sorted(job.folder.glob("kept*"), key=lambda p: p.stat().st_mtime)[-1]
            node = json.loads((kept / "capture.json").read_text())["nodes"][0]
            by_hand = sum(
                timed([str(find_pyspy()), "dump", "--pid", str(job.pid(r))], job.folder)[0]
                for r in range(8)
            )
            if i:  # the first round warms the file cache
                totals.append(seconds)
                captures.append(verdict["took"]["capture_s"])
                shares.append(node["pyspy_s"])
                bare.append(by_hand)
    print(f"8 local torch ranks, settle 0, {rounds} rounds, seconds: median (least - most)")
    for name, values in (
        ("start to verdict", totals),
        ("  capture", captures),
        ("    /proc and py-spy, two samples", shares),
        ("bare py-spy, one sample, in turn", bare),
    ):
        print(
            f"  {name:<36} {statistics.median(values):6.2f}  ({min(values):.2f} - {max(values):.2f})"
        )


def text(folder: Path) -> None:
    waiting = "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    train_step (train.py:80)\n    <module> (train.py:200)\n"
    loading = (
        "    next_batch (data.py:10)\n    train_step (train.py:70)\n    <module> (train.py:200)\n"
    )
    idle = "".join(
        f'Thread {9_000_000 + i} (idle): "Thread-{i}"\n    wait (threading.py:306)\n    run (threading.py:870)\n'
        for i in range(6)
    )
    for node in range(128):
        processes = [
            f'Process {1000 + i}: python train.py\nPython v3.11.7 (/python)\n\nThread {1000 + i} (idle): "MainThread"\n'
            f"{loading if (node, i) == (77, 3) else waiting}{idle}"
            for i in range(8)
        ]
        (folder / f"trace-n{node}.out").write_text("\n".join(processes))
    times = []
    for i in range(5):
        say(f"1,024 ranks from text, round {i + 1} of 5")
        seconds, out = timed(
            [sys.executable, "-m", "hangdoctor", "diagnose", str(folder), "--json", "-"], folder
        )
        assert json.loads(out)["causes"][0]["ranks"] == [619]
        times.append(seconds)
    print(
        f"1,024 ranks from py-spy text, start to verdict: {statistics.median(times):.2f} s ({min(times):.2f} - {max(times):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        local(args.rounds, Path(folder))
        synthetic = Path(folder) / "text"
        synthetic.mkdir()
        text(synthetic)


if __name__ == "__main__":
    main()
