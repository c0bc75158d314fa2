"""`hangdoctor run` stays beside its command as the parent: whoever started it gets the same end,
and whatever is sent to it reaches the command, as without it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.probe_ranks import SCRIPTS, STARTUP, until
from tests.support.run_below import below, listening, plain_environ, python

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return plain_environ(tmp_path / "run")


def test_what_is_sent_to_it_reaches_the_command_once(environ: dict[str, str]) -> None:
    with listening(environ) as one:
        for number in (signal.SIGTERM, signal.SIGABRT, signal.SIGXCPU, signal.SIGRTMIN + 3):
            one.send(number)
            assert one.line() == str(int(number))
        os.killpg(one.process.pid, signal.SIGHUP)  # the command has its own of these
        one.process.send_signal(signal.SIGINT)
        assert [one.line(), one.line()] == ["1", "2"]
        os.killpg(one.process.pid, signal.SIGSTOP)
        until("both are stopped", lambda: one.states() == {"T"})
        os.killpg(one.process.pid, signal.SIGCONT)
        one.process.send_signal(signal.SIGUSR2)
        assert one.line() == str(int(signal.SIGUSR2))
        assert one.process.wait(30) == 0


def test_whoever_kills_it_kills_the_command(environ: dict[str, str]) -> None:
    with listening(environ) as one:
        one.process.kill()
        assert one.line() == "", "the end of the command closes its output"
        assert one.process.wait(30) == -signal.SIGKILL


def test_it_ends_as_the_command_does(environ: dict[str, str]) -> None:
    for number in (signal.SIGKILL, signal.SIGABRT, signal.SIGTERM, signal.SIGUSR1):
        kills = python(f"import os; os.kill(os.getpid(), {int(number)})")
        ended = subprocess.run(below(*kills), env=environ, capture_output=True, timeout=30)
        assert (ended.returncode, ended.stderr) == (-number, b"")


def test_a_caller_that_ignores_the_ends_of_its_children(environ: dict[str, str]) -> None:
    """As programs do that start others and never wait: what is ignored is inherited."""
    code = "import signal, sys; print(signal.getsignal(signal.SIGCHLD).name); sys.exit(7)"
    seen = []
    for words in (python(code), below(*python(code))):
        ended = subprocess.run(
            words,
            env=environ,
            capture_output=True,
            timeout=30,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        )
        seen.append((ended.returncode, ended.stdout, ended.stderr))
    assert seen == [(7, b"SIG_IGN\n", b"")] * 2


LIMITED = """
import os, resource, sys
from hangdoctor.cli import run, run_command
what, words = sys.argv[1], sys.argv[2:]
if what == "descriptors":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
elif what != "folder":
    # Us, the one that notes signals, the command; and no thread beside.
    resource.setrlimit(resource.RLIMIT_NPROC, [{"processes": 1, "threads": 3}[what]] * 2)
if os.geteuid() == 0:
    os.setuid(50_000 + os.getpid() % 10_000)  # a user with no other process
run_command.end_as(run._watched(words[0], words, dict(os.environ), quiet=what != "folder"))
"""


@pytest.mark.parametrize("what", ["descriptors", "processes", "threads"])
def test_where_there_is_no_room_beside_the_command_it_runs_all_the_same(
    what: str, environ: dict[str, str]
) -> None:
    if what != "descriptors" and os.geteuid() != 0:
        pytest.skip("a user without processes is needed: run as root")
    words = [sys.executable, "-S", "-c", LIMITED, what, "/bin/sh", "-c", "echo started; exit 7"]
    ended = subprocess.run(words, env=environ, capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"started\n", b"")


ORPHANS = """
for _ in range(5):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
def ended():
    numbers = [n for n in os.listdir("/proc") if n.isdigit()]
    stats = [open(f"/proc/{n}/stat").read() for n in numbers]
    return sum(stat.rpartition(")")[2].split()[0] == "Z" for stat in stats)
end = time.monotonic() + 10
while ended() and time.monotonic() < end:
    time.sleep(0.02)
