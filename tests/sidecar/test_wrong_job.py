"""A sidecar for a job that is not here: it says so at once and which jobs are, and waits, since the
job may come later.
"""

from __future__ import annotations

import os
import signal

from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import Log, Settings
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import wait_until


def test_it_says_which_jobs_are_here_and_takes_the_one_that_comes(job: Job, start: Start) -> None:
    key = f"wrong-{os.getpid()}"
    job.rank(0, f"{key}-other")
    process = start(
        "sidecar",
        "-m",
        "hangdoctor",
        "sidecar",
        "--local",
        "--job",
        f"{key}-late",
        "--folder",
        str(job.folder),
    )
    wait_until(
        lambda: job.said("sidecar", "its agent has connected (1 node)") == 1, "its agent reports"
    )
    said = (job.logs / "sidecar.log").read_text()
    [line] = [
        line
        for line in said.splitlines()
        if f"waiting for ranks of job {key}-late; jobs on this host: " in line
    ]
    assert f"{key}-other (" in line.partition("jobs on this host: ")[2]
    [agent] = (job.folder / "logs").iterdir()
    assert f"waiting for ranks of job {key}-late; jobs on this host: " in agent.read_text()
    wait_until(
        lambda: (
            job.said(
                "sidecar", "waiting for ranks: 1 node has connected and has no rank of the job yet"
            )
            == 1
        ),
        "it says so again",
    )
    job.rank(1, f"{key}-late")
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: job.said("sidecar", "saved in") == 1, "the rank that came is captured")
    process.terminate()
    assert process.wait(timeout=20) == 0


def test_nothing_is_said_where_ranks_are_here_or_were() -> None:
    def said(*hellos: msg.Hello) -> list[str]:
        core = Core(Settings(), StallWatch(Bounds()))
        for hello in hellos:
            core.received(hello.node.encode(), msg.encode(hello), 1.0, 0.0)
        out = [i for second in range(1, 40) for i in core.tick(float(second), 0.0)]
        return [i.text for i in out if isinstance(i, Log) and "waiting" in i.text]

    [once] = said(msg.Hello("a", "n1"), msg.Hello("b", "n2"))
    assert once.startswith(
        "waiting for ranks: 2 nodes have connected and have no rank of the job yet"
    )
    assert said(msg.Hello("a", "n1"), msg.Hello("b", "n2", "slurm:1.0", 8)) == []
    assert said() == []


def test_a_sidecar_that_never_found_a_rank_leaves_no_folder(job: Job, start: Start) -> None:
    watch = ("-m", "hangdoctor", "sidecar", "--local", "--folder", str(job.folder))
    process = start("sidecar", *watch, "--job", f"nosuch-{os.getpid()}")
    wait_until(
        lambda: job.said("sidecar", "its agent has connected (1 node)") == 1, "its agent reports"
    )
    assert (job.folder / "keys").is_dir()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=20)
    assert not job.folder.exists(), (job.logs / "sidecar.log").read_text()


def test_it_says_at_start_which_job_it_watches(job: Job, start: Start) -> None:
    key = f"watched-{os.getpid()}"
    rank = job.rank(0, key)
    job.rank(0, f"{key}x")
    watch = ("-m", "hangdoctor", "sidecar", "--local", "--folder", str(job.folder))
    process = start("sidecar", *watch, "--job", str(rank.pid))
    wait_until(lambda: job.said("sidecar", "its agent has connected") == 1, "its agent reports")
    said = (job.logs / "sidecar.log").read_text()
    [line] = [one for one in said.splitlines() if "watching processes " in one]
    taken, _, others = line.partition("; also on this host: ")
    assert f"watching processes {rank.pid} of job {key} (" in taken and f"pid {rank.pid}, " in taken
    assert taken.endswith(", named by --job") and f"{key}x (" in others
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: job.said("sidecar", "saved in") == 1, "the job is captured")
    process.terminate()
    assert process.wait(timeout=20) == 0
    assert job.folder.is_dir(), "a rank was seen"
