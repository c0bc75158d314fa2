"""What is read of ranks in set-up: the way to the store, an import that blocks, who is expected."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hangdoctor.model.capture import ProcessSample, RankCapture
from hangdoctor.readers import pyspy, start_up
from hangdoctor.readers.start_up import expected_ranks, filesystem_of
from tests.support.lab import wait_until

SLURM = {
    "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "0",
}
BY_NODE = [("n1", [0, 1]), ("n2", [2, 3]), ("n3", [4])]


def test_slurm_tells_every_rank_who_is_expected_where() -> None:
    assert expected_ranks(SLURM) == BY_NODE
    assert expected_ranks(SLURM | {"RANK": "0"}) == BY_NODE
    # Slurm 22.05 says this of `srun` with a task for each node.
    cyclic = expected_ranks(SLURM | {"SLURM_DISTRIBUTION": "cyclic"})
    assert cyclic == [("n1", [0, 3]), ("n2", [1, 4]), ("n3", [2])]
    plane = SLURM | {"SLURM_DISTRIBUTION": "plane=2"}
    numbered = SLURM | {"RANK": "7"}
    fewer = SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2"}
    wrong = SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(x\u00b2),x"}
    odd = SLURM | {"SLURM_STEP_NODELIST": "n[1-"}
    for unclear in (plane, numbered, fewer, wrong, odd, {}, {"RANK": "0"}):
        assert expected_ranks(unclear) == []


def test_torchrun_below_slurm_tells_it_by_groups() -> None:
    torchrun = {
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "1",
        "SLURM_NODEID": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "4",
        "RANK": "5",
    }
    assert expected_ranks(torchrun) == [("n1", [0, 1, 2, 3]), ("n2", [4, 5, 6, 7])]
    assert expected_ranks(torchrun | {"GROUP_RANK": "0"}) == []


def test_the_file_system_of_a_file_is_the_innermost_mount() -> None:
    mounts = (
        "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 21 0:40 / /sw rw shared:2 - nfs4 server:/sw rw\n"
        "31 30 0:41 / /sw/my\\040env rw - fuse.sshfs host: rw\nodd line\n"
    )
    assert filesystem_of("/sw/lib/x.py", mounts) == ("/sw", "nfs4")
    assert filesystem_of("/sw/my env/x.py", mounts) == ("/sw/my env", "fuse.sshfs")
    assert filesystem_of("/swift/x.py", mounts) == ("/", "ext4")
    assert filesystem_of("x.py", "") == ("", "")


# A rank's program in small: it listens on its port, and connects to the ports that it is given.
PROGRAM = """
import socket, sys, time
held = []
if sys.argv[1] == "listen":
    held.append(socket.create_server(("127.0.0.1", 0)))
    print(held[0].getsockname()[1], flush=True)
elif sys.argv[1] == "connect":
    held.append(socket.create_connection(("127.0.0.1", int(sys.argv[2]))))
    print("connected", flush=True)
else:
    print("idle", flush=True)
time.sleep(600)
"""


def test_links_to_the_store_and_why_there_is_none() -> None:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> str:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    try:
        port = int(start("listen"))
        start("connect", str(port))
        start("idle")
        host, joined, idle = (process.pid for process in started)
        views = [start_up.store_of(pid, "127.0.0.1", port, {}) for pid in (host, joined, idle)]
        assert [view.link for view in views] == ["listens", "connected", "none"]
        assert [view.refused for view in views] == ["", "", ""], "the attempt works"
        started[0].kill()
        started[0].wait()
        shut = start_up.store_of(idle, "127.0.0.1", port, {})
        assert (shut.link, shut.refused) == ("none", "connection refused")
        unknown = start_up.store_of(idle, "no-such-name.invalid", port, {})
        assert (unknown.addresses, unknown.refused) == ([], "")
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_a_port_that_never_answers_is_said_to_be_that() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        clients = [socket.socket() for _ in range(4)]
        try:
            for client in clients:  # what the queue has no room for gets no answer
                client.setblocking(False)
                client.connect_ex(address)
            assert start_up.attempt([address[0]], address[1], 0.5) == "no answer in 0.5 s"
        finally:
            for client in clients:
                client.close()


def test_an_import_that_blocks_in_its_file_system_is_seen() -> None:
    """The kernel holds whoever opens a file that is leased, as a file server that answers late."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        package = Path(folder) / "slow_package"
        package.mkdir()
        (package / "__init__.py").write_text("from . import part\n")
        part = package / "part.py"
        part.write_text("x = 1\n")
        fd = os.open(part, os.O_RDWR)
        before = signal.signal(signal.SIGIO, lambda *_: None)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            os.close(fd)
            signal.signal(signal.SIGIO, before)
            pytest.skip(f"no leases on this file system: {error}")
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", "import slow_package"],
            env=os.environ | {"PYTHONPATH": folder},
        )
        try:
            rank = RankCapture(pid=process.pid, rank=0)

            def blocked() -> bool:
                found = pyspy.dump(process.pid, 20)
                rank.samples = [ProcessSample(0.0, threads=found.threads)]
                start_up.attach([rank])
                return rank.importing is not None and rank.importing.module == "slow_package"

            wait_until(blocked, "the import blocks")
            assert rank.importing is not None
            assert (rank.importing.mount, rank.importing.filesystem) == ("/dev/shm", "tmpfs")
            assert rank.importing.file == str(package / "__init__.py")
        finally:
            process.kill()
            process.wait()
            os.close(fd)
            signal.signal(signal.SIGIO, before)
