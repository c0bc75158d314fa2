"""`hangdoctor top`: blocked ranks and what blocks them, live in the terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from ..agents.node_ranks import Ranks
from ..clock import SystemClock
from ..errors import BadInput, CollectorError, UsageError
from ..readers import job_choice, job_process
from ..text.printable import as_json
from ..top.feeds import LocalSource, RemoteSource, Source, settled
from ..transport import address
from ..transport.keys import make_folder
from ..watch.live_ranks import STILL_S
from ..web.page_address import Published, published
from . import complete, pipes
from .shared_flags import seconds

_START_S = 30.0
_SETTLED_S = (
    STILL_S + 2.0
)  # until a stuck rank can be told from a moving one; agents report every second or two


@click.command("top")
@click.option(
    "--jobid",
    metavar="J[.STEP]",
    shell_complete=complete.job_ids,
    help="A running Slurm job; uses its sidecar, or starts one until top ends.",
)
@click.option(
    "--collector",
    metavar="ADDRESS",
    help="Address of a collector with a live page, for example http://127.0.0.1:8470.",
)
@click.option(
    "--local",
    "here",
    is_flag=True,
    help="The ranks of this host, without a collector (default).",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A collector's folder, which has its address and token.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the collector's token, or its web.json (default: the token in HANGDOCTOR_TOKEN).",
)
@click.option(
    "--job",
    default="",
    metavar="KEY",
    shell_complete=complete.jobs_here,
    help="With --local: the job, if there are several, by its name, its script, or a process id (default: your newest).",
)
@click.option(
    "--once",
    is_flag=True,
    help="Print the ranks once and exit (also if the output is not a terminal).",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE|-",
    help="Write the ranks once as JSON and exit; - is standard output.",
)
@seconds(
    "--interval",
    default=1.0,
    least=0.2,
    most=60,
    help="Seconds between two updates.",
)
@click.option(
    "--filter",
    "wanted",
    default="",
    metavar="TEXT",
    help="Show only these ranks (as 0-7,12), or rows with this text in node, state, phase or operation.",
)
@click.option("--no-color", is_flag=True, help="Print without colours (also with NO_COLOR).")
def command(
    json_file: str | None,
    once: bool,
    interval: float,
    wanted: str,
    no_color: bool,
    **target: object,
) -> None:
    """Show blocked ranks and what blocks them, live, the most important first.

    Keys: c captures, / filters, Enter shows one rank, q quits. Without a target it shows the
    ranks of this host, from their black boxes and /proc.
    """
    with open_source(target) as source:
        if json_file or once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            _print(source, json_file, wanted)
            return
        from ..top.app import App

        App(source, interval, not (no_color or os.environ.get("NO_COLOR")), wanted).run()


def _print(source: Source, json_file: str | None, wanted: str) -> None:
    from ..top.screen import plain

    seen = settled(source, SystemClock())
    choice = source.choice() if isinstance(source, LocalSource) else ""
    if choice:
        pipes.say(f"hangdoctor: {choice}", err=True)
    if not json_file:
        for line in plain(seen, wanted):
            pipes.say(line)
        return
    data = as_json(seen)
    if json_file == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        Path(json_file).write_bytes(data)
    except OSError as error:
        raise BadInput(
            f"{json_file} cannot be written: {error.strerror}", "Choose another file."
        ) from error


@contextlib.contextmanager
def open_source(target: dict[str, object]) -> Iterator[Source]:
    """The target that the flags choose.

    Raises:
        UsageError: more than one target.
        CollectorError: there is no collector.
    """
    named = [n for n in ("jobid", "collector", "here", "folder") if target[n]]
    if len(named) > 1:
        raise UsageError(
            "more than one target was given",
            "Choose one of --jobid J, --collector ADDRESS, --folder DIR and --local.",
        )
    if target["collector"]:
        yield RemoteSource(_checked(str(target["collector"])), _token(target["token_file"]))
    elif target["folder"]:
        yield _of_folder(Path(str(target["folder"])))
    elif target["jobid"]:
        with _of_job(str(target["jobid"])) as source:
            yield source
    else:
        job = str(target["job"])
        if job:
            job = job_choice.key_of(job, job_choice.all_here())
        yield LocalSource(Ranks(job_process.Meant(job).among), job)


def _checked(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        text = f"http://{text}"
    return text


def _token(file: object) -> str:
    if file is None:
        token = os.environ.get("HANGDOCTOR_TOKEN", "")
        if not token:
            raise UsageError(
                "the collector asks for its token",
                "Pass --token-file FOLDER/web.json, or set HANGDOCTOR_TOKEN.",
            )
        return token
    try:
        data = Path(str(file)).read_bytes()[:4096]
    except OSError as error:
        raise BadInput(
            f"{file} cannot be read: {error.strerror}",
            "The file is web.json in the collector's folder.",
        ) from error
    try:
        return msgspec.json.decode(data, type=Published).token
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace").strip()


def _of_folder(folder: Path) -> RemoteSource:
    found = published(folder)
    if found is None:
        raise CollectorError(
            f"no collector with a live page runs in {folder}",
            "Start the collector with --web 127.0.0.1:8470.",
        )
    source = RemoteSource(found.address, found.token)
    if found.host not in ("", os.uname().nodename):
        try:
            source.look()
        except CollectorError as error:
            port = found.address.rpartition(":")[2]
            help = f"The collector runs on {found.host}: run top there, or ssh -L {port}:127.0.0.1:{port} {found.host}"
            raise CollectorError(str(error), help) from error
    return source


def _answering(folder: Path) -> RemoteSource | None:
    """The collector of this folder, where it answers from here."""
    found = published(folder)
    source = RemoteSource(found.address, found.token) if found is not None else None
    try:
        if source is not None:
            source.look()
    except CollectorError:
        return None
    return source


@contextlib.contextmanager
def _of_job(jobid: str) -> Iterator[RemoteSource]:
    """The job's sidecar if it has a page, else one that is started now and ends with top."""
    folder = address.job_folder(f"slurm-{jobid}")
    running = _answering(folder)
    if running is not None:
        yield running
        return
    own = make_folder(folder.with_name(f"{folder.name}-top-{os.getpid()}"))
    pipes.say(f"hangdoctor: starting an agent on every node of job {jobid}", err=True)
    command = [
        sys.executable,
        "-m",
        "hangdoctor",
        "sidecar",
        "--jobid",
        jobid,
        "--folder",
        str(own),
        "--web",
        "127.0.0.1:0",
    ]
    try:
        with (own / "log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            source = _wait(process, own)
            _until_seen(source, process)
            yield source
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=15)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _until_seen(source: RemoteSource, process: subprocess.Popen[bytes]) -> None:
    """Wait until no further rank reports for a while: the first sample of a new collector is empty."""
    end, since, before = time.monotonic() + _START_S, time.monotonic(), 0
    while time.monotonic() < end and process.poll() is None:
        count = len(source.look().rows)
        if count != before:
            since, before = time.monotonic(), count
        if count and time.monotonic() - since > _SETTLED_S:
            return
        time.sleep(0.2)


def _wait(process: subprocess.Popen[bytes], folder: Path) -> RemoteSource:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        if published(folder) is not None:
            return _of_folder(folder)
        time.sleep(0.1)
    said = [
        line
        for line in (folder / "log").read_text(errors="replace").splitlines()
        if "hangdoctor: " in line
    ]
    raise CollectorError(
        f"the sidecar could not be started: {said[-1][:300] if said else 'it printed nothing'}"
    )
