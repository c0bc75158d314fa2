"""What hangdoctor says of real processes that wait for a GPU, beside what is right."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from hangdoctor.model.capture import JobCapture, NodeCapture
from hangdoctor.model.gpu import Gpu
from hangdoctor.probe.nccl import plugin
from hangdoctor.readers import nccl_profiler
from hangdoctor.storage import bundle

from .options import Options
from .processes import environment, last_lines, start, until
from .worker import JobFailed

_READY_S = 60.0
_SETTLED_S = 2.0  # between its last word and the wait that it goes into
_DUMP_S = 60.0
_WATCHDOG_S = 75.0


@dataclass(frozen=True)
class Case:
    """A job, what `dump` has to say of it, and how it is started."""

    name: str
    program: str
    expected: tuple[str, ...]  # kinds of cause, or "healthy"
    ranks: tuple[int, ...] = (0,)  # that are to be named
    world: int = 1
    probe: bool = False
    words: tuple[str, ...] = ()  # beside `dump --pid`
    ends: bool = False  # NCCL's watchdog ends it, and `diagnose` gets what it leaves behind


_LEFT_EARLY = ("not_entered", "mismatch", "order")
_NO_BATCH = ("data_wait", "not_entered")
CASES = (
    Case(".item() behind a kernel", "item", ("device_wait",)),
    Case(".item() behind a kernel, --native", "item", ("device_wait",), words=("--native",)),
    Case("torch.cuda.synchronize", "synchronize", ("device_wait",)),
    Case("all_reduce behind a kernel, probe", "behind", ("device_wait",), probe=True),
    Case("all_reduce behind a kernel, no probe", "behind", ("device_wait",)),
    Case("two ranks, one asleep, probe", "two_ranks", ("not_entered",), (1,), world=2, probe=True),
    Case("two ranks, one asleep, no probe", "two_ranks", ("not_entered",), (1,), world=2),
    Case("one of a pair skips, probe", "skips", _LEFT_EARLY, (2,), world=4, probe=True),
    Case("one of a pair skips, no probe", "skips", _LEFT_EARLY, (2,), world=4),
    Case("FSDP2, a batch fewer, probe", "shards", _LEFT_EARLY, (2,), world=3, probe=True),
    Case("FSDP2, a batch fewer, no probe", "shards", _LEFT_EARLY, (2,), world=3),
    Case("DDP, no third batch, probe", "replicates", _NO_BATCH, (1,), world=2, probe=True),
    Case("DDP, no third batch, no probe", "replicates", _NO_BATCH, (1,), world=2),
    Case("a stage is stopped, probe", "pipeline", ("stopped",), (1,), world=3, probe=True),
    Case("a stage is stopped, no probe", "pipeline", ("stopped",), (1,), world=3),
    Case("behind one rank's kernel, probe", "behind", ("device_wait",), (1,), world=2, probe=True),
    Case("behind one rank's kernel, no probe", "behind", ("device_wait",), (1,), world=2),
    Case("losses[mask]", "masks", ("device_wait",)),
    Case("JAX, a loop without an end", "jax", ("device_wait",)),
    Case("CuPy, a kernel without an end", "cupy", ("device_wait",)),
    Case("the watchdog ends it", "times_out", ("not_entered",), (1,), 3, probe=True, ends=True),
    Case("computes, nothing is wrong", "computes", ("healthy", "unknown"), ranks=()),
)
_WITH_NCCL = ("two_ranks", "skips", "shards", "replicates", "pipeline", "behind")
STAND_IN = Case("sleeps, no GPU", "sleeps", ("not_entered",))


def units(options: Options) -> list[str]:
    """The cases; without a GPU one that needs none."""
    if options.on_gpu:
        return [case.name for case in CASES]
    return [STAND_IN.name]


def measure(unit: str, options: Options) -> Iterator[dict[str, Any]]:
    """What `dump` says, and what each source of evidence held."""
    case = next(case for case in (*CASES, STAND_IN) if case.name == unit)
    with tempfile.TemporaryDirectory(prefix="hangdoctor-gpu-") as name:
        folder = Path(name)
        if case.ends:
            try:
                yield from afterwards(case, folder)
            finally:
                keep(folder, case)
            return
        with job(case, folder) as pids:
            time.sleep(_SETTLED_S if options.on_gpu else 0.0)
            said = dump(pids, case, folder)
            yield judged(case, said)
            if case.probe:
                capture = bundle.load(folder / "bundle")
                yield from sources(case, capture, folder, pids)
            elif case.program in _WITH_NCCL:
                # Nothing asks the ranks for them: they are read from their memory.
                yield from map(recorder, bundle.load(folder / "bundle").nodes)
            keep(folder, case)


def afterwards(case: Case, folder: Path) -> Iterator[dict[str, Any]]:
    """What `diagnose` says of a job that NCCL's watchdog has ended: of all that it left, and of each
    kind of evidence alone.

    Raises:
        JobFailed: it was not ready, or did not end.
    """
    with job(case, folder) as pids:
        _until_one_alone_is_left(pids, len(case.ranks))
    logs = [str(file) for file in sorted(folder.glob("log.*"))]
    dumps = [str(file) for file in sorted((folder / "dumps").glob("*"))]
    boxes = [str(folder / "boxes")]
    evidence = {"logs": logs, "dump files": dumps, "black boxes": boxes}
    evidence["all"] = [*logs, *dumps, *boxes]
    for what, files in evidence.items():
        said = asked(["diagnose", *files], folder)
        yield {**judged(case, said), "case": f"{case.name}: {what} ({len(files)})"}


def _until_one_alone_is_left(pids: list[int], stay: int) -> None:
    """Until NCCL's watchdog has ended all ranks but those that it has nothing against."""
    limit = time.monotonic() + _WATCHDOG_S
    while sum(psutil.pid_exists(pid) and _runs(pid) for pid in pids) > stay:
        if not until(limit):
            raise JobFailed(f"the watchdog did not end it within {_WATCHDOG_S:.0f} s")
        time.sleep(0.2)


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def keep(folder: Path, case: Case) -> None:
    """Copy what was captured to the folder that HANGDOCTOR_GPU_KEEP names, if it names one."""
    kept = os.environ.get("HANGDOCTOR_GPU_KEEP", "")
    if kept:
        name = "".join(c if c.isalnum() else "-" for c in case.name)
        ignored = shutil.ignore_patterns("*.sock")
        shutil.copytree(folder, Path(kept) / name, ignore=ignored, dirs_exist_ok=True)


