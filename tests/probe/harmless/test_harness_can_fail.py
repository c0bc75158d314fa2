"""A fake probe that does harm is noticed, in each of the things that are compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.harmless.compare import differences
from tests.support.harmless.observe import HERE, PLAIN, Observation, Running

VICTIM = """
import os, subprocess, sys, witness
print("one"); print("two", file=sys.stderr)
open("kept", "w").write("three")
witness.note("main")
"""
# For each field of an observation: what a bad start-up hook would do.
HARMS = {
    "exit_code": "import atexit; atexit.register(lambda: (sys.stdout.flush(), os._exit(7)))",
    "stdout": "print('noise')",
    "stderr": "print('noise', file=sys.stderr)",
    "files": "os.umask(0o077); import atexit; atexit.register(lambda: os.chmod('kept', 0o600))",
    "processes": "import subprocess; subprocess.Popen(['sleep', '30'])",
    "environ": "os.environ['HARM'] = '1'",
    "descriptors": "kept = [os.open('/dev/null', os.O_RDONLY)]",
    "threads": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "memory": "kept = bytearray(os.urandom(1 << 20)) * 40",
    "signals": "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    "interpreter": "sys.path.append('/harm')",
}
OTHERS = {"files": {"signals"}}  # the umask is the reason why the mode is another


def test_there_is_a_harm_for_all_that_is_compared() -> None:
    assert set(HARMS) == {f.name for f in dataclasses.fields(Observation)} - {"probes"}


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Observation]:
    base = tmp_path_factory.mktemp("victim")
    program = base / "victim.py"
    program.write_text(VICTIM)
    return program, Running(program, PLAIN, base / "plain").end()


@pytest.mark.parametrize("what", sorted(HARMS))
def test_harm_is_noticed(what: str, victim: tuple[Path, Observation], tmp_path: Path) -> None:
    program, plain = victim
    assert not differences(plain, Running(program, PLAIN, tmp_path / "again").end())
    hook = tmp_path / "hook"
    hook.mkdir()
    clean = "sys.path.remove(os.path.dirname(__file__)); os.environ['PYTHONPATH'] = os.environ['PYTHONPATH'].split(':')[1]"
    (hook / "sitecustomize.py").write_text(f"import os, sys\n{clean}\n{HARMS[what]}\n")
    harmed = Running(program, PLAIN, tmp_path / "harmed", {"PYTHONPATH": f"{hook}:{HERE}"}).end()
    found = {line.partition(":")[0].partition(" ")[0] for line in differences(plain, harmed)}
    assert found == {what} | OTHERS.get(what, set())


def test_a_difference_of_the_environment_in_one_child_alone_is_noticed(
    victim: tuple[Path, Observation],
) -> None:
    _, plain = victim
    other = dataclasses.replace(plain, environ={})
    assert differences(plain, other)
