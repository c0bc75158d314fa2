"""`hangdoctor demo`: starts a real job here, makes it hang, diagnoses it and cleans up."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from ..diagnosis import diagnose
from ..errors import HangdoctorError
from ..launchers.local import LocalLauncher
from ..model.capture import JobCapture, NodeCapture
from ..model.diagnosis import Diagnosis
from ..readers import descendants, discover, proc
from ..readers.node import CaptureOptions
from ..storage import bundle
from . import pipes
from .dump import keep
from .output import Shown, deliver, full_flag, progress_to_stderr

_REST_S = 1.0  # a rank that has not run for this long is blocked
_RUN_ID = "demo"
# Lines of torchrun's own summary, which say nothing of the cause.
_OF_TORCHRUN = re.compile(r"ChildFailedError|error_file|/errors/__init__|elastic/errors")
_ITERATION = re.compile(r"iteration +(\d+) */ *(\d+)")
_LONGEST = 100  # characters of a line of the job
_FAULT = "sleep@5:6"  # rank 5 never reaches a tensor parallel all_reduce of iteration 6


class DemoError(HangdoctorError):
    """The demo's own job failed."""


@click.command("demo")
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Start this script with torchrun instead; it must print `fault: ...` when it hangs.",
)
@click.option(
    "--fault",
    default="",
    metavar="SPEC",
    help="The fault as KIND@RANK:ITERATION[:WHERE]; for kinds see: python -m hangdoctor.train --help.",
)
@click.option(
    "--ranks",
    default=8,
    show_default=True,
    type=click.IntRange(2, 64),
    metavar="N",
    help="Number of ranks to start; the bundled trainer needs 8.",
)
@click.option(
    "--wait",
    "limit",
    default=100.0,
    show_default=True,
    metavar="S",
    help="Give up if the job does not hang within S seconds.",
)
@full_flag
def command(script: str | None, fault: str, ranks: int, limit: float, full: bool) -> None:
    """Hang one rank of a real 8-rank 3D-parallel training on this machine and diagnose it.

    The bundled trainer (tensor x pipeline x data parallel, DeepSpeed, gloo), started with
    `hangdoctor run`, trains on the Python standard library's source until the fault is injected;
    then `hangdoctor dump --local` runs. Needs torch (pip install '.[train]' in a
    checkout).
    At the end the job is killed and its files are removed; the bundle stays in the temporary
    folder, and its path is printed.
    """
    if importlib.util.find_spec("torch") is None:
        raise DemoError(
            "the demo's job needs torch",
            "In a checkout of hangdoctor: make demo, or pip install '.[train]'.",
        )
    say = progress_to_stderr(False)
    with (
        tempfile.TemporaryDirectory(prefix="hangdoctor-demo-") as folder,
        running_job(_command(script, fault, ranks), folder) as job,
    ):
        lines = follow(job)
        say(f"started {ranks} ranks; waiting for the fault")
        struck = _wait_for_fault(job, lines, limit)
        say(f"fault injected: {struck}")
        key = _rest(limit)
        say("all ranks are blocked; running hangdoctor dump --local")
        capture: JobCapture = LocalLauncher().capture(CaptureOptions(job=key), say)
    pipes.say("")
    _conclude(capture, full)


def _conclude(capture: JobCapture, full: bool) -> None:
    """Print the verdict, and save a bundle outside of the current folder."""
    diagnosis = diagnose(capture, lenient=True)
    saved, trouble = keep(
        capture,
        diagnosis,
        Path(tempfile.gettempdir(), bundle.default_path(capture.job, capture.taken).name),
    )
    shown = Shown(saved, full, ["", _without_boxes(capture)])
    deliver(_of_an_ended_job(diagnosis), None, False, False, shown=shown)
    if trouble is not None:
        raise trouble


