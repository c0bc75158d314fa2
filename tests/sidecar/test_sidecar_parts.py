"""Spool, incidents, keys, actions: each alone, with what goes wrong with it."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hangdoctor.cli.unused_folder import unless_used
from hangdoctor.errors import BadInput, BundleError, CollectorError, LauncherError, UsageError
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job, RankLine
from hangdoctor.sidecar import actions
from hangdoctor.sidecar.concluding import Concluder
from hangdoctor.storage import bundle
from hangdoctor.storage.incidents import Incident, Incidents
from hangdoctor.transport import address, keys
from hangdoctor.transport.spool import Spool
from tests.support.stage import hangdoctor


def diagnosis(summary: str = "Rank 3 is stopped.", confidence: float = 0.9) -> Diagnosis:
    cause = Cause("stopped", [3], ["n2"], confidence, summary)
    line = RankLine(
        rank=3, node=os.uname().nodename, pid=0, gpu="", local_rank=0, state="T", place=""
    )
    return Diagnosis("hang", Job("slurm:7.0", 4, ["n1", "n2"]), summary, [cause], ranks=[line])


# ----------------------------------------------------------------- spool


def test_the_spool_gives_back_in_order_what_is_not_acknowledged_also_after_a_kill(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s")
    for i in range(1, 101):
        assert spool.put(b"%d" % i) == i
    spool.ack(40)
    assert [s for s, _ in spool.after(90)] == list(range(91, 101))
    again = Spool(tmp_path / "s")  # nothing was closed: as after SIGKILL
    assert again.put(b"101") == 101
    seqs = [s for s, _ in again.after(40)]
    assert seqs == list(range(41, 102))
    assert dict(again.after(40))[77] == b"77"


def test_a_full_spool_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", max_bytes=200_000)
    for _ in range(1000):
        spool.put(b"x" * 1000)
    assert spool.dropped == 1000 - len(spool)
    assert spool.oldest == spool.dropped + 1
    assert sum(p.stat().st_size for p in (tmp_path / "s").iterdir()) < 300_000
    spool.ack(1000)
    assert list((tmp_path / "s").iterdir()) == []


def test_a_record_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    for i in range(5):
        spool.put(b"record %d" % i)
    [segment] = (tmp_path / "s").iterdir()
    segment.write_bytes(segment.read_bytes()[:-3])
    again = Spool(tmp_path / "s")
    assert [s for s, _ in again.after(0)] == [1, 2, 3, 4]
    again.put(b"behind it")
    assert [s for s, _ in Spool(tmp_path / "s").after(0)] == [1, 2, 3, 4, 5]


def test_a_disk_that_takes_nothing_does_no_harm() -> None:
    spool = Spool(Path("/dev/full/not-there"))
    for i in range(3000):
        spool.put(b"%d" % i)
    assert spool.disk_error
    assert (len(spool), spool.dropped, spool.oldest) == (2000, 1000, 1001)


# ----------------------------------------------------------------- incidents


def save(folder: Path, n: int = 1) -> list[str]:
    incidents = Incidents(folder)
    capture = JobCapture("slurm:7.0", taken=1_700_000_000.0)
    return [
        incidents.save(capture, diagnosis(f"Rank 3, time {i}."), "report", "stall").id
        for i in range(n)
    ]


def test_incidents_are_kept_found_and_pruned(tmp_path: Path) -> None:
    ids = save(tmp_path, 5)
    assert len(set(ids)) == 5
    incidents = Incidents(tmp_path, create=False)
    assert [r.id for r in incidents.rows()] == sorted(ids, key=lambda i: (len(i), i))
    assert incidents.find("last").id in ids
    assert bundle.load(incidents.folder / ids[0]).job == "slurm:7.0"
    assert (incidents.rows()[0].kind, incidents.rows()[0].ranks) == ("stopped", "3")
    with pytest.raises(BadInput, match="5 incidents match"):
        incidents.find("slurm")
    assert len(incidents.prune(keep=2)) == 3
    assert len(Incidents(tmp_path).rows()) == 2
    assert len([p for p in incidents.folder.iterdir() if p.is_dir()]) == 2


def test_after_a_crash_at_any_point_folder_and_index_agree(tmp_path: Path) -> None:
    one, two, three = save(tmp_path, 3)
    folder = tmp_path / "incidents"
    with sqlite3.connect(folder / "index.sqlite") as db:
        db.execute(
            "UPDATE incidents SET state='open', status='' WHERE id=?", (one,)
        )  # after its bundle, before its row
        db.execute("DELETE FROM incidents WHERE id=?", (two,))  # the index is older than the folder
        db.execute(
            "INSERT INTO incidents (id, job, at, reason, state) VALUES ('20200101-000000-x', 'x', 1.0, 'stall', 'open')"
        )
    rows = {r.id: r for r in Incidents(tmp_path).rows()}
    assert (rows[one].state, rows[one].status) == ("saved", "hang")
    assert (rows[two].state, rows[two].kind) == ("saved", "stopped")
    assert rows[three].state == "saved"
    assert rows["20200101-000000-x"].state == "lost"


def test_a_disk_that_is_full_is_said_and_leaves_nothing_half(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be used"):
        Incidents(Path("/proc/hangdoctor"))
    incidents = Incidents(tmp_path)
    (incidents.folder / "index.sqlite").write_bytes(b"no database" * 200)
    with pytest.raises(BundleError, match="cannot be used"):
        incidents.put({"a": b"1"})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True
    )
    if done.returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_and_is_emptied_again(small_disk: Path) -> None:
    incidents, spool = Incidents(small_disk), Spool(small_disk / "spool")
    spool.put(b"before")
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    capture = JobCapture("slurm:7.0", taken=1_700_000_000.0, notes=["x" * 100_000])
    with pytest.raises(BundleError):
        incidents.save(capture, diagnosis(), "report", "stall")
    with pytest.raises(BundleError):
        incidents.put({"a": b"1" * 100_000})
    for _ in range(100):
        spool.put(b"y" * 1000)
    assert spool.disk_error
    assert [s for s, _ in spool.after(0)] == list(range(1, 102))
    filler.unlink()
    assert incidents.save(capture, diagnosis(), "report", "stall").state == "saved"
    incidents.put({"a": b"1"})
    spool.ack(101)
    spool.put(b"after")
    assert not spool.disk_error
    assert [r.state for r in Incidents(small_disk).rows()].count("saved") == 1
    assert [s for s, _ in Spool(small_disk / "spool").after(0)][-1] == 102


def test_a_reader_that_opens_them_while_one_is_kept_takes_nothing_away(tmp_path: Path) -> None:
    """`incidents list` beside a collector that saves in that very moment."""
    collector = Incidents(tmp_path)

    class Between(Incidents):
        def rows(self) -> list[Incident]:
            before = super().rows()
            if not before:
                collector.note_actions(save(tmp_path)[0], "command: true exited with code 0")
            return before

    Between(tmp_path)
    [row] = Incidents(tmp_path).rows()
    assert (row.state, row.actions) == (
        "saved",
        "command: true exited with code 0",
    ) and "beside" not in row.reason


def test_what_the_collector_remembers_is_kept_as_one(tmp_path: Path) -> None:
    Incidents(tmp_path).put({"a": b"1", "b": b"2"})
    assert (
        Incidents(tmp_path).get("a"),
        Incidents(tmp_path).get("b"),
        Incidents(tmp_path).get("c"),
    ) == (b"1", b"2", None)


# ----------------------------------------------------------------- keys and addresses


def test_keys_are_private_made_once_and_refused_when_they_are_not_private(tmp_path: Path) -> None:
    made = keys.make(tmp_path / "job")
    assert keys.make(tmp_path / "job") == keys.load(tmp_path / "job") == made
    files = list((tmp_path / "job" / "keys").iterdir())
    assert sorted(f.name for f in files) == ["agent.key", "collector.key"]
    assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
    assert (tmp_path / "job").stat().st_mode & 0o777 == 0o700
    files[0].chmod(0o640)
    with pytest.raises(CollectorError, match="other users can read"):
        keys.load(tmp_path / "job")
    with pytest.raises(CollectorError, match="cannot be read"):
        keys.load(tmp_path / "other")


def test_plaintext_stays_on_this_machine() -> None:
    for good in (
        "tcp://127.0.0.1:7000",
        "tcp://localhost:7000",
        "ipc:///tmp/x",
        "tcp://127.0.0.1:*",
    ):
        assert address.check(good, insecure=True) == good
    for bad in (
        "tcp://node1:7000",
        "tcp://0.0.0.0:7000",
        "tcp://*:*",
        "tcp://10.0.0.1:7000",
        "tcp://127.0.0.1.evil.org:1",
    ):
        with pytest.raises(UsageError):
            address.check(bad, insecure=True)
        address.check(bad, insecure=False)
    for nonsense in ("node1:7000", "udp://x:1", "tcp://a b:1", ""):
        with pytest.raises(UsageError):
            address.check(nonsense, insecure=False)


# ----------------------------------------------------------------- actions


def config(tmp_path: Path, text: str) -> actions.Config:
    (tmp_path / "hangdoctor.toml").write_text(text)
    return actions.load(tmp_path / "hangdoctor.toml")


def verdict(**more: object) -> actions.Verdict:
    return msgspec.structs.replace(actions.Verdict.of("id-1", diagnosis(), Path("/b")), **more)


def test_a_command_gets_the_verdict_without_a_shell(tmp_path: Path) -> None:
    told = config(
        tmp_path,
        '[[action]]\nkind = "command"\n'
        f'command = ["sh", "-c", "echo \\"$1 $HANGDOCTOR_STATUS\\" > {tmp_path}/out", "x", "{{summary}}"]\n',
    )
    summary = "Rank 3; $(touch /tmp/never) `x`"
    [line] = actions.Actor(told).act(verdict(summary=summary), 0.0)
    assert line == "command: sh exited with code 0"
    assert (tmp_path / "out").read_text() == f"{summary} hang\n"


def test_cool_down_dry_run_status_and_confidence_hold_actions_back(tmp_path: Path) -> None:
    text = '[actions]\ncooldown_s = 100\n[[action]]\nkind = "command"\ncommand = ["touch", "{}"]\nmin_confidence = 0.5\n'
    told = config(tmp_path, text.replace("{}", str(tmp_path / "done")))
    assert "would run touch" in actions.Actor(told, dry_run=True).act(verdict(), 0.0)[0]
    assert not (tmp_path / "done").exists()
    assert actions.Actor(told).act(verdict(status="unknown"), 0.0) == []
    actor = actions.Actor(told)
    assert "below 50%" in actor.act(verdict(confidence=0.1), 0.0)[0]
    assert actor.act(verdict(), 1.0) == [
        "command: touch exited with code 0"
    ]  # what was left out was no act
    assert "cool-down" in actor.act(verdict(), 51.0)[0]
    assert actor.act(verdict(), 102.0) == ["command: touch exited with code 0"]


def test_the_cool_down_outlives_the_collector(tmp_path: Path) -> None:
    """One that is restarted sees the same stall again: it must not requeue the job twice."""
    told = config(
        tmp_path, f'[[action]]\nkind = "command"\ncommand = ["touch", "{tmp_path / "done"}"]\n'
    )
    first, second = (Concluder(Incidents(tmp_path), actions.Actor(told)) for _ in range(2))
    assert first.actor.act(verdict(), time.monotonic()) == ["command: touch exited with code 0"]
    assert second.actor.act(verdict(), time.monotonic()) == [
        "command: touch exited with code 0"
    ]  # it began before
    third = Concluder(Incidents(tmp_path), actions.Actor(told))
    assert "cool-down" in third.actor.act(verdict(), time.monotonic())[0]


def test_an_action_that_hangs_is_ended(tmp_path: Path) -> None:
    told = config(
        tmp_path, '[[action]]\nkind = "command"\ncommand = ["sleep", "600"]\ntimeout_s = 0.2\n'
    )
    begin = time.monotonic()
    [line] = actions.Actor(told).act(verdict(), 0.0)
    assert "was killed after" in line and time.monotonic() - begin < 60


def test_slurm_actions_name_the_job_and_the_culprits_process(tmp_path: Path) -> None:
    text = "".join(f'[[action]]\nkind = "{k}"\n' for k in ("requeue", "scancel", "signal"))
    lines = actions.Actor(config(tmp_path, text), dry_run=True).act(verdict(pids={"n2": [77]}), 0.0)
    assert lines[0] == "requeue: would run scontrol requeue 7"
    assert lines[1] == "scancel: would run scancel 7"
    assert "srun --jobid=7 --overlap" in lines[2] and lines[2].endswith("-w n2 kill -TERM 77")


def test_a_webhook_gets_json(tmp_path: Path) -> None:
    got: list[bytes] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/hook"
        told = config(tmp_path, f'[[action]]\nkind = "webhook"\nurl = "{url}"\n')
        assert actions.Actor(told).act(verdict(), 0.0) == ["webhook: answered 204"]
        thread.join(timeout=10)
    assert msgspec.json.decode(got[0])["ranks"] == "3"


@pytest.mark.parametrize("said", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_webhook_that_answers_nonsense_or_half_delays_no_one(tmp_path: Path, said: bytes) -> None:
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer, contextlib.suppress(OSError):
                peer.recv(1 << 16)
                peer.sendall(said)
                while not said.startswith(b"garbage") and not done.wait(0.05):
                    peer.sendall(b"x")  # before any limit of a single read

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        text = f'[[action]]\nkind = "webhook"\nurl = "{url}"\ntimeout_s = 0.5\n[[action]]\nkind = "command"\ncommand = ["true", "{{summary}}"]\n'
        lines = actions.Actor(config(tmp_path, text)).act(verdict(summary="a\0b"), 0.0)
        done.set()
        thread.join(timeout=10)
    assert "failed" in lines[0] or "no answer after" in lines[0]
    assert lines[1] == "command: true exited with code 0"


def test_wrong_configurations_are_named(tmp_path: Path) -> None:
    for text, words in (
        ('[[action]]\nkind = "explode"\n', "explode"),
        ('[[action]]\nkind = "command"\n', "no command"),
        ('[[action]]\nkind = "signal"\nsignal = "SIGWHAT"\n', "SIGWHAT"),
        ('[[action]]\nkind = "webhook"\nurl = "file:///x"\n', "http"),
        ("[actions]\ncool = 1\n", "cool"),
        ("not toml", "hangdoctor.toml"),
    ):
        with pytest.raises(BadInput, match=words):
            config(tmp_path, text)


def test_a_port_that_is_taken_leaves_no_folder(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        web = ("--web", f"127.0.0.1:{other.getsockname()[1]}")
        sidecar = ("sidecar", "--local", "--job", "not-there", "--folder", str(tmp_path / "a"))
        for verb in (sidecar, ("collect", "--folder", str(tmp_path / "b"))):
            refused = hangdoctor(*verb, *web, cwd=tmp_path, code=1).stderr
            assert "cannot listen on" in refused and "Choose another port" in refused
            assert "Traceback" not in refused
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_or_has_something_to_show_stays(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "keys").mkdir(parents=True)
    with pytest.raises(CollectorError), unless_used(old):
        raise CollectorError("port taken")
    with pytest.raises(LauncherError), unless_used(new) as use:
        (new / "logs").mkdir(parents=True)
        use.kept = True
        raise LauncherError("see the agents' logs")
    assert old.is_dir() and new.is_dir()
