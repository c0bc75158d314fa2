"""Runs one case to its end and keeps what it leaves: the folders of its boxes, and what it printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hangdoctor.cli.run_environment import prepare
from tests.support.ports import free_port

from .cases import Case

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
RUN = (sys.executable, "-m", "hangdoctor", "run", "--quiet", "--")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
HUNG_S = 6.0  # that the others wait before the driver ends a job that hangs
_STARTS_S, _ENDS_S = 120.0, 90.0


def leave(case: Case, folder: Path) -> list[Path]:
    """Run the job; the folders that it has left boxes in.

    Raises:
        RuntimeError: it did not come to where it should fail, or did not end.
    """
    os.mkfifo(folder / "fifo")
    started: list[subprocess.Popen[bytes]] = []
    try:
        for n, (command, environ) in enumerate(_commands(case, folder)):
            with (folder / f"out{n}").open("wb") as out:
                started.append(
                    subprocess.Popen(
                        command,
                        env=environ,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )
        if case.end:
            _await(folder / "hung", started)
            _end(case, started)
        _ended(started)
    finally:
        for process in started:
            _kill(_session(process.pid))
            process.wait()
    return _left(folder)


def _commands(case: Case, folder: Path) -> list[tuple[list[str], dict[str, str]]]:
    program = [str(JOBS / f"{case.program}_job.py"), *case.words]
    port = str(free_port())
    base = _environment(case, folder)
    if case.start == "spawn":
        return [([*RUN, sys.executable, *program, port], base)]
    if case.start == "each":
        return [
            ([*RUN, sys.executable, *program], base | _of_rank(case, folder, rank, port))
            for rank in range(case.world)
        ]
    if case.start == "two nodes":
        return [
            ([*RUN, *_torchrun(case, port, node), *program], base | _place(folder, node))
            for node in range(2)
        ]
    if case.start == "without run":
        prepare(base)
        return [([*_torchrun(case, port), *program], base)]
    return [([*RUN, *_torchrun(case, port), *program], base)]


def _environment(case: Case, folder: Path) -> dict[str, str]:
    mine = ("HANGDOCTOR_", "SLURM_", "TORCHELASTIC_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(mine)}
    return (
        clean
        | case.environ
        | {
            "HANGDOCTOR_DIR": str(folder / "boxes"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "HUNG": str(folder / "hung"),
            "HUNG_S": str(HUNG_S),
            "FIFO": str(folder / "fifo"),
        }
    )


def _place(folder: Path, number: int) -> dict[str, str]:
    return {"HANGDOCTOR_DIR": str(folder / "hangdoctor-0" / f"run-{number}")}


def _of_rank(case: Case, folder: Path, rank: int, port: str) -> dict[str, str]:
    return _place(folder, rank) | {
        "RANK": str(rank),
        "WORLD_SIZE": str(case.world),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


def _torchrun(case: Case, port: str, node: int = -1) -> list[str]:
    words = [*TORCHRUN, "--master_port", port, "--max-restarts", case.environ.get("RESTARTS", "0")]
    if node < 0:
        return [*words, "--nproc_per_node", str(case.world)]
    nodes = ["--nnodes", "2", "--node_rank", str(node), "--master_addr", "127.0.0.1"]
    return [*words, *nodes, "--nproc_per_node", str(case.world // 2)]


# ---------------------------------------------------------------------- its end


def _await(file: Path, started: Sequence[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + _STARTS_S
    while not file.exists():
        if any(p.poll() is not None for p in started) or time.monotonic() > end:
            raise RuntimeError("the job ended by itself, or did not start")
        time.sleep(0.1)


def _end(case: Case, started: Sequence[subprocess.Popen[bytes]]) -> None:
    if case.end == "KILL ranks":
        _kill([pid for p in started for pid in _session(p.pid) if _is_rank(pid, case)])
        return
    for process in started:
        if case.end == "KILL run":
            process.kill()
        elif case.end == "INT":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGTERM)


def _ended(started: Sequence[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + _ENDS_S
    for process in started:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise RuntimeError("the job did not end") from error


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "stat").read_text(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if text and text[text.rindex(")") + 2 :].split()[3] == str(leader):
            found.append(int(entry.name))
    return found


def _is_rank(pid: int, case: Case) -> bool:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    name = f"{case.program}_job.py".encode()
    spawned = any(b"spawn_main" in word for word in raw)
    started = raw[1:2] != [b"-m"] and any(word.endswith(name) for word in raw[:4])
    return spawned if case.start == "spawn" else started


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _left(folder: Path) -> list[Path]:
    beside = folder / "hangdoctor-0"
    if beside.is_dir():
        return sorted(p for p in beside.iterdir() if any(p.iterdir()))
    boxes = folder / "boxes"
    return [boxes] if boxes.is_dir() and any(boxes.iterdir()) else []
