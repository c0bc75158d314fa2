"""Jobs that are over: the boxes and exit codes name who ended first and how, and never a victim."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from tests.support.ended_jobs import PROGRAM, environment, run_job
from tests.support.ports import free_port

pytestmark = [pytest.mark.timeout(150), pytest.mark.torch]

CRASHES = [
    ("kill", 2, "between", "dead", "killed by SIGKILL"),
    ("exception", 0, "between", "error", "ValueError"),
    ("segfault", 2, "backward", "dead", "SIGSEGV"),
    ("exit", 0, "inside", "dead", "exit code 3|SIGABRT"),
    # Now and then a thread of gloo's aborts the process while it leaves.
    ("leave", 2, "between", "dead", "exit code 0, while the others went on|SIGABRT"),
    ("interrupt", 2, "between", "error", "KeyboardInterrupt"),
]
# The same ends at other moments.
MORE_CRASHES = [
    ("kill", 0, "start", "dead", "killed by SIGKILL"),
    ("abort", 2, "between", "dead", "SIGABRT"),
    ("kill", 1, "inside", "dead", "killed by SIGKILL"),
    ("exception", 2, "inside", "error", "ValueError"),
    ("segfault", 0, "between", "dead", "SIGSEGV"),
    ("segfault", 1, "start", "dead", "SIGSEGV"),
    ("exit", 1, "between", "dead", "exit code 3|SIGABRT"),
    ("exit", 2, "start", "dead", "exit code 3|SIGABRT"),
    ("terminate", 1, "between", "dead", "SIGTERM"),
]
ALL_CRASHES = [*CRASHES, *(pytest.param(*case, marks=pytest.mark.full) for case in MORE_CRASHES)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "cause", "says"),
    [
        ("stop", "stopped", r"no thread of it ran for \d+ s .*\(SIGSTOP"),
        ("regex", "interpreter_lock", r"it ran no Python for \d+ s .* native code held the GIL"),
    ],
)
def test_a_stopped_rank_and_one_whose_gil_was_kept_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, cause: str, says: str
) -> None:
    monkeypatch.setenv("HUNG_S", "12")
    ended = run_job(tmp_path, kind, "1", "between", when_hung=signal.SIGTERM)
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [(cause, [1])], found
    assert re.search(says, found.summary)


@pytest.mark.parametrize(("kind", "rank", "when", "cause", "says"), ALL_CRASHES)
def test_the_rank_that_failed_first_is_named_and_no_other(
    tmp_path: Path, kind: str, rank: int, when: str, cause: str, says: str
) -> None:
    ended = run_job(tmp_path, kind, str(rank), when)
    assert ended.code == 1, ended.stderr
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [(cause, [rank])], found
    assert found.status == "failed" and not found.waits
    assert re.search(says, found.summary)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"hangdoctor: {found.summary}") and str(ended.boxes) in last


def test_a_rank_that_the_library_aborts_over_anothers_tensor_is_no_culprit(tmp_path: Path) -> None:
    """gloo ends whichever rank notices that the sizes differ."""
    ended = run_job(tmp_path, "sizes", "2", "inside")
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [2])], found
    assert found.status == "failed"


@pytest.mark.parametrize(
    ("kind", "hung", "says"),
    [
        ("reduce_op", None, "reduce op max, the others with reduce op sum"),
        pytest.param(
            *("members", signal.SIGTERM, "members 1, the others with members 0-2"),
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_rank_that_called_it_otherwise_is_named_for_what_all_or_others_raise(
    tmp_path: Path, kind: str, hung: signal.Signals | None, says: str
) -> None:
    """A wrong sum comes to its end, and so does a group that others did not ask for."""
    ended = run_job(tmp_path, kind, "1", "none", when_hung=hung)
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [1])], found
    assert says in found.summary


def test_what_only_torchs_own_recorder_saw_is_kept_beside_the_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A functional collective that one rank calls otherwise: no box has a record of it."""
    monkeypatch.setenv("HUNG_S", "8")
    ended = run_job(tmp_path, "functional", "1", "between", when_hung=signal.SIGTERM)
    records = sorted(ended.boxes.glob("*.records"))
    assert len(records) == 3 and all(path.stat().st_mode & 0o777 == 0o600 for path in records)
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [1])], found
    assert found.status == "hang" and "all_gather" in found.summary
    records[0].write_bytes(records[0].read_bytes()[:100])  # its process was killed while it wrote
    assert ended.diagnosis().causes == []


@pytest.mark.full
def test_the_rank_that_kept_a_lock_to_its_limit_is_named_and_not_who_then_got_it(
    tmp_path: Path,
) -> None:
    """At the limit of its barrier the lock is free, and the others come to theirs at once."""
    ended = run_job(tmp_path, "lock", "1", "between")
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [("order", [1])], found
    assert found.summary.startswith("Rank 1 (") and "holds the lock" in found.summary