def _of_an_ended_job(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis as it is after the job: what to do may name a process that is gone."""
    if not diagnosis.causes or not diagnosis.causes[0].advice:
        return diagnosis
    first, *others = diagnosis.causes
    if "pid" not in first.advice and "kill" not in first.advice:
        return diagnosis
    advice = f"{first.advice} (The demo has ended its job, this process too.)"
    return replace(diagnosis, causes=[replace(first, advice=advice), *others])


def _without_boxes(capture: JobCapture) -> str:
    """What the same moment shows of a job that was started without `hangdoctor run`."""
    bare = replace(capture, layout=None, nodes=[_bare(node) for node in capture.nodes])
    diagnosis = diagnose(bare, lenient=True)
    first = diagnosis.causes[0] if diagnosis.causes else None
    sure = f", {first.kind}, confidence {first.confidence * 100:.0f} %" if first else ""
    name = diagnosis.status.upper()
    return f"Without the black box (no hangdoctor run): {name}{sure}: {diagnosis.summary}"


def _bare(node: NodeCapture) -> NodeCapture:
    """The node without what the ranks' black boxes hold."""
    nothing = dict.fromkeys(("ops", "ops_before", "recorded", "recorded_before", "calls"))
    ranks = [replace(rank, **nothing) for rank in node.ranks]
    return replace(node, layout=None, ranks=ranks)


def _command(script: str | None, fault: str, ranks: int) -> list[str]:
    launch = [
        *(sys.executable, "-m", "hangdoctor", "run", "--"),
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={ranks}",
        "--master_addr=127.0.0.1",
        f"--master_port={_free_port()}",
        f"--rdzv_id={_RUN_ID}-{os.getpid()}",
    ]
    if script is not None:
        return [*launch, script, *(["--fault", fault] if fault else [])]
    package = importlib.util.find_spec("hangdoctor.train")
    if package is None or not package.submodule_search_locations:
        raise DemoError(
            "the bundled trainer is not installed",
            "In a checkout of hangdoctor: pip install '.[train]'; or use --script FILE.",
        )
    config = Path(package.submodule_search_locations[0]) / "configs" / "cpu_2x2x2.yaml"
    return [*launch, "-m", "hangdoctor.train", "--config", str(config), "--fault", fault or _FAULT]


def _free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def running_job(command: list[str], folder: str) -> Iterator[subprocess.Popen[str]]:
    """The job in a session of its own, ended with all of its ranks at the end."""
    env = os.environ | {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "TMPDIR": folder,
        "HANGDOCTOR_DIR": str(Path(folder, "boxes")),
        "PYTHONUNBUFFERED": "1",
    }
    job = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    )
    try:
        yield job
    finally:
        for pid in [
            *(c.pid for c in descendants.children_of(job.pid, descendants.parents())),
            job.pid,
        ]:  # torchrun starts ranks in sessions of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait()


def follow(job: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """The job's output as a queue of lines; None at its end."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert job.stdout is not None
        for line in job.stdout:
            lines.put(line.rstrip())
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _wait_for_fault(
    job: subprocess.Popen[str], lines: queue.Queue[str | None], limit: float
) -> str:
    end = time.monotonic() + limit
    tail: list[str] = []
    while time.monotonic() < end:
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            continue
        if line is None:
            raise DemoError(
                f"the job ended with exit code {job.wait()} before the fault",
                _what_went_wrong(tail),
            )
        tail.append(line)
        if "fault:" in line:
            return line.strip().removeprefix("fault:").strip()
        if "iteration" in line:
            pipes.say(_progress(line))
    raise DemoError(f"the job did not hang within {limit:.0f} s", _what_went_wrong(tail))


def _progress(line: str) -> str:
    """The trainer's line of an iteration, with its dozen numbers, as ``iteration 5/200``."""
    found = _ITERATION.search(line)
    return f"iteration {found[1]}/{found[2]}" if found else line.strip()[:_LONGEST]


def _what_went_wrong(tail: list[str]) -> str:
    """The first lines that mention an error: the summary that torchrun prints at the end hides
    them.
    """
    errors = [line for line in tail if "rror" in line and not _OF_TORCHRUN.search(line)]
    return "\n".join(errors[:6] or tail[-15:])


def _rest(limit: float) -> str:
    """Wait until no rank's main thread has run for a while, and return the job's key."""
    end, since = time.monotonic() + limit, time.monotonic()
    before: list[int] = []
    while time.monotonic() < end:
        jobs = [j for j in discover.find_jobs() if f"{_RUN_ID}-{os.getpid()}" in j.key]
        now = [
            t.switches if (t := proc.sample_thread(f.pid, f.pid)) else -1
            for j in jobs
            for f in j.ranks
        ]
        if now != before or not jobs:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > _REST_S:
            return jobs[0].key
        time.sleep(0.1)
    raise DemoError(f"after the fault the ranks were still running for {limit:.0f} s")
