"""What is sent to `hangdoctor run` reaches the command exactly once, whatever happens to the helper
that notes signals, and whenever it is sent.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.readers.launched import is_launching
from tests.support.probe_ranks import until
from tests.support.run_below import Listener, below, listening, pending, plain_environ, python

pytestmark = pytest.mark.timeout(90)

SENT = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
OWN_GROUP = "import os; os.setpgid(0, 0)"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return plain_environ(tmp_path / "run")


@pytest.fixture
def one(environ: dict[str, str]) -> Iterator[Listener]:
    with listening(environ) as listener:
        yield listener


def ended(one: Listener) -> list[int]:
    """What the command has got until SIGUSR2, which ends it."""
    one.send(signal.SIGUSR2)
    got = []
    while (line := one.line()) != str(int(signal.SIGUSR2)):
        got.append(int(line))
    assert one.process.wait(30) == 0
    return got


def to_each(one: Listener, number: int) -> None:
    """As schedulers do, who know the processes of a step and not their groups."""
    for pid in (one.process.pid, one.helper, one.command):
        os.kill(pid, number)


# ---------------------------------------------------------------------- the helper


def test_what_was_sent_to_the_helper_alone_takes_nothing_from_the_command(one: Listener) -> None:
    for number in SENT:
        os.kill(one.helper, number)
    one.rest()
    for number in SENT:
        one.send(number)
        assert one.line() == str(int(number))
    assert ended(one) == []


def test_nor_does_it_at_the_same_moment_from_another_sender(one: Listener) -> None:
    for number in SENT:
        subprocess.run(["kill", f"-{int(number)}", str(one.helper)], check=True, timeout=30)
        one.send(number)
        assert one.line() == str(int(number))
    assert ended(one) == []


def test_a_helper_that_is_killed_is_replaced(one: Listener) -> None:
    for _ in range(2):
        first = one.helper
        os.kill(first, signal.SIGKILL)
        one.send(signal.SIGTERM)
        assert one.line() == str(int(signal.SIGTERM))
        until("there is another helper", lambda: one.helper not in (0, first))  # noqa: B023
        os.killpg(one.process.pid, signal.SIGHUP)
        to_each(one, signal.SIGINT)
        assert [one.line(), one.line()] == ["1", "2"]
        one.rest()
    assert ended(one) == []


def test_a_helper_that_is_stopped_goes_on(one: Listener) -> None:
    for stop in (signal.SIGSTOP, signal.SIGTSTP):
        os.kill(one.helper, stop)
        one.send(signal.SIGTERM)
        os.killpg(one.process.pid, signal.SIGHUP)
        assert sorted([one.line(), one.line()]) == ["1", "15"]
    assert ended(one) == []


def test_without_its_helper_it_ends_as_the_command_does(environ: dict[str, str]) -> None:
    for end, code in (("os.kill(os.getpid(), 15)", -15), ("os._exit(7)", 7)):
        kill = (
            "import os; p = os.getppid(); c = open(f'/proc/{p}/task/{p}/children').read().split();"
            "os.kill(next(int(n) for n in c if int(n) != os.getpid()), 9);"
        )
        done = subprocess.run(
            below(*python(kill + end)), env=environ, capture_output=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (code, b"")


def called(one: Listener, text: str) -> list[int]:
    """As `pkill -f` finds them."""
    pids = [one.process.pid, one.helper, one.command]
    return [p for p in pids if text in Path(f"/proc/{p}/cmdline").read_text()]


def test_who_ends_it_by_its_name_ends_the_command(one: Listener) -> None:
    """`pkill -f "hangdoctor run"` is not for the command by itself, `pkill -f train.py` is."""
    until("the helper has its name", lambda: called(one, "run_command") == [one.process.pid])
    names = [Path(f"/proc/{p}/comm").read_text() for p in (one.helper, one.command)]
    assert names[0] == names[1]
    for text, found in (("run_command", 1), ("sigwait(every)", 3)):
        assert len(called(one, text)) == found
        for pid in called(one, text):
            os.kill(pid, signal.SIGTERM)
        assert one.line() == "15"
        one.rest()
    assert is_launching(one.helper), "no rank"
    assert ended(one) == []


# ---------------------------------------------------------------------- at all times


def test_signals_to_all_that_come_while_it_is_stopped_reach_the_command_once(
    one: Listener,
) -> None:
    os.kill(one.process.pid, signal.SIGSTOP)
    to_each(one, signal.SIGTERM)
    os.killpg(one.process.pid, signal.SIGHUP)
    assert {one.line(), one.line()} == {"1", "15"}
    one.send(signal.SIGUSR1)
    until("the helper has noted both", lambda: pending(one.helper) == 0)
    one.send(signal.SIGCONT)
    assert one.line() == str(int(signal.SIGUSR1))
    assert ended(one) == []


def test_two_at_once_and_the_same_again_as_schedulers_send_it(one: Listener) -> None:
    one.send(signal.SIGTERM, signal.SIGINT)
    assert sorted([one.line(), one.line()]) == ["15", "2"]
    for _ in range(2):
        to_each(one, signal.SIGTERM)
        assert one.line() == "15"
        one.rest()
    for pid in (one.command, one.process.pid):
        os.kill(pid, signal.SIGKILL)
    assert one.process.wait(30) == -signal.SIGKILL


# Sends itself or its group a signal each time that it has become two.
AT_FORKS = """
import os, signal
fork, left = os.fork, [{which}]
def forked():
    pid = fork()
    left[0] -= 1
    if pid and left[0] == 0:
        os.{kill}(os.getpid(), {number})
    return pid