# ---------------------------------------------------------------------- the job


@contextmanager
def job(case: Case, folder: Path) -> Iterator[list[int]]:
    """The ranks of a case, each ready to wait: their pids. They end with what is started here.

    Raises:
        JobFailed: one ended, or was not ready in time.
    """
    port = free_port()
    with contextlib.ExitStack() as files:
        errors = [files.enter_context((folder / f"log.{r}").open("w+b")) for r in range(case.world)]
        ranks = [_rank(case, rank, port, folder, error=error) for rank, error in enumerate(errors)]
        try:
            limit = time.monotonic() + _READY_S
            each = zip(ranks, errors, strict=True)
            yield [_when_ready(process, limit, error) for process, error in each]
        finally:
            for process in ranks:
                process.kill()
            for process in ranks:
                process.wait(20)


def _rank(
    case: Case, rank: int, port: int, folder: Path, *, error: IO[bytes]
) -> subprocess.Popen[bytes]:
    env = environment(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(case.world),
        LOCAL_WORLD_SIZE=str(case.world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCH_FR_BUFFER_SIZE="2000",
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
    )
    if case.ends:
        (folder / "dumps").mkdir(exist_ok=True)
        env |= {
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "5000",
            "TORCH_FR_DUMP_TEMP_FILE": str(folder / "dumps" / "rank_"),
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "dumps" / "rank_"),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_FILE": str(folder / "log.nccl.%p"),
        }
    words = ["-m", "benchmarks.gpu.jobs.hang", case.program]
    if case.probe:
        env |= {"HANGDOCTOR_DIR": str(folder / "boxes"), "HANGDOCTOR_NCCL_EVENTS": "device"}
        words = ["-m", "hangdoctor", "run", "--", sys.executable, *words]
    return start(words, env=env, out=subprocess.PIPE, error=error)


def _when_ready(process: subprocess.Popen[bytes], limit: float, error: IO[bytes]) -> int:
    """The rank's own process id, once it waits: `hangdoctor run` is its parent."""
    assert process.stdout is not None
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    if selector.select(until(limit)):
        words = process.stdout.readline().split()
        if len(words) == 2 and words[0] == b"ready":
            return int(words[1])
    error.seek(0)
    said = last_lines(error.read().decode(errors="replace"))
    raise JobFailed(f"the job was not ready: {said or 'no word of it'}")


