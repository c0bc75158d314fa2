"""Does it hold for days? `python -m benchmarks.soak [hours] [captures] [hostile]`, all three where
none is named.

hours      72 simulated hours of a restless but healthy job against the real core: false alarms,
           lost reports, memory
captures   1,000 captures of a running job of four gloo ranks with the probe: ranks stopped or
           killed, step times beside those without
hostile    10,000 hostile messages, with the job's keys and without, to a real collector with a real
           agent: who gets in, what is lost
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from msgspec import Struct

from benchmarks.progress import say
from benchmarks.soak_hostile import attack
from benchmarks.soak_hours import simulate
from hangdoctor.readers.node import CaptureOptions, capture_node

RANKS = 4
LIMIT_S = 0.2
TRAIN = """
import os, sys, time
import hangdoctor.probe as probe
probe.install()
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
step, last, end = 0, time.monotonic(), sys.argv[1]
with open(f"{end}.{os.environ['RANK']}", "w") as log:
    while True:
        probe.iteration(step)
        time.sleep(0.04)
        over = torch.tensor([float(os.path.exists(end))])
        dist.all_reduce(over)
        if over.item():
            break
        now = time.monotonic()
        log.write(f"{now:.6f} {now - last:.6f}\\n")
        step, last = step + 1, now
dist.destroy_process_group()
"""


class Captured(Struct):
    captures: int
    failed: int  # captures in which a rank had no stack
    took_s: float  # median
    stopped: int  # ranks seen in state T
    ended_well: bool
    alone_s: list[float]  # steps beside no capture: median, 99 %, longest
    captured_s: list[float]  # steps during captures
    # Percent of steps during captures that took more than `LIMIT_S` beyond the median of those
    # alone.
    slow: float
    slow_alone: float

    @property
    def good(self) -> bool:
        """A busy machine makes slow steps by itself: what counts is how many more there are during
        captures.
        """
        return (
            not (self.failed or self.stopped)
            and self.ended_well
            and self.slow <= self.slow_alone + 0.5
        )


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


@contextlib.contextmanager
def training(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Four ranks that train until the file `folder/end` is there."""
    port = free_port()
    environ = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
        "HANGDOCTOR_DIR": str(folder / "boxes"),
        "TORCHELASTIC_RUN_ID": f"soak-{port}",
    }
    command = [sys.executable, "-c", TRAIN, str(folder / "end")]
    ranks = [
        subprocess.Popen(command, env=environ | {"RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(RANKS)
    ]
    try:
        while not all(steps_of(folder, r) for r in range(RANKS)):
            assert all(p.poll() is None for p in ranks)
            time.sleep(0.1)
        yield ranks
    finally:
        (folder / "end").touch()
        for process in ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
            process.kill()
            process.wait()


def steps_of(folder: Path, rank: int) -> list[tuple[float, float]]:
    """(when it ended, seconds it took) of each step, by the clock that all processes share."""
    try:
        lines = (folder / f"end.{rank}").read_text().splitlines()
    except OSError:
        return []
    found = [line.split() for line in lines]
    return [(float(words[0]), float(words[1])) for words in found if len(words) == 2][20:]


def captures(count: int, block: int = 25) -> Captured:
    """Blocks of captures and pauses in turns, so that steps beside both meet the same machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with training(folder) as ranks:
            pids = [p.pid for p in ranks]
            spans: list[tuple[float, float]] = []
            took: list[float] = []
            failed = stopped = 0
            while len(took) < count:
                begin = time.monotonic()
                for _ in range(min(block, count - len(took))):
                    found = capture_node(CaptureOptions(pids=pids, settle_s=0.0))
                    took.append(found.took_s)
                    failed += (
                        sum(
                            not any(t.frames for s in r.samples for t in s.threads)
                            for r in found.ranks
                        )
                        > 0
                    )
                    stopped += sum(
                        psutil.Process(p).status() in (psutil.STATUS_STOPPED, "tracing-stop")
                        for p in pids
                    )
                end = time.monotonic()
                spans.append((begin, end))
                say(f"{len(took)} of {count} captures")
                time.sleep((end - begin) / 3)
            (folder / "end").touch()
            ended_well = [p.wait(timeout=60) for p in ranks] == [0] * RANKS
        alone, during = _apart(folder, spans)
    usual = statistics.median(alone) + LIMIT_S
    return Captured(
        captures=len(took),
        failed=failed,
        took_s=statistics.median(took),
        stopped=stopped,
        ended_well=ended_well,
        alone_s=_figures(alone),
        captured_s=_figures(during),
        slow=_percent_above(during, usual),
        slow_alone=_percent_above(alone, usual),
    )


def _apart(folder: Path, spans: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Step times (beside no capture, during captures), of all ranks."""
    alone: list[float] = []
    during: list[float] = []
    for rank in range(RANKS):
        for end, seconds in steps_of(folder, rank):
            touched = any(end - seconds < last and end > first for first, last in spans)
            (during if touched else alone).append(seconds)
    return alone, during


def _percent_above(steps: list[float], bound_s: float) -> float:
    return round(100 * sum(s > bound_s for s in steps) / max(1, len(steps)), 2)


def _figures(steps: list[float]) -> list[float]:
    ranked = sorted(steps)
    return [
        round(value, 4)
        for value in (statistics.median(ranked), ranked[int(len(ranked) * 0.99)], ranked[-1])
    ]


# --------------------------------------------------------------------------- the three sections


def hours(flags: argparse.Namespace) -> bool:
    """Whether the simulated hours were as they must be; prints what was found."""
    begin = time.monotonic()
    found = simulate(flags.hours, flags.seed)
    print(
        f"hours: {found.hours:g} simulated in {time.monotonic() - begin:.0f} s, {found.reports} reports; {found.events}"
    )
    print(
        f"  false alarms: {len(found.alarms)}; reports lost: {found.lost}, counted twice: 0 ({found.doubled} came again)"
    )
    print(f"  memory at each sixth, MB: {found.rss_mb}; objects: {found.objects}", flush=True)
    for alarm in found.alarms[:10]:
        print(f"  {alarm}")
    return not found.alarms and found.lost == 0


def captured(flags: argparse.Namespace) -> bool:
    """Whether the captured job was as it must be; prints what was found."""
    found = captures(flags.captures)
    print(
        f"captures: {found.captures} of {RANKS} ranks, {found.took_s:.3f} s each (median); load {os.getloadavg()[0]:.0f}"
    )
    print(
        f"  without a stack: {found.failed}; ranks stopped: {found.stopped}; all ended with 0: {found.ended_well}"
    )
    print(
        f"  a step alone / during captures, s (median, 99 %, longest): {found.alone_s} / {found.captured_s}"
    )
    print(
        f"  more than {LIMIT_S * 1e3:.0f} ms over the median: {found.slow_alone} % alone, {found.slow} % during",
        flush=True,
    )
    return found.good


def hostile(flags: argparse.Namespace) -> bool:
    """Whether the collector was as it must be; prints what was found."""
    found = attack(flags.messages)
    print(f"hostile: {json.dumps(found.told())}", flush=True)
    return found.good


SECTIONS = {"hours": hours, "captures": captured, "hostile": hostile}


def main() -> None:
    """Run the sections; exits with 1 where one was not as it must be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    parser.add_argument("--hours", type=float, default=72)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--captures", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=10_000)
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    good = [SECTIONS[name](flags) for name in flags.sections or SECTIONS]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
