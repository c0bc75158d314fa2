"""Where black boxes go: what the user has in a folder stays as it is, and a folder that will not do
keeps no job from starting.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.probe import flight
from hangdoctor.probe import folder as folders
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls.ring import Ring
from hangdoctor.probe.identity import process_name
from hangdoctor.readers import rank_operations as box_readers
from hangdoctor.readers.blackbox import default_folders, find_boxes
from tests.support.probe_ranks import ROOT, SCRIPTS, environment, ranks

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short one: the path of a Unix socket has room for 107 bytes."""
    return tmp_path_factory.mktemp("f")


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
SHOW = "import os; print(os.environ['HANGDOCTOR_DIR'])"


def through_run(folder: Path | str, *words: str) -> subprocess.CompletedProcess[str]:
    env = environment(Path(folder), PYTHONPATH=str(ROOT))
    command = [
        sys.executable,
        str(SCRIPTS / "run_verb.py"),
        "--",
        *(words or (sys.executable, "-c", SHOW)),
    ]
    return subprocess.run(command, env=env, text=True, capture_output=True, timeout=100)


def listing(folder: Path) -> list[tuple[str, int, int, bytes]]:
    """Names, modes, times and contents of all that lies in a folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found.append((str(path.relative_to(folder)), status.st_mode, status.st_mtime_ns, data))
    return found


@pytest.mark.torch
@pytest.mark.parametrize("mode", [0o2775, 0o1777, 0o755, 0o700], ids=oct)
def test_a_folder_of_the_users_is_left_as_it_was(tmp_path: Path, mode: int) -> None:
    theirs = tmp_path / "results"
    (theirs / "hangdoctor").mkdir(parents=True)
    for name in ("trace.json", "worker-1.sock", "model.calls", "hangdoctor/trace.json"):
        (theirs / name).write_text("precious")
    theirs.chmod(mode)
    before = listing(theirs)
    job = (
        "import os, stat, pathlib, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.barrier()\n"
        "here = pathlib.Path(os.environ['HANGDOCTOR_DIR'])\n"
        "ours = [p for p in here.rglob('*') if p.suffix in ('.blackbox', '.sock') and 'worker-1' not in p.name]\n"
        "print(sorted({p.suffix for p in ours}), {oct(stat.S_IMODE(p.lstat().st_mode)) for p in ours}, len({p.parent for p in ours}))\n"
        "dist.destroy_process_group()\n"
    )
    ended = through_run(theirs, "sh", "-c", 'umask 002; exec "$0" "$@"', sys.executable, "-c", job)
    suffixes = [".blackbox"], [".blackbox", ".sock"]
    # Where the private folder's name is too long, there is no socket in it: that depends on where
    # the tests run.
    expected = suffixes if mode & 0o022 else suffixes[1:]
    assert ended.stdout in {f"{found} {{'0o600'}} 1\n" for found in expected}, ended.stderr
    assert ended.returncode == 0, ended.stderr
    assert listing(theirs) == before
    assert stat.S_IMODE(theirs.stat().st_mode) == mode


def test_a_folder_that_others_can_write_into_gets_a_private_one(tmp_path: Path) -> None:
    for name, mode in (("tmp", 0o1777), ("pool", 0o2775)):
        shared = tmp_path / name
        (shared / "somebody").mkdir(parents=True)
        shared.chmod(mode)
        made = folders.prepare(shared)
        assert (
            made == shared / f"hangdoctor-{os.getuid()}"
            and stat.S_IMODE(made.stat().st_mode) & 0o777 == 0o700
        )
        assert shared.stat().st_mode & 0o7777 == mode


def unusable(tmp_path: Path, kind: str) -> Path:
    there = tmp_path / kind
    if kind == "link":
        (tmp_path / "target").mkdir()
        there.symlink_to(tmp_path / "target")
    elif kind == "file":
        there.write_text("precious")
    elif kind == "below a file":
        (tmp_path / "plain").write_text("precious")
        there = tmp_path / "plain" / "boxes"
    elif kind == "no such place":
        there = Path("/proc/nothing/boxes")
    elif kind == "another user's":
        there.mkdir()
        os.chown(there, 12345, 12345)
    elif kind == "long":
        there = tmp_path / ("x" * 300)
    return there


@pytest.mark.parametrize(
    "kind",
    [
        "link",
        "file",
        "below a file",
        "no such place",
        "long",
        pytest.param("another user's", marks=as_root),
    ],
)
def test_the_command_starts_and_another_place_is_taken(tmp_path: Path, kind: str) -> None:
    there = unusable(tmp_path, kind)
    ended = through_run(there)
    assert (
        ended.returncode == 0 and str(there) in ended.stderr and len(ended.stderr.splitlines()) == 1
    )
    assert Path(ended.stdout.strip()).parent in folders.places()
    assert not (tmp_path / "target").exists() or not list((tmp_path / "target").iterdir())


def in_a_machine_of_its_own(tmp_path: Path, script: str, **more: str) -> str:
    """What a shell script says whose /dev/shm and /tmp are empty, as on a node that no one has used
    yet.
    """
    lines = f"mount -t tmpfs x /dev/shm && mkdir -m 1777 {tmp_path}/t && export TMPDIR={tmp_path}/t\n{script}"
    env = {k: v for k, v in environment(tmp_path).items() if k != "HANGDOCTOR_DIR"} | {
        "PYTHONPATH": str(ROOT),
        **more,
    }
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", lines],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no namespaces here")
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


RUN = f'{sys.executable} {SCRIPTS / "run_verb.py"} -- {sys.executable} -c "{SHOW}"\n'


@as_root
def test_another_user_has_taken_the_default_place(tmp_path: Path) -> None:
    said = in_a_machine_of_its_own(
        tmp_path, f"mkdir -m 777 /dev/shm/hangdoctor-0; chown 7 /dev/shm/hangdoctor-0\n{RUN}"
    )
    assert (
        said.startswith("/dev/shm/hangdoctor-0-1/run-")
        and "/dev/shm/hangdoctor-0 belongs to another user" in said
    )
    (tmp_path / "t").rmdir()
    said = in_a_machine_of_its_own(
        tmp_path, f"for n in '' -1 -2 -3; do ln -s /etc /dev/shm/hangdoctor-0$n; done\n{RUN}"
    )
    assert said.startswith(f"{tmp_path}/t/hangdoctor-0/run-")


@as_root
def test_nowhere_at_all_is_a_warning(tmp_path: Path) -> None:
    script = (
        "mkdir /dev/shm/ro; mount -o remount,ro /dev/shm; export TMPDIR=/dev/shm/none\n"
        + RUN.replace(SHOW, "print(5)")
    )
    said = in_a_machine_of_its_own(tmp_path, script)
    assert said.startswith("5\nhangdoctor: no folder for black boxes can be made on this machine")


@as_root
def test_a_rank_whose_place_was_refused_is_found_by_the_readers(tmp_path: Path) -> None:
    code = (
        "import os; from hangdoctor.probe.process_probe import probe; from hangdoctor.readers.blackbox import find_boxes, read_box\n"
        "box = probe.begin().box; print(box.path, flush=True)\n"
        "print([b.path == str(box.path) for b in find_boxes(pids=[os.getpid()])], read_box(box.path).box.note, flush=True); os._exit(0)"
    )
    script = (
        "mkdir /dev/shm/hangdoctor-0; chown 7 /dev/shm/hangdoctor-0\n"
        + f'{sys.executable} -c "{code}"\n'
    )
    said = in_a_machine_of_its_own(
        tmp_path, script, RANK="0", WORLD_SIZE="1", MASTER_PORT="1"
    ).splitlines()
    assert said[0].startswith("/dev/shm/hangdoctor-0-1/run-localhost-1/")
    assert said[1].startswith("[True] ") and "hangdoctor-0" in said[1]


def test_ranks_of_one_job_may_have_their_boxes_in_several_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    spare = tmp_path / f"hangdoctor-{os.getuid()}-1" / "job"
    named = tmp_path / "named"
    for where in (spare, named):
        where.mkdir(parents=True)
    assert spare.parent in default_folders()
    here = BoxWriter(spare, "job", 1 << 20)
    elsewhere = BoxWriter(named, "job", 1 << 20)
    elsewhere.put((24, "<I"), 1)  # as another process's
    notes: list[str] = []
    found = box_readers._boxes({named}, {1, os.getpid()}, notes)
    assert notes == []
    assert sorted(b.path for b in found) == sorted([str(here.path), str(elsewhere.path)])


# --------------------------------------------------------------------------- files


def test_a_file_that_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    name = f"{socket.gethostname()}-{process_name(os.getpid())}"
    box = BoxWriter(tmp_path, "job", 1 << 20)
    for path, make in (
        (tmp_path / "there" / f"{name}.blackbox", lambda p: BoxWriter(p.parent, "job", 1 << 20)),
        (tmp_path / f"{name}.calls", lambda p: Ring(box.path, 1 << 20, 0, 1)),
        (tmp_path / f".{name}.calls", lambda p: Ring(box.path, 1 << 20, 0, 1)),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
        with pytest.raises(FileExistsError):
            make(path)
        assert path.read_text() == "precious"
        path.unlink()
    flight.discard_socket(tmp_path / "absent.sock")
    (tmp_path / "plain.sock").write_text("precious")
    flight.discard_socket(tmp_path / "plain.sock")
    assert (tmp_path / "plain.sock").read_text() == "precious"


def test_what_a_dead_process_has_left_is_replaced(tmp_path: Path) -> None:
    first = BoxWriter(tmp_path, "job", 1 << 20)
    Ring(first.path, 1 << 20, 0, 1)
    BoxWriter(tmp_path, "job", 1 << 20)
    Ring(first.path, 1 << 20, 0, 1)
    assert len(find_boxes(tmp_path)) == 1 and len(list(tmp_path.iterdir())) == 2
    first.path.write_bytes(bytes(5000))  # its process was killed before the header was there
    BoxWriter(tmp_path, "job", 1 << 20)


def test_a_file_in_the_place_of_ours_is_neither_written_nor_removed(tmp_path: Path) -> None:
    box = BoxWriter(tmp_path, "job", 1 << 20)
    ring = Ring(box.path, 1 << 20, 0, 1)
    for made in (box, ring):
        made.path.unlink()
        made.path.write_bytes(b"precious" * 200)
        made.note("switched off", 3)
        made.remove()
        assert made.path.read_bytes() == b"precious" * 200


@pytest.mark.torch
def test_the_request_carries_our_name(tmp_path: Path) -> None:
    from hangdoctor.probe.calls import request

    assert request.NAME == "hangdoctor-trace.json"
    with ranks("alone.py", 1, environment(tmp_path), "foreign") as started:
        (tmp_path / "trace.json").write_text("precious")
        assert started[0].end()[0] == 0
    assert (tmp_path / "trace.json").read_text() == "precious"
