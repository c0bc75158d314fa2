"""python -m benchmarks.sample_orders [--documents 20000000] [--processes 4]: what the order of a
large data set costs each process that loads it.

Writes an index of that many documents (its tokens are a hole in a file), then lets processes read
100 samples: each with an order of its own in memory, all together with a stored one that is made by
the first, and again with the stored one there. Prints seconds and memory of each process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hangdoctor.train.config import DataConfig
from hangdoctor.train.data import indexed
from hangdoctor.train.data.samples import Samples, build_samples

_SEQ_LENGTH, _READ = 2048, 100


def write_index(prefix: Path, documents: int) -> None:
    """A data set of documents of 100 to 1,500 tokens: whole index, no tokens."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(100, 1500, documents).astype("<i4")
    offsets = np.zeros(documents, dtype="<i8")
    np.cumsum(lengths[:-1].astype("<i8") * 2, out=offsets[1:])
    with Path(f"{prefix}.idx").open("wb") as file:
        file.write(indexed.MAGIC + np.array([1], "<u8").tobytes() + bytes([8]))
        file.write(np.array([documents, documents + 1], "<u8").tobytes())
        for array in (lengths, offsets, np.arange(documents + 1, dtype="<i8")):
            file.write(array.tobytes())
    with Path(f"{prefix}.bin").open("wb") as file:
        file.truncate(int(offsets[-1]) + 2 * int(lengths[-1]))


def read(prefix: str, stored: bool) -> str:
    """Read samples in this process; what that took."""
    if not stored:
        Samples._STORED_FROM = sys.maxsize
    start, used = time.perf_counter(), time.process_time()
    samples = build_samples(DataConfig(path=prefix, split="1,0,0"), 0, _SEQ_LENGTH, 1)
    for i in range(_READ):
        samples[i * 1009]
    seconds, used = time.perf_counter() - start, time.process_time() - used
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kilobytes = {name: int(status[name].split()[0]) for name in ("RssAnon", "VmHWM")}
    return (
        f"{seconds:.2f} s, {used:.2f} s of processor time, own memory {kilobytes['RssAnon'] / 1e3:.0f} MB, "
        f"peak with shared pages {kilobytes['VmHWM'] / 1e3:.0f} MB"
    )


def measure(prefix: Path, processes: int, stored: bool) -> list[str]:
    """What each of the processes says that start together."""
    command = [sys.executable, "-m", "benchmarks.sample_orders", "--read", str(prefix)]
    command += ["--stored"] if stored else []
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return [p.communicate(timeout=600)[0].strip() for p in started]


def main() -> int:
    """Print all rows; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=20_000_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    parser.add_argument("--stored", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(read(options.read, options.stored))
        return 0
    with tempfile.TemporaryDirectory(prefix="hd-orders-") as folder:
        prefix = Path(folder) / "d"
        write_index(prefix, options.documents)
        for name, count, stored in (
            ("in memory, one process", 1, False),
            ("stored, made by the first of them", options.processes, True),
            ("stored, there already", options.processes, True),
        ):
            for row in measure(prefix, count, stored):
                print(f"{name}: {row}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
