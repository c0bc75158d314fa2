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
import os
import time
from collections.abc import Callable

from benchmarks.progress import say
from hangdoctor.storage.incidents import Incident
from tests.support.lab import Cluster, unavailable, wait_until
from tests.support.watched import Watched

RANKS = 8
STEPS = 40  # before a fault that no one watches
STOOD_S = 10.0  # the job, when the sidecar is started


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

    def fault(
        self,
        name: str,
        make: Callable[[Watched], object],
        mend: Callable[[Watched], object] | None,
        right: tuple[str, str],
    ) -> None:
        """Make one fault, wait for its verdict, and mend it.

        Raises:
            SystemExit: the verdict names another kind or culprit.
        """
        job = self.running()
        number = len(job.incidents())
        begin = time.monotonic()
        make(job)
        if self.after:
            time.sleep(STOOD_S)
            begin = time.monotonic()
            self.attach(job)
        try:
            wait_until(lambda: len(job.incidents()) > number, f"a verdict: {job.text()}", 120)
            took = time.monotonic() - begin
            found: Incident = job.incidents()[number]
        finally:
            if mend is not None:
                mend(job)
        good = (found.kind if right[0] else "", found.ranks) == right
        if not good:
            self.failed.append(name)
        print(
            f"{name:18} {took:5.1f} s  {'right' if good else 'WRONG'}  load {os.getloadavg()[0]:.0f}  {found.summary} [{found.reason}]",
            flush=True,
        )
        if mend is None or self.after:
            self.end()
        else:
            job.wait_progress()


def cut_off(bench: Bench) -> None:
    """A node without network for a while: its reports must all arrive afterwards."""
    job = bench.running()
    begin = time.monotonic()

    def restore(_: Watched) -> None:
        time.sleep(max(0.0, 30.0 - (time.monotonic() - begin)))
        bench.cluster.node("link-up", "n4")

    if bench.after:
        bench.fault(
            "node cut off",
            lambda j: bench.cluster.node("blackhole", "n4"),
            restore,
            ("unreachable", "6-7"),
        )
        return
    before = job.positions()["n4"].seq
    bench.fault(
        "node cut off",
        lambda j: bench.cluster.node("blackhole", "n4"),
        restore,
        ("unreachable", "6-7"),
    )
    wait_until(lambda: job.positions()["n4"].seq > before + 10, "n4 reports again", 60)
    whole = all((p.received, p.lost) == (p.seq, 0) for p in job.positions().values())
    print(
        f"                   after 30 s restored; reports {'complete, none twice' if whole else 'LOST'}",
        flush=True,
    )
    if not whole:
        bench.failed.append("reports after the cut")


def drag(bench: Bench) -> None:
    """A rank that takes longer in each step."""
    bench.fault(
        "slow rank",
        lambda j: (j.control / "drag").write_text("3"),
        lambda j: (j.control / "drag").unlink(),
        ("slow", "3"),
    )


def measure(bench: Bench, only: set[str], slow: bool) -> None:
    """Every fault in turn, or those that are named."""
    cluster = bench.cluster
    faults: dict[str, Callable[[], None]] = {
        "stopped": lambda: bench.fault(
            "SIGSTOP",
            lambda j: j.signal(4, "STOP"),
            lambda j: j.signal(4, "CONT"),
            ("stopped", "4"),
        ),
        "frozen": lambda: bench.fault(
            "node frozen",
            lambda j: cluster.node("freeze", "n2"),
            lambda j: cluster.node("thaw", "n2"),
            ("unreachable", "2-3"),
        ),
        "loader": lambda: bench.fault(
            "data loader",
            lambda j: (j.control / "loader").write_text("7"),
            lambda j: (j.control / "loader").unlink(),
            ("", "7"),
        ),
        "cut": lambda: cut_off(bench),
        "slow": lambda: drag(bench) if slow and not bench.after else None,
        "skipped": lambda: bench.fault(
            "skipped collective", lambda j: (j.control / "skip").write_text("3"), None, ("", "3")
        ),
        "killed": lambda: bench.fault(
            "SIGKILL", lambda j: j.signal(5, "KILL"), None, ("dead", "5")
        ),
        "crashed": lambda: bench.fault(
            "node crashed", lambda j: cluster.node("crash", "n3"), None, ("unreachable", "4-5")
        ),
    }
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
