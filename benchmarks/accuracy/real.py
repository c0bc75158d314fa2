"""The real part: each job is hung once and judged three times from the same hang.

stacks only   what `hangdoctor dump` finds where torch keeps no record: the capture without its
              operations
black box     the same capture with what the probe recorded
dumps only    Flight Recorder dumps, asked of the ranks through the socket that the probe opens, and
              nothing else

With `probe=False` the job is started as if hangdoctor did not exist. Then it is judged by stacks
alone, which must say the same, and as it is: `nothing prepared`, with what torch's own recorder holds.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import HangdoctorError
from hangdoctor.launchers.local import LocalLauncher
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.operations import RankOps
from hangdoctor.probe.flight import socket_path
from hangdoctor.readers import worker_server
from hangdoctor.readers.flight_recorder import convert
from hangdoctor.readers.node import CaptureOptions
from hangdoctor.readers.proc import sample_thread, stat_fields

from .coordinates import KINDS, MODES, UNPREPARED, WORLD, Case
from .score import Result, judge
from .simulated import capture_of
from .stem import placeholders

Say = Callable[[str], None]
_REST_S = 0.4  # a rank whose main thread has not run for this long has come to rest
_LIMIT_S = 40.0
_SIZES = ("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2")


class NoHang(Exception):
    """The fault that was drawn does not hang this job at all."""


class Stem:
    """The process that the ranks are forked from; a context manager that leaves nothing behind."""

    def __init__(self, world: int = WORLD, arguments: Sequence[str] = _SIZES) -> None:
        """`arguments`: on the command line of every rank, where sizes of groups may stand."""
        self.world = world
        self.home = Path(tempfile.mkdtemp(prefix="accuracy-"))
        self.boxes = Path(
            tempfile.mkdtemp(
                prefix="accuracy-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            )
        )
        root = str(Path(__file__).parents[2])
        env = {
            k: v
            for k, v in os.environ.items()
            if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        }
        env |= {
            **placeholders(world),
            "MASTER_ADDR": "127.0.0.1",
            "WORLD_SIZE": str(world),
        }
        env |= {
            "LOCAL_WORLD_SIZE": str(world),
            "OMP_NUM_THREADS": "1",
            "HANGDOCTOR_DIR": str(self.boxes),
            "PYTHONPATH": root,
        }
        env |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
        env |= {
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, "-m", "benchmarks.accuracy.stem", *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=root,
            start_new_session=True,
        )
        self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process that ranks are forked from has ended")
        return line

    def start(self, case: Case, probe: bool) -> Running:
        """Fork the ranks of one job."""
        folder = Path(tempfile.mkdtemp(dir=self.home))
        for name in ("read", "data", "checkpoint"):
            os.mkfifo(folder / f"fifo.{name}")
        port = free_port()
        ranks = [r for r in range(WORLD) if not (case.kind == "never_started" and r in case.ranks)]
        order: dict[str, Any] = {
            "ranks": ranks,
            "folder": str(folder),
            "port": port,
            "probe": probe,
            "faults": case.faults,
        }
        return Running(
            case,
            folder,
            port,
            dict(zip(ranks, self.order(order), strict=True)),
            boxes=self.boxes if probe else None,
        )

    def order(self, what: dict[str, Any]) -> list[int]:
        """Send one line to the stem; the pids that it answers with."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return list(json.loads(self._read()))

    def end_job(self, running: Running) -> None:
        """Kill the ranks, and remove what they left."""
        self.order({})
        shutil.rmtree(running.folder, ignore_errors=True)
        for file in self.boxes.iterdir():
            file.unlink(missing_ok=True)

    def __enter__(self) -> Stem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # ends the stem's loop, which ends its ranks
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.boxes, ignore_errors=True)