def test_a_hang_that_was_ended_from_outside_is_a_hang(tmp_path: Path) -> None:
    ended = run_job(tmp_path, "hang", "2", "between", when_hung=signal.SIGTERM)
    assert ended.named() == ("hang", [("not_entered", [2])]), ended.stderr


def test_an_end_from_outside_names_no_rank(tmp_path: Path) -> None:
    ended = run_job(tmp_path, "interrupt_all", "1", "end", when_hung=signal.SIGTERM)
    status, causes = ended.named()
    assert status in ("unknown", "hang") and causes in ([], [("not_entered", [1])]), causes


def test_a_clean_end_leaves_nothing_and_says_nothing(tmp_path: Path) -> None:
    ended = run_job(tmp_path, "none", "0", "end")
    assert ended.code == 0 and "hangdoctor" not in ended.stderr
    assert list(ended.boxes.iterdir()) == []


def test_quiet_prints_no_verdict_and_keeps_the_boxes(tmp_path: Path) -> None:
    ended = run_job(tmp_path, "exception", "1", "start", flags=["--quiet"])
    assert ended.code == 1 and "hangdoctor:" not in ended.stderr
    assert ended.named() == ("failed", [("error", [1])])


def test_the_frame_of_the_users_own_code_and_what_it_was_at(tmp_path: Path) -> None:
    found = run_job(tmp_path, "exception", "1", "backward").diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [1])], found
    assert "fail (ending_job.py:" in found.summary and "bad sample in shard 7" in found.summary
    evidence = " ".join(e.says for e in found.causes[0].evidence)
    assert "after all_reduce #3" in evidence
    assert "cause" in [h.role for h in found.chain]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 2 GiB of memory."""
    one = Path("/sys/fs/cgroup/memory")
    base, limit = (
        (one, "memory.limit_in_bytes") if one.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
    )
    group = base / f"hangdoctor-test-{os.getpid()}"
    try:
        if not (base / "cgroup.procs").exists():
            pytest.skip("no control groups here")
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        if not (group / limit).exists():
            pytest.skip("its memory cannot be limited")
        (group / limit).write_text(str(2 << 30))
        yield group
    finally:
        end = time.monotonic() + 20
        while group.exists() and time.monotonic() < end:
            with contextlib.suppress(OSError):  # its last process is about to go
                group.rmdir()
            time.sleep(0.1)


def test_a_rank_killed_for_lack_of_memory(tmp_path: Path, small_group: Path) -> None:
    inside = ("sh", "-c", f'echo $$ > {small_group}/cgroup.procs && exec "$@"', "sh")
    ended = run_job(tmp_path, "memory", "1", "between", before=inside)
    found = ended.diagnosis()
    assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [1])]
    assert "lack of memory" in found.summary


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL])
def test_what_is_sent_to_run_reaches_the_command_once(tmp_path: Path, end: signal.Signals) -> None:
    code = (
        "import os, signal\n"
        # Not print: the second signal may come while the first one's line is written
        "for n in (signal.SIGTERM, signal.SIGUSR1):\n"
        "    signal.signal(n, lambda n, f: os.write(1, b'got %d\\n' % n))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "hangdoctor", "run", "--", sys.executable, "-c", code],
        env=environment(tmp_path),
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(end)
        if end is not signal.SIGKILL:
            assert process.stdout.readline() == f"got {int(end)}\n"
            os.killpg(process.pid, signal.SIGUSR1)  # to all: not passed on a second time
            assert process.stdout.readline() == f"got {int(signal.SIGUSR1)}\n"
            process.kill()
        assert process.stdout.read() == ""  # the command is gone, too, or this would not end
        assert process.wait(timeout=20) == -9
    finally:
        process.kill()
        process.wait()


def test_an_end_by_a_signal_is_the_commands(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    ended = subprocess.run(
        [sys.executable, "-m", "hangdoctor", "run", "--", sys.executable, "-c", code],
        env=environment(tmp_path),
        capture_output=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, b"", b"")


def test_one_folder_for_each_rank_is_joined(tmp_path: Path) -> None:
    port, base = str(free_port()), tmp_path / "hangdoctor-0"
    started = []
    for rank in range(3):
        env = environment(tmp_path) | {
            "HANGDOCTOR_DIR": str(base / f"run-{rank}"),
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        words = [sys.executable, "-m", "hangdoctor", "run", "--", sys.executable, str(PROGRAM)]
        started.append(
            subprocess.Popen(
                [*words, "kill", "1", "between"], env=env, text=True, stderr=subprocess.PIPE
            )
        )
    try:
        said = [process.communicate(timeout=100)[1] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert [process.returncode for process in started] == [1, -9, 1], said
    assert ["hangdoctor: Rank 1" in text for text in said] == [False, True, False], said
    for rank in range(3):
        found = diagnose(load([base / f"run-{rank}"]))
        assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [1])]
        assert found.job.world_size == 3 and found.missing == []
