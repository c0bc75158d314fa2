"""What an agent costs while nothing happens: `python -m benchmarks.agent_idle [--ranks 8]
[--seconds 60] [--steady]`.

The ranks are processes that carry a real black box and sleep; with --steady each records an
operation every 0.2 s. No torch. Processor time is that of the agent process itself, after its first
ten seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.box_records import Record
from benchmarks.progress import say


def make_boxes(folder: Path, pids: list[int]) -> None:
    """A box for each process, as its probe would have made it."""
    import struct

    from hangdoctor.probe import format as fmt
    from hangdoctor.probe.identity import boot_id, start_ticks

    for rank, pid in enumerate(pids):
        data = bytearray(fmt.DEFAULT_BYTES)

        def put(place: tuple[int, str], *values: object, data: bytearray = data) -> None:
            struct.pack_into(place[1], data, place[0], *values)

        ring = (1_079_296, 16_384, fmt.RECORD_BYTES)
        for place, value in (
            (fmt.H_MAGIC, fmt.MAGIC),
            (fmt.H_VERSION, fmt.VERSION),
            (fmt.H_FILE_BYTES, len(data)),
            (fmt.H_PID, pid),
            (fmt.H_RANK, rank),
            (fmt.H_WORLD, len(pids)),
            (fmt.H_STARTED_TICKS, start_ticks(pid)),
            (fmt.H_BOOT_ID, boot_id()),
            (fmt.H_STATE, fmt.RUNNING),
            (fmt.H_ITERATION, 1),
            (fmt.H_CREATED_WALL, time.time_ns()),
        ):
            put(place, value)
        put(fmt.H_THREADS, 4096, fmt.THREADS, 64)
        put(fmt.H_GROUPS, 8192, 512, fmt.GROUP_BYTES)
        put(fmt.H_STRINGS, 40_960, 1_038_336, 1)
        put(fmt.H_RING, *ring)
        thread = (pid, 1, 0, 0, b"MainThread")  # tid, last serial, waits for none, since, name
        fmt.THREAD.pack_into(data, 4096, *thread)
        record = Record(
            serial=1,
            seq=1,
            entered=time.time_ns(),
            iteration=1,
            flags=fmt.INLINE_SIGNATURE,
            check=1,
        )
        at = ring[0] + ring[2]
        data[at : at + fmt.RECORD.size] = record.packed()
        data[at + fmt.INLINE_OFFSET : at + fmt.INLINE_OFFSET + 10] = b"all_reduce"
        (folder / f"host-{pid}{fmt.SUFFIX}").write_bytes(data)


def step(path: Path, n: int) -> None:
    """The rank enters its next iteration: the same two words that its probe would write."""
    import struct

    from hangdoctor.probe import format as fmt

    with path.open("r+b", buffering=0) as file:
        for place, value in ((fmt.H_ITERATION, n), (fmt.H_ITERATION_SINCE, time.time_ns())):
            file.seek(place[0])
            file.write(struct.pack(place[1], value))


def main() -> None:
    """Measure with a fresh folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steady", action="store_true", help="every rank makes a step every 0.2 s")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        measure(Path(name), flags)


def measure(folder: Path, flags: argparse.Namespace) -> None:
    """Start ranks, collector and agent, and follow them."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")} | {
        "HANGDOCTOR_DIR": str(folder)
    }
    environ |= {"WORLD_SIZE": str(flags.ranks), "TORCHELASTIC_RUN_ID": "agent-idle"}
    running = []
    try:
        for rank in range(flags.ranks):
            running.append(
                subprocess.Popen(
                    [sys.executable, "-S", "-c", "import time; time.sleep(3600)"],
                    env=environ | {"RANK": str(rank)},
                )
            )
        time.sleep(1)
        make_boxes(folder, [p.pid for p in running])
        paths = sorted(folder.glob("*.blackbox"))
        job = str(folder / "job")
        collector = [
            sys.executable,
            "-m",
            "hangdoctor",
            "collect",
            "--folder",
            job,
            "--bind",
            "tcp://127.0.0.1:*",
        ]
        agent = [
            sys.executable,
            "-m",
            "hangdoctor",
            "agent",
            "--folder",
            job,
            "--job",
            "agent-idle",
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen([*collector, "--stall-after", "100000"], **quiet))  # type: ignore[call-overload]
        running.append(subprocess.Popen(agent, **quiet))  # type: ignore[call-overload]
        follow(running, paths, flags)
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def follow(
    running: list[subprocess.Popen[bytes]], paths: list[Path], flags: argparse.Namespace
) -> None:
    """Print processor time and memory of collector and agent; ranks move with --steady."""
    say("10 s for collector and agent to come to rest")
    begin, n, before = time.monotonic(), 1, None
    watched = [psutil.Process(p.pid) for p in running[-2:]]
    while (passed := time.monotonic() - begin) < flags.seconds + 10:
        if passed >= 10 and before is None:
            say(f"measuring for {flags.seconds:.0f} s")
            before = [sum(p.cpu_times()[:2]) for p in watched]
        if flags.steady:
            n += 1
            for path in paths:
                step(path, n)
        time.sleep(0.2)
    assert before is not None
    for name, process, start in zip(("collector", "agent"), watched, before, strict=True):
        used = sum(process.cpu_times()[:2]) - start
        memory = process.memory_info().rss / 1e6
        print(
            f"{name}: {used / flags.seconds:.2%} of a core, {memory:.0f} MB, {flags.ranks} ranks, {flags.seconds:.0f} s"
        )


if __name__ == "__main__":
    main()