class Running:
    """One job with its fault."""

    def __init__(
        self, case: Case, folder: Path, port: int, pids: dict[int, int], boxes: Path | None
    ) -> None:
        self.case, self.folder, self.port, self.pids, self.boxes = case, folder, port, pids, boxes

    def wait_hung(self) -> None:
        """Until the fault has struck and everyone else has come to rest.

        Raises:
            NoHang: the job runs to its end in spite of the fault.
            TimeoutError: it neither hangs nor ends.
        """
        spec = KINDS[self.case.kind]
        moving = set(self.case.ranks) if spec.moving else set()
        if self.case.kind in ("slow_rank", "healthy"):
            moving = set(range(WORLD))
        still = [pid for rank, pid in self.pids.items() if rank not in moving]
        if not wait_at_rest(still, self._struck):
            raise TimeoutError(f"{self.case.kind} at {self.case.place} neither hangs nor ends")
        ended = len(list(self.folder.glob("finished.*"))) == WORLD
        if spec.hang and self.case.kind != "stuck_in_destroy" and ended:
            raise NoHang

    def _struck(self) -> bool:
        if self.case.kind == "healthy":
            return len(list(self.folder.glob("ready.*"))) == WORLD
        if self.case.kind == "finished":
            return len(list(self.folder.glob("finished.*"))) == WORLD
        if self.case.kind == "never_started":
            return len(list(self.folder.glob("came.*"))) == len(self.pids)
        return all((self.folder / f"at.{rank}").exists() for rank in self.case.ranks)

    def capture(self, raw: bool = False) -> JobCapture:
        """What `hangdoctor dump --local` captures of it, with py-spy's output where `raw`."""
        return LocalLauncher().capture(
            CaptureOptions(job=f"127.0.0.1:{self.port}", keep_raw=raw), lambda _: None
        )

    def dumps(self) -> JobCapture:
        """Flight Recorder dumps of all ranks that answer, twice, and nothing else."""
        before = self.ask()
        time.sleep(1.0)
        return capture_of(self.ask(), before, world=WORLD)

    def ask(self) -> list[RankOps]:
        """The Flight Recorders of all ranks that answer, now."""
        found = {r: a.dump for r, a in self.answers().items() if a.dump is not None}
        return list(convert(found, world_size=WORLD).ops.values())

    def answers(self) -> dict[int, worker_server.LiveDump]:
        """What each rank that answers says when it is asked for its Flight Recorder."""
        found = {}
        for rank, pid in self.pids.items():
            path = socket_path(self.boxes or self.folder, pid)
            try:
                found[rank] = worker_server.read_rank(path, 2.0)
            except worker_server.NoAnswer:
                continue
        return found

    def log(self, rank: int) -> str:
        """What a rank has printed."""
        return (self.folder / f"log.{rank}").read_text()


def wait_at_rest(pids: Sequence[int], struck: Callable[[], bool]) -> bool:
    """Until the fault has struck and none of these has run for a while; False where that does not
    come.
    """
    last, since, began = "", time.monotonic(), time.monotonic()
    while time.monotonic() - began < _LIMIT_S:
        time.sleep(0.05)
        now = " ".join(_switches(pid) for pid in pids)
        if now != last:
            last, since = now, time.monotonic()
        if struck() and (not pids or time.monotonic() - since > _REST_S):
            return True
    return False


def _switches(pid: int) -> str:
    if not (state := stat_fields(pid)[:1]) or state[0] in "ZX":
        return "gone"
    thread = sample_thread(pid, pid)
    return f"{thread.state}{thread.switches}" if thread is not None else "gone"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def without_operations(capture: JobCapture) -> JobCapture:
    """The capture as a job without a probe gives it."""
    nodes = [
        msgspec.structs.replace(
            n,
            ranks=[msgspec.structs.replace(r, ops=None, ops_before=None) for r in n.ranks],
            notes=[],
        )
        for n in capture.nodes
    ]
    return msgspec.structs.replace(capture, nodes=nodes)