def free_port() -> int:
    """A port of this host that nothing listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# ---------------------------------------------------------------------- what is said of it


def dump(pids: list[int], case: Case, folder: Path) -> dict[str, Any]:
    """The diagnosis of these processes.

    Raises:
        JobFailed: there is none.
    """
    words = ["dump", *case.words]
    for pid in pids:
        words += ["--pid", str(pid)]
    return asked([*words, "--bundle", str(folder / "bundle")], folder)


def asked(words: list[str], folder: Path) -> dict[str, Any]:
    """What a command of hangdoctor's says, and its seconds.

    Raises:
        JobFailed: there is no diagnosis.
    """
    found = folder / "diagnosis.json"
    found.unlink(missing_ok=True)
    words = ["-m", "hangdoctor", *words, "--json", str(found), "--quiet"]
    env = environment(HANGDOCTOR_DIR=str(folder / "boxes"))
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = start(words, env=env, out=out, error=out)
        try:
            code = process.wait(_DUMP_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise JobFailed(f"{words[2]} did not end within {_DUMP_S:.0f} s") from error
        out.seek(0)
        text = out.read().decode(errors="replace")
    if code or not found.exists():
        raise JobFailed(f"{words[2]} ended with {code}: {last_lines(text)}")
    said: dict[str, Any] = json.loads(found.read_text())
    said["seconds"] = time.monotonic() - began
    return said


def judged(case: Case, said: dict[str, Any]) -> dict[str, Any]:
    """The row of a verdict: right where a cause is of the kind expected and names those ranks."""
    causes = said.get("causes", [])
    first = causes[0] if causes else {}
    kind = first.get("kind", said["status"])
    ranks = sorted({rank for cause in causes for rank in cause.get("ranks", [])})
    return {
        "case": case.name,
        "expected": " or ".join(case.expected),
        "kind": kind,
        "ranks": ranks,
        "sentence": said.get("summary", "") or first.get("summary", ""),
        "confidence": first.get("confidence"),
        "right": kind in case.expected and ranks == sorted(case.ranks),
        "seconds": said["seconds"],
    }


def sources(
    case: Case, capture: JobCapture, folder: Path, pids: list[int]
) -> Iterator[dict[str, Any]]:
    """What each source of evidence held of a job with NCCL."""
    nodes = capture.nodes
    if not nodes:
        yield {"source": "capture", "says": "it has no node", "right": False}
        return
    yield recorder(nodes[0])
    yield ras(case, nodes[0])
    yield gpu_fields(nodes[0].gpus, pids)
    if case.world > 1:  # of a group of one rank NCCL makes copies, and no operations
        yield profiler(folder / "boxes")


def recorder(node: NodeCapture) -> dict[str, Any]:
    """torch's Flight Recorder: a collective that has not completed."""
    held = [rank.recorded or rank.ops for rank in node.ranks]
    made = [ops for ops in held if ops is not None and ops.source == "flight_recorder"]
    pending = sorted({str(op.op) for ops in made for op in ops.unfinished()})
    says = f"{len(made)} ranks; pending: {', '.join(pending) or 'nothing'}"
    return {"source": "Flight Recorder", "says": says, "right": bool(pending)}


def ras(case: Case, node: NodeCapture) -> dict[str, Any]:
    """NCCL's RAS: a communicator."""
    found = node.ras
    if found is None:
        why = next((note for note in node.notes if "RAS" in note), "no answer")
        return {"source": "NCCL RAS", "says": why, "right": False}
    sizes = [communicator.size for communicator in found.communicators]
    says = f"NCCL {found.version}, {found.form}, communicators of {sizes}"
    return {"source": "NCCL RAS", "says": says, "right": case.world in sizes}


def gpu_fields(gpus: list[Gpu], pids: list[int]) -> dict[str, Any]:
    """nvidia-smi: which fields it filled, and whether it names our process."""
    if not gpus:
        return {"source": "nvidia-smi", "says": "no GPU in the capture", "right": False}
    gpu = gpus[0]
    names = ("busy", "memory_mb", "memory_total_mb", "clock_mhz", "clock_max_mhz", "uncorrected")
    unknown = [name for name in names if getattr(gpu, name) < 0]
    ours = bool(set(gpu.pids) & set(pids))
    says = (
        f"{gpu.name}, {gpu.busy} % busy, {gpu.memory_mb} MB; unknown: "
        f"{', '.join(unknown) or 'nothing'}; our process {'is' if ours else 'is not'} listed"
    )
    return {"source": "nvidia-smi", "says": says, "right": not unknown and ours and gpu.busy > 50}


def profiler(folder: Path) -> dict[str, Any]:
    """Our plugin in the real NCCL: what it has written."""
    if plugin.built() is None:
        why = "the plugin is not built: python setup.py build_ext --inplace"
        return {"source": "NCCL profiler plugin", "says": why, "right": None}
    events = []
    for path in sorted(folder.rglob("*.nccl")):
        made = nccl_profiler.read_events(path)
        if made is not None:
            events.append(made)
    count = sum(len(made.records) for made in events)
    versions = sorted({made.interface for made in events})
    says = f"{len(events)} files, interface {versions}, {count} operations"
    return {"source": "NCCL profiler plugin", "says": says, "right": count > 0}
