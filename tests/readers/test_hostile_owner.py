"""What another user has put into a place that all share is not believed. The other user is a real one: these need root."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor import files
from hangdoctor.cli.diagnose import load
from hangdoctor.errors import BadInput
from hangdoctor.model.capture import RankCapture
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls import request
from hangdoctor.probe.calls.ring import Ring
from hangdoctor.probe.identity import boot_id, start_ticks
from hangdoctor.readers import blackbox, discover, job_choice, pyspy_frames, rank_operations
from hangdoctor.readers.box_folders import read_header
from hangdoctor.readers.calls import CallsReader, calls_path
from hangdoctor.web import page_address as place

MALLORY, ALICE = 65_533, 65_532
DATA = Path(__file__).parents[1] / "data"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a second user is needed: run as root")


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """One sleeping process of Alice's, with the variables of a rank, and one of Mallory's with the same."""
    found = []
    try:
        for user in (ALICE, MALLORY):
            environ = {
                "RANK": "0",
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29871",
                "PATH": os.environ["PATH"],
            }
            # The user may not reach this interpreter: it starts as root and becomes the user then.
            code = f"import os, time; os.setgroups([]); os.setgid({user}); os.setuid({user}); print('up', flush=True); time.sleep(600)"
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", code], env=environ, stdout=subprocess.PIPE, cwd="/"
            )
            found.append(process)
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield found
    finally:
        for process in found:
            process.kill()
            process.communicate()


def plant(
    folder: Path, pid: int, owner: int, rank: int = 0, live: bool = True, name: str = ""
) -> Path:
    """A box that says it is of process `pid`, in a file of `owner`."""
    box = BoxWriter(folder, "job", 1 << 20)
    box.put(fmt.H_PID, pid)
    box.put(fmt.H_RANK, rank)
    box.put(fmt.H_WORLD, 2)
    box.put(fmt.H_BOOT_ID, boot_id())
    box.put(fmt.H_STARTED_TICKS, start_ticks(pid) if live else 1)
    box.put(fmt.H_CREATED_WALL, time.time_ns())
    box.add_group("00" * 8, 2, "0-1", f"of {owner}", 0)
    path = folder / f"{name or f'n1-{pid}-{owner}'}{fmt.SUFFIX}"
    path.write_bytes(bytes(box.map))
    box.remove()
    os.chown(path, owner, owner)
    return path


def shared_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, ALICE, ALICE)
    folder.chmod(0o1777)
    return folder


def test_a_box_is_of_the_owner_of_its_process(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]]
) -> None:
    folder, pid = shared_folder(tmp_path), ranks[0].pid
    real, forged = plant(folder, pid, ALICE), plant(folder, pid, MALLORY)
    notes: list[str] = []
    assert [b.path for b in blackbox.find_boxes(folder, notes=notes)] == [str(real)]
    assert len(notes) == 1 and str(forged) in notes[0] and str(MALLORY) in notes[0]
    real.unlink()
    capture = RankCapture(pid=pid, rank=0, started=time.time() - 60)
    found = [b for b in [read_header(forged)] if b.status == "live"]
    assert found and rank_operations._box_of(capture, found, files.users_of(pid)) is None


@pytest.mark.parametrize("pid", [0, 4_000_000])
def test_the_box_of_a_rank_that_is_gone_is_of_its_jobs_user(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]], pid: int
) -> None:
    """A process that has ended has no owner; the other ranks of its job have one."""
    folder = tmp_path / "mallory"
    folder.mkdir()
    os.chown(folder, MALLORY, MALLORY)
    plant(folder, pid, MALLORY, rank=1, live=False, name="n1-0")
    [box] = blackbox.find_boxes(folder)
    box.host = os.uname().nodename
    gone = RankCapture(pid=0, rank=1, gone=True)
    assert rank_operations._box_of(gone, [box], {MALLORY}) is box, (
        "it would be taken, so that the refusal proves something"
    )
    assert rank_operations._box_of(gone, [box], files.users_of(ranks[0].pid)) is None
    os.chown(folder, ALICE, ALICE)
    notes: list[str] = []
    assert blackbox.find_boxes(folder, notes=notes) == [] and "into a folder of user" in notes[0]


def test_a_capture_of_root_takes_the_real_box_and_says_what_it_left_out(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, pid = shared_folder(tmp_path), ranks[0].pid
    plant(folder, pid, ALICE, name="n1-a")
    plant(folder, pid, MALLORY, name="n1-z")
    monkeypatch.setattr(rank_operations, "_environ", lambda pid: {"HANGDOCTOR_DIR": str(folder)})
    rank = RankCapture(pid=pid, rank=0)
    notes = rank_operations.attach([rank])
    assert rank.ops is not None and [g.name for g in rank.ops.groups] == [f"of {ALICE}"]
    assert any("n1-z" in note and "is left out" in note for note in notes)


def test_a_box_that_is_replaced_between_the_looks_is_refused(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]]
) -> None:
    folder, pid = shared_folder(tmp_path), ranks[0].pid
    path = plant(folder, pid, ALICE)
    [box] = blackbox.find_boxes(folder)
    path.unlink()
    plant(folder, pid, MALLORY).rename(path)
    with pytest.raises(BadInput, match=str(MALLORY)):
        blackbox.read_box(box.path, owners={box.owner})
    path.unlink()
    path.symlink_to(plant(folder, pid, ALICE, name="n1-other"))
    with pytest.raises(BadInput):
        blackbox.read_box(box.path, owners={box.owner})


def test_calls_are_of_the_owner_of_the_box(tmp_path: Path) -> None:
    folder = shared_folder(tmp_path)
    box = plant(folder, os.getpid(), ALICE)
    ring = Ring(box, 1 << 20, 0, 2)
    os.chown(ring.path, MALLORY, MALLORY)
    with pytest.raises(BadInput, match=str(MALLORY)):
        CallsReader(calls_path(box), {ALICE})
    os.chown(ring.path, ALICE, ALICE)
    CallsReader(calls_path(box), {ALICE}).close()


def test_sockets_and_pipes_of_others_are_not_asked(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]]
) -> None:
    folder, rank = shared_folder(tmp_path), RankCapture(pid=ranks[0].pid, rank=0)
    path, pipe = folder / "worker.sock", folder / "pipe0.pipe"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(0.2)
        for thing in (path, pipe):
            os.chown(thing, MALLORY, MALLORY)
        for environ in (
            {rank_operations._SOCKET: str(path)},
            {rank_operations._PIPE: str(folder / "pipe")},
        ):
            dump, errors = rank_operations._recorder_of(rank, environ, nccl_dump=True)
            assert dump is None and f"belongs to user {MALLORY}" in errors[0]
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_process_that_borrows_the_name_of_a_job_is_none_of_its_ranks(
    ranks: list[subprocess.Popen[bytes]],
) -> None:
    pids = {process.pid for process in ranks}
    jobs = [j for j in discover.find_jobs() if pids & {r.pid for r in j.ranks}]
    assert sorted(len(j.ranks) for j in jobs) == [1, 1] and len({j.key for j in jobs}) == 1
    _, chosen = job_choice.select_job(jobs, "29871")
    assert str(ALICE) in chosen or str(MALLORY) in chosen, "whose the other one is"


def test_dumps_of_several_users_in_a_folder_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    shutil.copytree(DATA / "flight_recorder" / "gloo-pickle", folder)
    (folder / "comm_lib_trace_rank_9").write_bytes((folder / "comm_lib_trace_rank_0").read_bytes())
    for path in folder.iterdir():
        user = MALLORY if path.name.endswith("9") else ALICE
        os.chown(path, user, user)
    assert len(load([folder]).ranks()) == 5, (
        "in a private folder whoever gave the files to whom is the owner's affair"
    )
    folder.chmod(0o1777)
    capture = load([folder])
    assert [r.rank for r in capture.ranks()] == [0, 1, 2, 3]
    assert any("comm_lib_trace_rank_9" in n and f"user {ALICE}" in n for n in capture.notes)
    assert len(load(sorted(folder.iterdir())).ranks()) == 5, "files that are named are meant"


def test_the_page_of_another_users_file_is_not_gone_to(tmp_path: Path) -> None:
    folder = shared_folder(tmp_path)
    (folder / place.FILE).write_text(json.dumps({"address": "http://evil", "token": "x"}))
    os.chown(folder / place.FILE, MALLORY, MALLORY)
    assert place.published(folder) is None
    os.chown(folder / place.FILE, ALICE, ALICE)
    assert place.published(folder) is not None


def test_a_request_is_never_written_into_a_file_that_is_there(tmp_path: Path) -> None:
    """Mallory's folder holds a second name of a file of root's where the request would be staged."""
    folder, precious = tmp_path / "mallory", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("root's own")
    os.link(precious, folder / f".{request.NAME}.{os.getpid()}")
    os.chown(folder, MALLORY, MALLORY)
    request.write(folder, request.Request(1, True))
    assert precious.read_text() == "root's own" and precious.stat().st_uid == 0
    told = (folder / request.NAME).stat()
    assert told.st_uid == MALLORY and stat.S_IMODE(told.st_mode) == 0o600


def test_users_of_a_process() -> None:
    assert files.users_of(os.getpid()) == {os.getuid()} and files.users_of(0) == frozenset()


def test_roots_dump_shows_no_line_of_a_file_that_only_looks_like_a_program(tmp_path: Path) -> None:
    """Any user can run a process whose frames name a link `x.py` to a file that only root may read."""
    secret, program, link = tmp_path / "shadow", tmp_path / "real.py", tmp_path / "x.py"
    secret.write_text("root:$6$abc:19000\n")
    program.write_text("wait()\n")
    link.symlink_to(secret)
    (tmp_path / "y.py").symlink_to(program)
    assert pyspy_frames.source_line(str(link), 1) == ""
    assert pyspy_frames.source_line(str(program), 1) == "wait()"
    assert pyspy_frames.source_line(str(tmp_path / "y.py"), 1) == "wait()"
