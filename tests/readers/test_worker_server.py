"""Asking living ranks: a real gloo job with torch's worker server, and a debug pipe with a rank
behind it.
"""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.model.capture import RankCapture
from hangdoctor.readers.flight_recorder import convert
from hangdoctor.readers.rank_operations import attach
from hangdoctor.readers.worker_server import (
    NoAnswer,
    ask_pipe,
    dump_files,
    fetch,
    handlers,
    read_rank,
    traceback,
)
from tests.support.gloo_ranks import start, stop

DATA = (
    Path(__file__).parents[1] / "data" / "flight_recorder" / "gloo-pickle" / "comm_lib_trace_rank_0"
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # A Unix socket's path has room for 107 bytes only.
    folder = tmp_path_factory.mktemp("j")
    ranks = start(folder, "gil")
    yield folder
    stop(ranks)


def pending(folder: Path, rank: int) -> bool:
    dump = read_rank(folder / f"rank{rank}.sock", 5).dump
    return dump is not None and dump.entries[-1].state != "done"


@pytest.mark.torch
def test_blocked_ranks_answer_with_where_they_are(job: Path) -> None:
    """Main threads blocked in a collective; the culprit's in C with the interpreter lock held."""
    deadline = time.monotonic() + 30
    while not all(pending(job, r) for r in (0, 1, 3)):  # between "ready" and the operation
        assert time.monotonic() < deadline
        time.sleep(0.05)
    live = {r: read_rank(job / f"rank{r}.sock", 5) for r in range(4)}
    assert all("fr_trace_json" in a.handlers and not a.errors for a in live.values())
    result = convert({r: a.dump for r, a in live.items() if a.dump is not None})
    assert result.world_size == 4 and result.missing == []
    last = {r: ops.operations[-1] for r, ops in result.ops.items()}
    assert all(
        (last[r].op, last[r].seq, last[r].state) == ("all_reduce", 4, "entered") for r in (0, 1, 3)
    )
    assert last[2].state == "done" and {tuple(g.ranks) for g in result.ops[2].groups} == {
        (0, 1, 2, 3),
        (2, 3),
        (0, 2),
    }
    assert "all_reduce" in traceback(job / "rank0.sock", 5)


@pytest.mark.torch
def test_a_handler_that_the_rank_lacks(job: Path) -> None:
    assert "ping" in handlers(job / "rank1.sock", 5)
    with pytest.raises(NoAnswer, match="404"):
        fetch(job / "rank1.sock", "no_such_handler", 5)


def test_a_rank_that_does_not_answer_costs_the_deadline_only(tmp_path: Path) -> None:
    """A stopped process still has its socket: the kernel takes the connection, no one answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
            read_rank(tmp_path / "s", 0.2)


def test_a_rank_that_answers_drop_by_drop_does_not_hold_us(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        enough = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not enough.wait(0.01):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(NoAnswer, match="within"):
            fetch(tmp_path / "s", "ping", 0.3)
        enough.set()
        thread.join(10)


def test_a_dead_ranks_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    with pytest.raises(NoAnswer, match="refused"):
        read_rank(tmp_path / "s", 1)
    with pytest.raises(NoAnswer, match="No such file"):
        read_rank(tmp_path / "none", 1)


class FakePipeRank:
    """What ProcessGroupNCCL's DumpPipe and monitor thread do: read the FIFO, then write the dump
    file.
    """

    def __init__(self, pipe: Path, file: Path, dump: bytes) -> None:
        os.mkfifo(pipe)
        self.fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.file, self.dump = file, dump
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self) -> None:
        while not self.end.wait(0.01):
            if os.read(self.fd, 128):
                with self.file.open("wb") as f:  # in two parts: a reader may come in between
                    f.write(self.dump[:1000])
                    f.flush()
                    self.end.wait(0.15)
                    f.write(self.dump[1000:])
                return

    def close(self) -> None:
        self.end.set()
        self.thread.join(10)
        os.close(self.fd)


def test_the_debug_pipe_makes_a_rank_write_its_dump(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe3.pipe", tmp_path / "comm_lib_trace_rank_3"
    rank = FakePipeRank(pipe, file, DATA.read_bytes())
    try:
        found, dump = ask_pipe(pipe, [file], 20)
    finally:
        rank.close()
    assert found == file and dump.entries[-1].op == "all_reduce"


@pytest.mark.parametrize("earlier", ["file", "link", "folder"])
def test_an_earlier_dump_is_never_written_over(tmp_path: Path, earlier: str) -> None:
    pipe, file = tmp_path / "pipe3.pipe", tmp_path / "comm_lib_trace_rank_3"
    if earlier == "file":
        file.write_bytes(b"of the hang before")
    elif earlier == "link":
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.mkdir()
    rank = FakePipeRank(pipe, file, DATA.read_bytes())
    try:
        with pytest.raises(NoAnswer, match="comm_lib_trace_rank_3 exists already"):
            ask_pipe(pipe, [tmp_path / "another", file], 5)
        assert rank.thread.is_alive()  # it was not asked
    finally:
        rank.close()
    assert earlier != "file" or file.read_bytes() == b"of the hang before"
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_without_a_rank(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe0.pipe")
    with pytest.raises(NoAnswer, match="no process reads it"):
        ask_pipe(tmp_path / "pipe0.pipe", [tmp_path / "dump0"], 1)


def test_only_a_pipe_is_written_to(tmp_path: Path) -> None:
    """The pipe's name comes from the rank's environment, and root asks ranks of everyone."""
    (tmp_path / "a0.pipe").write_text("precious")
    (tmp_path / "b0.pipe").symlink_to(tmp_path / "a0.pipe")
    for name in ("a0.pipe", "b0.pipe"):
        with pytest.raises(NoAnswer):
            ask_pipe(tmp_path / name, [], 1)
    assert (tmp_path / "a0.pipe").read_text() == "precious"


def test_where_dump_files_are() -> None:
    assert dump_files({"TORCH_FR_DUMP_TEMP_FILE": "/x/trace_"}, 7) == [Path("/x/trace_7")]
    assert dump_files({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/y/nccl_"}, 0) == [Path("/y/nccl_0")]
    assert dump_files({"HOME": "/home/u"}, 1)[0] == Path(
        "/home/u/.cache/torch/comm_lib_trace_rank_1"
    )


def test_the_pipe_is_used_where_it_was_wished_alone(tmp_path: Path) -> None:
    environ = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "pipe",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "dump_",
        "PATH": os.environ["PATH"],
    }
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path, env=environ) as process:
        capture = RankCapture(pid=process.pid, rank=3, world_size=4, node="n", started=time.time())
        rank = FakePipeRank(tmp_path / "pipe3.pipe", tmp_path / "dump_3", DATA.read_bytes())
        try:
            until_it_has(process.pid, b"PIPE_FILE")
            assert attach([capture]) == [
                "rank 3: its Flight Recorder was not asked for a dump; with --nccl-dump it writes one to dump_3"
            ]
            assert not (tmp_path / "dump_3").exists() and capture.ops is None
            assert attach([capture], nccl_dump=True) == []
            assert (
                tmp_path / "dump_3"
            ).read_bytes() == DATA.read_bytes() and capture.ops is not None
            again = attach([capture], nccl_dump=True)
            assert len(again) == 1 and "dump_3 exists already" in again[0]
        finally:
            process.kill()
            rank.close()


def until_it_has(pid: int, variable: bytes) -> None:
    """Wait until the program has taken the place of the process that forked it."""
    end = time.monotonic() + 20
    while variable not in Path(f"/proc/{pid}/environ").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.01)