os.fork = forked
"""


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("kill", ["kill", "killpg"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_before_the_command_is_there_are_for_it(
    which: int, kill: str, number: int, environ: dict[str, str]
) -> None:
    first = AT_FORKS.format(which=which, kill=kill, number=int(number))
    done = subprocess.run(
        below("/bin/sh", "-c", "exit 7", first=first),
        env=environ,
        capture_output=True,
        timeout=30,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (-number, b"")


VERDICT = """
import os, sys, time
from hangdoctor.cli import run, run_command
run.EndsWatch.finish = lambda self, code: True
run.say_verdict = lambda *_: (print("says", file=sys.stderr, flush=True), time.sleep(60))
run_command.end_as(run._watched("/bin/sh", ["sh", "-c", "exit 7"], dict(os.environ), quiet=False))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_verdict_is_made_leaves_the_exit_code(
    number: int, environ: dict[str, str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", VERDICT],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "says\n"
        process.send_signal(number)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 7
    finally:
        process.kill()
        process.wait()


# ---------------------------------------------------------------------- process groups


def test_a_command_that_makes_its_own_group_gets_what_is_sent_to_ours(
    environ: dict[str, str],
) -> None:
    """`timeout` does: below a shell with job control it leads the group and stays in it."""
    with listening(environ, first=OWN_GROUP) as one:
        until("the helper is with it", lambda: os.getpgid(one.helper) == one.command)
        os.killpg(one.process.pid, signal.SIGTERM)
        assert one.line() == "15"
        to_each(one, signal.SIGHUP)
        assert one.line() == "1"
        assert ended(one) == []


@pytest.mark.parametrize("first", ["", OWN_GROUP], ids=["our group", "its own group"])
def test_what_the_terminal_sends_reaches_it_once(first: str, environ: dict[str, str]) -> None:
    first += "\nimport os; tty = os.dup(1)"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, below(*python(LISTENS_ON_TERMINAL.format(first=first))), environ)
    try:
        with os.fdopen(terminal, "r", closefd=False) as said:
            assert said.readline().strip() == "ready"
            os.write(terminal, b"\x03")
            assert said.readline().strip().endswith("got 2")
            os.kill(pid, signal.SIGTERM)
            assert said.readline().strip() == "got 15"
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)


LISTENS_ON_TERMINAL = """
import os, signal
{first}
every = {{signal.SIGINT, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, {{*every, signal.SIGTTOU}})
print("ready", flush=True)
number = 0
while number != signal.SIGTERM:
    number = signal.sigwait(every)
    print("got", int(number), flush=True)
"""


# ---------------------------------------------------------------------- what it has from its caller


def test_a_caller_s_alarm_is_for_the_command(environ: dict[str, str]) -> None:
    """`perl -e 'alarm 60; exec @ARGV' COMMAND` is how time limits are set where there is no timeout."""
    code = "import signal; print(*(0 < left <= 60 for left in signal.getitimer(0)))"
    words = below(*python(code), first="import signal; signal.setitimer(0, 60, 30)")
    done = subprocess.run(words, env=environ, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"True True\n"), done.stderr


def test_a_caller_that_adopts_orphans_leaves_that_to_the_command(environ: dict[str, str]) -> None:
    asks = (
        "import ctypes; it = ctypes.c_int();"
        "ctypes.CDLL(None).prctl(37, ctypes.byref(it), 0, 0, 0); print(it.value)"
    )
    words = below(*python(asks), first="import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)")
    done = subprocess.run(words, env=environ, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr


MANY_FILES = """
import os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
"""


def test_signals_reach_it_beside_a_thousand_open_files(environ: dict[str, str]) -> None:
    with listening(environ, parent=MANY_FILES) as one:
        one.send(signal.SIGTERM)
        assert one.line() == "15"
        os.killpg(one.process.pid, signal.SIGHUP)
        assert one.line() == "1"
        assert ended(one) == []