def run_case(stem: Stem, case: Case, probe: bool, keep: Path | None = None) -> list[Result]:
    """Hang one job and judge it in all modes.

    Raises:
        NoHang, TimeoutError: see `Running.wait_hung`.
    """
    running = stem.start(case, probe)
    try:
        running.wait_hung()
        full = running.capture()
        captures = {modes_of(probe)[0]: without_operations(full)}
        if not probe:
            captures |= {UNPREPARED: full}
        else:
            captures |= {"black box": full, "dumps only": running.dumps()}
        logs = "\n".join(running.log(r) for r in running.pids)
    finally:
        stem.end_job(running)
    results = []
    for mode, capture in captures.items():
        result = Result("real", mode, case.kind, case.seed, case.place)
        result.no_evidence = mode == "dumps only" and not any(
            r.ops and r.ops.operations for r in capture.ranks()
        )
        began = time.perf_counter()
        diagnosis = diagnose(capture)
        result.took_s = time.perf_counter() - began
        results.append(judge(result, diagnosis, case.expected(mode)))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            name = f"{case.kind}-{case.seed}-{mode.replace(' ', '_').replace(',', '')}"
            (keep / f"{name}.json").write_bytes(msgspec.json.encode(capture))
            (keep / f"{case.kind}-{case.seed}.log").write_text(logs)
    return results


def run_real(
    kinds: Iterable[str],
    seeds: Iterable[int],
    say: Say,
    probe: bool = True,
    keep: Path | None = None,
) -> list[Result]:
    """All kinds with all seeds. A fault that does not hang the job is drawn again."""
    from .coordinates import draw

    results: list[Result] = []
    with Stem() as stem:
        for kind in kinds:
            for seed in seeds:
                for attempt in range(6):
                    case = draw(kind, seed + 1000 * attempt)
                    try:
                        found = run_case(stem, case, probe, keep)
                    except (NoHang, TimeoutError) as error:
                        say(f"{kind} {case.place}: {type(error).__name__} {error}; drawn again")
                        continue
                    except HangdoctorError as error:
                        found = not_captured(case, probe, error)
                    results += found
                    for r in found:
                        if not (r.exact and r.kind_right):
                            say(_missed(r))
                    break
    return results


def modes_of(probe: bool) -> tuple[str, ...]:
    """The forms of evidence that one hang is judged in."""
    return MODES if probe else ("stacks only, no probe", UNPREPARED)


def not_captured(case: Case, probe: bool, error: HangdoctorError) -> list[Result]:
    """A job that the capture did not find counts as wrong, and its kind too."""
    found = []
    for mode in modes_of(probe):
        result = Result("real", mode, case.kind, case.seed, case.place, "not found")
        result.expected = case.expected(mode).ranks
        result.summary = str(error)
        found.append(result)
    return found


def _missed(result: Result) -> str:
    case = f"{result.mode}: {result.kind}-{result.seed} {result.place}"
    said = f"{result.status} {result.named}, expected {result.expected}"
    return f"MISS {case}: {said}: {result.summary[:260]}"


def replay(folder: Path) -> list[Result]:
    """Judge anew what `--keep` left of an earlier run: the same hangs, today's diagnosis."""
    from .coordinates import draw

    every = (*modes_of(probe=True), *modes_of(probe=False))
    modes = {m.replace(" ", "_").replace(",", ""): m for m in every}
    results = []
    for file in sorted(folder.glob("*.json")):
        kind, seed, mode = file.stem.rsplit("-", 2)
        case = draw(kind, int(seed))
        capture = msgspec.json.decode(file.read_bytes(), type=JobCapture)
        result = Result("real", modes[mode], kind, case.seed, case.place)
        result.no_evidence = modes[mode] == "dumps only" and not any(
            r.ops and r.ops.operations for r in capture.ranks()
        )
        began = time.perf_counter()
        diagnosis = diagnose(capture)
        result.took_s = time.perf_counter() - began
        results.append(judge(result, diagnosis, case.expected(modes[mode])))
    order = {kind: n for n, kind in enumerate(KINDS)}
    return sorted(results, key=lambda r: (order[r.kind], r.seed))


__all__ = ["MODES", "NoHang", "Stem", "replay", "run_case", "run_real"]
