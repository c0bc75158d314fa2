"""The worker server of torch, with a stand-in for torch's: when it is made, quietly, and what stays."""

from __future__ import annotations

import functools
import os
import signal
import socket
import stat
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.probe import flight, torchnames

PID = os.getpid()


class Server:
    """Listens as torch's does, and notes what holds while it is made."""

    made: list[str] = []
    level: Any = None
    sets: int | None = None  # what the job sets the level to meanwhile

    def __init__(self, path: str) -> None:
        self.made.append(path)
        self.level_inside = self.level.value
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, set())
        if self.sets is not None:
            self.level.value = self.sets
        self.listens = socket.socket(socket.AF_UNIX)
        self.listens.bind(path)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    class Fresh(Server):
        made: list[str] = []
        level = types.SimpleNamespace(value=0)

    monkeypatch.setattr(flight, "_kept", [])
    monkeypatch.setattr(torchnames, "worker_server", lambda: Fresh)
    monkeypatch.setattr(torchnames, "log_level", lambda: Fresh.level)
    for name in (flight.SOCKET_VARIABLE, "HANGDOCTOR_WORKER_SERVER"):
        monkeypatch.delenv(name, raising=False)
    yield Fresh
    for one in flight._kept:
        one.listens.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short name: a socket's path has 107 bytes."""
    monkeypatch.chdir(tmp_path)
    return Path()


def test_it_listens_quietly_and_for_its_user_alone(server: type[Server], folder: Path) -> None:
    before = os.umask(0)
    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        assert flight.start_worker_server(folder, PID) == ""
    finally:
        os.umask(before)
    [made] = flight._kept
    path = flight.socket_path(folder, PID)
    assert server.made == [str(path)] and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (made.level_inside, server.level.value) == (torchnames.LOG_ERRORS, 0)
    assert signal.SIGUSR1 in made.blocked and signal.SIGSEGV not in made.blocked
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
    assert len(os.listdir("/proc/self/fd")) == descriptors + 1, "that of the socket"
    assert sys.getrefcount(made) >= 4, "one of `_kept`, two here, and one that never goes"
    assert flight.start_worker_server(folder, PID) == "" and len(server.made) == 1, "one is enough"
    flight.remove_socket(folder, PID)
    assert not path.exists()


def test_without_room_for_all_of_its_threads_it_is_not_begun(
    server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end the process, since std::thread raises where nothing catches."""
    asked: list[int] = []
    monkeypatch.setattr(flight, "can_have", lambda count: bool(asked.append(count)))
    assert "threads that it needs cannot be had" in flight.start_worker_server(folder, PID)
    assert asked[0] >= 10 and server.made == [] and flight._kept == []


def test_what_a_dead_process_has_left_in_its_place_goes(server: type[Server], folder: Path) -> None:
    path = flight.socket_path(folder, PID)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert flight.start_worker_server(folder, PID) == "" and len(flight._kept) == 1


@pytest.mark.parametrize(
    ("environ", "made"),
    [
        ({flight.SOCKET_VARIABLE: "/mine"}, 0),
        ({flight.SOCKET_VARIABLE: ""}, 1),
        ({"HANGDOCTOR_WORKER_SERVER": "0"}, 0),
        ({"HANGDOCTOR_WORKER_SERVER": "1"}, 1),
    ],
)
def test_the_user_decides(
    environ: dict[str, str],
    made: int,
    server: type[Server],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert flight.start_worker_server(folder, PID) == "" and len(server.made) == made


def test_where_torch_has_none_nothing_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "_kept", [])
    monkeypatch.setattr(torchnames, "worker_server", lambda: None)
    path = flight.socket_path(folder, PID)
    path.write_text("theirs")
    assert flight.start_worker_server(folder, PID) == "" and flight._kept == []
    flight.remove_socket(folder, PID)
    assert path.exists(), "there is none of ours to remove"


def test_a_path_has_as_many_bytes_as_a_socket_takes(
    server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = len(os.fsencode(flight.socket_path(folder, PID)))
    monkeypatch.setattr(Server, "__init__", lambda self, path: self.made.append(path))
    for room, made in ((own - 1, 0), (own, 1)):
        monkeypatch.setattr(flight, "_SOCKET_MAX", room)
        flight.start_worker_server(folder, PID)
        assert len(server.made) == made
    flight._kept.clear()


def test_a_level_that_is_higher_or_that_the_job_sets_meanwhile_stays(
    server: type[Server], folder: Path
) -> None:
    server.level.value = 3
    assert flight.start_worker_server(folder, PID) == ""
    assert (flight._kept[0].level_inside, server.level.value) == (3, 3)
    flight._kept.pop().listens.close()
    server.level.value, server.sets = 0, 1
    assert flight.start_worker_server(folder, PID) == "" and server.level.value == 1


def test_one_that_cannot_be_made_private_is_not_reached_and_never_destroyed(
    server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's destructor prints three lines at the end of the job."""

    refused = functools.partial(os.chmod, folder / "nothing")  # raises, and has no frame
    monkeypatch.setattr(flight.Path, "chmod", refused)
    assert "No such file" in flight.start_worker_server(folder, PID)
    [made] = flight._kept
    assert sys.getrefcount(made) >= 4
    assert not flight.socket_path(folder, PID).exists()


def test_why_there_is_none_is_said_and_an_exception_of_the_jobs_is_the_jobs(
    server: type[Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchnames, "worker_server", lambda: int)  # raises, and has no frame
    said = flight.start_worker_server(folder, PID)
    assert said.startswith("no worker server: invalid literal") and server.level.value == 0
    monkeypatch.setattr(torchnames, "log_level", lambda: None)
    assert "cannot be kept from printing" in flight.start_worker_server(folder, PID)

    def interrupts(path: str) -> None:
        raise ValueError("from a handler of the job's")

    monkeypatch.setattr(torchnames, "log_level", lambda: server.level)
    monkeypatch.setattr(torchnames, "worker_server", lambda: interrupts)
    with pytest.raises(ValueError, match="from a handler"):
        flight.start_worker_server(folder, PID)
    assert flight._kept == []
