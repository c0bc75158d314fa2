"""From the fault to the saved verdict, by the sidecar alone: four lab nodes, two ranks each, a step
of 0.2 s.

    python -m benchmarks.sidecar_latency [--attach before|after] [--only stopped,killed] [--slow]

Starts the lab cluster (scripts/lab, needs root). Every fault is made in turn, and in each the
culprit must be right: SIGSTOP, frozen node, data loader, node cut off (for 30 s, then restored:
nothing of its reports may be missing), skipped collective; SIGKILL and a crashed node on a job of
their own each. Printed: seconds from the fault to the row in the index. Target: at most 5 at this
rhythm. With --slow also a rank that is 0.4 s late in every step, with a window of 30 s.

With --attach after, each fault is made in a job of its own that no one watches, and the sidecar is
started 10 s later:
seconds from its start to the row. Target: at most 10.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator

from benchmarks.progress import say
from hangdoctor.storage.incidents import Incident
from tests.support.lab import Cluster, unavailable, wait_until
from tests.support.watched import Watched

RANKS = 8
STEPS = 40  # before a fault that no one watches
STOOD_S = 10.0  # the job, when the sidecar is started

# What breaks a job: found first (which process), made when the block is entered.
Fault = Callable[[Watched], contextlib.AbstractContextManager[None]]


class Bench:
    """The cluster, the job of now, and what was found."""

    def __init__(self, cluster: Cluster, after: bool) -> None:
        self.cluster, self.after = cluster, after
        self.job: Watched | None = None
        self.made = 0
        self.failed: list[str] = []

    def running(self) -> Watched:
        """A job with its sidecar; the one before, where that can still be used."""
        if self.job is None:
            self.made += 1
            self.job = Watched(self.cluster, f"latency{self.made}", RANKS, 29800 + self.made)
            self.job.submit()
            if self.after:
                self.job.wait_steps(STEPS)
            else:
                self.attach(self.job)
                self.job.wait_rhythm()
        return self.job

    def attach(self, job: Watched) -> None:
        """Start the sidecar."""
        job.sidecar("--jobid", job.id, "--folder", str(job.folder), "--slow-after", "30")

    def end(self) -> None:
        """The job is broken for good."""
        if self.job is not None:
            self.cluster.login("scancel", self.job.id)
            self.job.close()
            self.job = None

    def fault(self, name: str, make: Fault, right: tuple[str, str], for_good: bool = False) -> None:
        """One fault until its verdict is saved; the job of one `for_good` is ended after it.

        Raises:
            SystemExit: the verdict names another kind or culprit.
        """
        job = self.running()
        number = len(job.incidents())
        broken = make(job)
        begin = time.monotonic()
        with broken:
            if self.after:
                time.sleep(STOOD_S)
                begin = time.monotonic()
                self.attach(job)
            wait_until(lambda: len(job.incidents()) > number, f"a verdict: {job.text()}", 120)
            took = time.monotonic() - begin
            found: Incident = job.incidents()[number]
        good = (found.kind if right[0] else "", found.ranks) == right
        if not good:
            self.failed.append(name)
        print(
            f"{name:18} {took:5.1f} s  {'right' if good else 'WRONG'}  load {os.getloadavg()[0]:.0f}  {found.summary} [{found.reason}]",
            flush=True,
        )
        if for_good or self.after:
            self.end()
        else:
            job.wait_progress()


def killed(job: Watched) -> contextlib.AbstractContextManager[None]:
    """SIGKILL to rank 5."""
    return _for_good(functools.partial(os.kill, job.seen_from_here(5), signal.SIGKILL))


def crashed(job: Watched) -> contextlib.AbstractContextManager[None]:
    return _for_good(functools.partial(job.cluster.node, "crash", "n3"))


@contextlib.contextmanager
def _for_good(act: Callable[[], object]) -> Iterator[None]:
    act()
    yield


@contextlib.contextmanager
def away_for(seconds: float, job: Watched) -> Iterator[None]:
    """n4 without its link, for that long at least."""
    with job.cluster.broken("n4", "blackhole"):
        begin = time.monotonic()
        yield
        time.sleep(max(0.0, seconds - (time.monotonic() - begin)))


def cut_off(bench: Bench) -> None:
    """A node loses its link and gets it back; attached before, none of its reports may be lost."""
    job = bench.running()
    before = 0 if bench.after else job.positions()["n4"].seq
    bench.fault("node cut off", functools.partial(away_for, 30.0), ("unreachable", "6-7"))
    if bench.after:
        return
    wait_until(lambda: job.positions()["n4"].seq > before + 10, "n4 reports again", 60)
    whole = all((p.received, p.lost) == (p.seq, 0) for p in job.positions().values())
    print(
        f"                   after 30 s restored; reports {'complete, none twice' if whole else 'LOST'}",
        flush=True,
    )
    if not whole:
        bench.failed.append("reports after the cut")


def measure(bench: Bench, only: set[str], slow: bool) -> None:
    """Every fault in turn, or those that are named."""
    cluster = bench.cluster
    faults: dict[str, Callable[[], None]] = {
        "stopped": lambda: bench.fault("SIGSTOP", lambda j: j.stopped(4), ("stopped", "4")),
        "frozen": lambda: bench.fault(
            "node frozen", lambda j: cluster.broken("n2", "freeze"), ("unreachable", "2-3")
        ),
        "loader": lambda: bench.fault("data loader", lambda j: j.asked("loader", 7), ("", "7")),
        "cut": lambda: cut_off(bench),
        "slow": lambda: bench.fault("slow rank", lambda j: j.asked("drag", 3), ("slow", "3")),
        "skipped": lambda: bench.fault(
            "skipped collective", lambda j: j.asked("skip", 3), ("", "3"), for_good=True
        ),
        "killed": lambda: bench.fault("SIGKILL", killed, ("dead", "5"), for_good=True),
        "crashed": lambda: bench.fault(
            "node crashed", crashed, ("unreachable", "4-5"), for_good=True
        ),
    }
    if not slow or bench.after:
        del faults["slow"]
    for name, run in faults.items():
        if not only or name in only:
            say(f"fault: {name}")
            try:
                run()
            except AssertionError as error:
                bench.failed.append(name)
                print(f"{name}: {str(error)[-1500:]}", flush=True)
                bench.end()


def main() -> None:
    """Start the lab, measure, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attach", choices=["before", "after"], default="before")
    parser.add_argument(
        "--only", default="", help="stopped,frozen,loader,cut,slow,skipped,killed,crashed"
    )
    parser.add_argument("--slow", action="store_true")
    flags = parser.parse_args()
    if reason := unavailable():
        raise SystemExit(reason)
    cluster = Cluster()
    bench = Bench(cluster, flags.attach == "after")
    try:
        say("starting the lab cluster")
        cluster.up()
        measure(bench, set(filter(None, flags.only.split(","))), flags.slow)
    finally:
        if bench.job is not None:
            bench.job.close()
        cluster.down()
    if bench.failed:
        raise SystemExit(f"wrong or missing: {', '.join(bench.failed)}")


if __name__ == "__main__":
    main()