print("left:", ended())
raise SystemExit(7)
"""


# As whoever lists all processes and ends the wrong one; its own parent is the first.
WITHOUT_HELPER = """
before = open("/proc/1/task/1/children").read().split()
os.kill(next(int(n) for n in before if int(n) != os.getpid()), signal.SIGKILL)
"""


@pytest.mark.parametrize("first", ["", WITHOUT_HELPER], ids=["", "helper killed"])
def test_as_the_first_process_of_a_container_it_takes_in_whom_others_leave(
    first: str,
    environ: dict[str, str],
) -> None:
    """Nothing else would: they would fill the container's processes. `bash` as the first one does."""
    words = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*words, "true"], capture_output=True, timeout=30).returncode:
        pytest.skip("a process namespace is needed: run as root")
    command = below(*python(f"import os, signal, time\n{first}\n{ORPHANS}"))
    ended = subprocess.run([*words, *command], env=environ, capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (7, b"left: 0\n"), ended.stderr


def test_a_folder_that_cannot_be_reached_any_more_does_not_change_the_exit_code(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """As after a ticket for a network's file system has run out."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    environ["HANGDOCTOR_DIR"] = str(above / "run")
    close = f"mkdir $HANGDOCTOR_DIR; chmod 0 {above} 2>&-; exit 7"
    words = [sys.executable, "-S", "-c", LIMITED, "folder", "/bin/sh", "-c", close]
    try:
        ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=30)
    finally:
        above.chmod(0o700)
    assert ended.returncode == 7
    assert "how its ranks ended cannot be shown: [Errno 13]" in ended.stderr, ended.stderr


def test_a_command_whose_environment_has_no_room_for_ours_starts_without(
    environ: dict[str, str],
) -> None:
    """One variable may have 128 KiB, its name and all; a path of modules may come near to that."""
    full = "/" + "a" * (128 * 1024 - len("PYTHONPATH=") - 3)
    words = [sys.executable, str(SCRIPTS / "run_verb.py"), "--", "sh", "-c", "echo ${#PYTHONPATH}"]
    ended = subprocess.run(
        words, env=environ | {"PYTHONPATH": full}, capture_output=True, timeout=30
    )
    assert (ended.returncode, ended.stdout) == (0, b"%d\n" % len(full)), ended.stderr
    assert b"without the probe" in ended.stderr and str(STARTUP).encode() not in ended.stdout


def test_a_request_that_cannot_be_removed_is_no_reason_not_to_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "run" / "hangdoctor-trace.json").mkdir(parents=True)
    words = [sys.executable, str(SCRIPTS / "run_verb.py"), "--", "sh", "-c", "echo started"]
    ended = subprocess.run(words, env=environ, capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"started\n", b"")


def test_an_error_of_ours_in_the_preparation_is_no_reason_not_to_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "import os, sys; from hangdoctor.cli import run\n"
        "def prepare(environ): environ['HALF'] = '1'; 1 / 0\n"
        "run.prepare = prepare; run.command(prog_name='hangdoctor run')"
    )
    words = [sys.executable, "-c", code, "--", "sh", "-c", "echo started $HALF"]
    ended = subprocess.run(words, env=environ, capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, b"started\n"), ended.stderr
    assert b"the command runs without the probe: division by zero" in ended.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_has_closed_are_closed(
    closed: str, environ: dict[str, str], tmp_path: Path
) -> None:
    code = f"import os; open({str(tmp_path / 'said')!r}, 'w').write(str(sorted(map(int, os.listdir('/proc/self/fd')))))"
    said = []
    for words in (python(code), below(*python(code))):
        subprocess.run(
            ["sh", "-c", f'"$@" {closed}', "sh", *words], env=environ, timeout=30, check=True
        )
        said.append((tmp_path / "said").read_text())
    assert said[0] == said[1]


CLOSES = """
import fcntl, os
fcntl.flock({lock}, fcntl.LOCK_EX)
for number in ({lock}, 0, 1):
    os.close(number)
os.read({ends}, 1)
"""


def test_what_the_command_closes_is_closed(environ: dict[str, str], tmp_path: Path) -> None:
    """Whoever waits for the end of its output, or for the lock of a file, waits for it alone."""
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    other = os.open(tmp_path / "lock", os.O_RDWR)
    ends, end = os.pipe()
    process = subprocess.Popen(
        below(*python(CLOSES.format(lock=lock, ends=ends))),
        env=environ,
        stdout=subprocess.PIPE,
        pass_fds=[lock, ends],
    )
    os.close(lock)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 30)
        assert ready and process.stdout.read() == b"", "its output has ended"
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert process.poll() is None
        os.write(end, b"g")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        for number in (other, ends, end):
            os.close(number)
